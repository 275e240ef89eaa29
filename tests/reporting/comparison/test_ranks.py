from hypothesis import given
from hypothesis import strategies as st

from stages.reporting.comparison.ranks import ranks


def test_equals_share_the_best_of_their_places() -> None:
    assert ranks([0.5, 0.9, 0.5, 0.1]) == [2, 1, 2, 4]
    assert ranks([0.3]) == [1] and ranks([]) == []
    assert ranks([0.1 + 0.2, 0.3]) == [1, 1]  # but for the rounding of a mean


@given(st.lists(st.integers(0, 5), max_size=12))
def test_a_rank_is_one_more_than_the_number_of_betters(merits: list[int]) -> None:
    descending = sorted(merits, reverse=True)
    assert ranks(merits) == [1 + descending.index(merit) for merit in merits]
