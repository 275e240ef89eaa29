import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.reporting.svg import Scale, spread

NUMBERS = st.floats(0.01, 1e6)


@given(NUMBERS, NUMBERS, st.booleans())
def test_scale_keeps_the_order_and_its_ticks_are_on_it(a: float, b: float, log: bool) -> None:
    low, high = sorted((a, b))
    scale = Scale(low, max(high, 1.1 * low), log=log, left=10, right=90)
    assert scale.percent(scale.low) == pytest.approx(10)
    assert scale.percent(scale.high) == pytest.approx(90)
    places = [scale.percent(tick) for tick in scale.ticks()]
    assert places == sorted(places)
    assert all(9.9 <= place <= 90.1 for place in places)
    assert len(places) <= 20


@given(st.lists(st.floats(0, 300), max_size=12))
def test_spread_keeps_labels_apart_and_never_moves_them_up(places: list[float]) -> None:
    moved = spread(places, 14)
    assert all(new >= old for new, old in zip(moved, places, strict=True))
    assert all(b - a >= 13.999 for a, b in itertools.pairwise(sorted(moved)))
