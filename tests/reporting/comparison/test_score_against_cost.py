from hypothesis import given
from hypothesis import strategies as st

from stages.reporting.comparison.score_against_cost import pareto_front

points = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), max_size=12)


@given(points)
def test_the_front_is_what_nothing_beats(points: list[tuple[int, int]]) -> None:
    """By brute force: nothing costs as little or less, and is better, or cheaper and as good."""
    unbeaten = {
        (cost, merit)
        for cost, merit in points
        if not any(c <= cost and m >= merit and (c, m) != (cost, merit) for c, m in points)
    }
    front = pareto_front(points)
    assert [points[i] for i in front] == sorted(unbeaten)  # of equals one alone


def test_of_equals_the_first_is_on_the_front() -> None:
    assert pareto_front([(2, 5), (1, 3), (2, 5), (1, 3)]) == [1, 0]
