"""More minutes never make a smaller study, and a study takes the time that there is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.proposal.design import STEP_TOKENS, Pace, fitted, label_budgets

ARCHITECTURES = ("encoder", "decoder")
BUDGETS = [1000, 100, "all"]


def pace(step_s: float, trial_s: float) -> Pace:
    of_budget = {1000: trial_s, 100: trial_s, "all": 3 * trial_s}
    return Pace(
        step_s=dict.fromkeys(ARCHITECTURES, step_s),
        trials_s={(a, b): seconds for a in ARCHITECTURES for b, seconds in of_budget.items()},
    )


def design(seconds: float, *, step_s: float = 0.4, trial_s: float = 12.0, asked: bool = False):
    return fitted(
        ARCHITECTURES,
        BUDGETS,
        2000 * STEP_TOKENS,
        pace(step_s, trial_s),
        seconds,
        pretrains=True,
        asked=asked,
    )


@given(st.floats(600, 50_000), st.floats(0.001, 1), st.floats(0.1, 20))
def test_it_fits(seconds: float, step_s: float, trial_s: float) -> None:
    found, least = (design(s, step_s=step_s, trial_s=trial_s) for s in (seconds, 0.0))
    takes = pace(step_s, trial_s).seconds
    assert takes(found) <= max(seconds, takes(least))


def test_more_time_gives_seeds_labels_and_steps() -> None:
    least, usual, large = design(0), design(600), design(1_000_000)
    assert least.pretraining_seeds == 1 and least.architectures == ("encoder",)
    assert usual.architectures == ARCHITECTURES and usual.pretraining_seeds >= 2
    assert large.pretraining_seeds == 5 and large.budgets == (1000, 100, "all")
    assert large.pretraining_steps == 8000  # four epochs
    assert (usual.d_model, large.d_model) == (128, 256)


def test_asked_budgets_are_kept() -> None:
    assert design(0, asked=True).budgets == (1000, 100, "all")


@pytest.mark.parametrize(
    ("rows", "labels", "budgets"),
    [
        (50, 2, ["all"]),
        (900, 2, ["all", 100]),
        (7000, 2, [1000, 100, "all"]),
        (7000, 60, [1000, 300, "all"]),
        (90_000, 2, [1000, 100]),
    ],
)
def test_label_budgets(rows: int, labels: int, budgets: list) -> None:
    assert label_budgets(rows, labels) == budgets
