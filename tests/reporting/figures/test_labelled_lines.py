"""Names at the ends of lines."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.reporting.figures.labelled_lines import GAP, domain_of, spread

HEIGHT = 200
ENDS = st.lists(st.floats(-5, 105), min_size=1, max_size=30)


@given(ends=ENDS)
def test_names_keep_their_order_do_not_touch_and_stay_beside_the_panel(ends: list[float]) -> None:
    """Many names have smaller gaps."""
    domain = domain_of(ends)
    places = np.array(spread(ends, domain, HEIGHT))
    order = np.argsort(ends, kind="stable")
    pixels = (places[order] - domain[0]) / (domain[1] - domain[0]) * HEIGHT
    gap = min(GAP, HEIGHT / max(len(ends) - 1, 1))
    assert (np.diff(pixels) >= gap - 1e-6).all()
    assert pixels.min() >= -1e-6 and pixels.max() <= HEIGHT + 1e-6


def test_names_that_have_room_stand_where_their_lines_end() -> None:
    assert spread([80.0, 20.0, 50.0], (0.0, 100.0), HEIGHT) == pytest.approx([80, 20, 50])


def test_two_lines_that_end_together_have_their_names_around_them() -> None:
    one, other = spread([50.0, 50.0], (0.0, 100.0), HEIGHT)
    assert (one + other) / 2 == pytest.approx(50) and other - one == pytest.approx(GAP / 2)
