"""A study fits into the time allowed, and more time makes a larger study."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.core.artifacts import Json
from stages.proposal.design import (
    EPOCHS,
    FROZEN,
    OWN_EPOCHS,
    STEP_TOKENS,
    Budget,
    Design,
    Pace,
    fitted,
    label_budgets,
    measured,
)
from tests.labelled_files import classified, paced, proposed

ARCHITECTURES = ("encoder", "decoder")
BUDGETS: list[Budget] = [100, 1000, "all"]
SHARES: dict[Budget, float] = {100: 0.1, 1000: 1.0, "all": 4.0}


def pace(step_s: float = 0.4, trial_s: float = 12.0, published_costs: float = 17.0) -> Pace:
    """``trial_s`` are the seconds of a small model's trial on 1,000 labels."""
    costs = dict.fromkeys(ARCHITECTURES, 1.0) | {"hub": published_costs}
    return Pace(
        step_s=dict.fromkeys(ARCHITECTURES, step_s),
        trials_s={
            (name, epochs, budget): cost * trial_s * share * max(epochs, 0.2) / OWN_EPOCHS
            for (name, cost), (budget, share) in product(costs.items(), SHARES.items())
            for epochs in (FROZEN, *EPOCHS)
        },
    )


def design(seconds: float, pace: Pace, **changes: bool) -> Design:
    settings = {"pretrains": True, "keep_budgets": False, "can_be_probed": True} | changes
    return fitted(ARCHITECTURES, BUDGETS, 2000 * STEP_TOKENS, pace, seconds, **settings)


@given(st.floats(600, 50_000), st.floats(0.001, 1), st.floats(0.1, 20), st.booleans())
def test_fitted_takes_no_more_than_the_time(
    seconds: float, step_s: float, trial_s: float, published: bool
) -> None:
    speed = pace(step_s, trial_s)
    fitting, least = (design(s, speed, published=published) for s in (seconds, 0.0))
    assert speed.seconds(fitting) <= max(seconds, speed.seconds(least))


def test_fitted_adds_to_the_frozen_checkpoint_in_the_order_of_what_tells_most() -> None:
    parts = {
        "probe": lambda d: d.published and d.probed != "none",
        "full": lambda d: d.epochs,
        "all labels": lambda d: "all" in d.budgets and d.epochs,
        "seeds": lambda d: d.draws == 3,
        "twin": lambda d: d.twin,
        "few labels": lambda d: len(d.budgets) > 1,
        "own": lambda d: d.pretrains,
        "both": lambda d: d.architectures == ARCHITECTURES,
        "own seeds": lambda d: d.pretraining_seeds >= 3,
        "wide": lambda d: d.d_model == 256,
    }
    designs = [design(1.05**i, pace(), published=True) for i in range(80, 300)]
    lacking = {
        part: [i for i, d in enumerate(designs) if not has(d)] for part, has in parts.items()
    }
    last = [max(each, default=-1) for each in lacking.values()]
    assert last == sorted(last) and last[0] == -1 < last[1]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"architectures": ARCHITECTURES[:1], "budgets": (100,), "published": False}),
        ({"keep_budgets": True}, {"budgets": (100, 1000, "all")}),
        ({"published": True}, {"architectures": (), "budgets": (100,), "epochs": FROZEN}),
        (
            {"published": True, "can_be_probed": False},
            {"architectures": (), "budgets": (100,), "epochs": EPOCHS[-1], "probed": "none"},
        ),
        (
            {"published": True, "must_pretrain": True},
            {"pretrains": True, "epochs": EPOCHS[-1], "probed": "published"},
        ),
    ],
)
def test_fitted_returns_the_smallest_study_where_nothing_fits(changes, expected) -> None:
    least = design(0, pace(), **changes)
    assert asdict(least) | expected == asdict(least)


def test_fitted_draws_the_splits_anew_with_the_time() -> None:
    designs = [design(s, pace(), published=True, can_draw_anew=True) for s in (0, 1e6)]
    assert [d.split_per_seed for d in designs] == [False, True]
    assert designs[1].finetuning_seeds == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("rows", "labels", "budgets"),
    [
        (50, 2, ["all"]),
        (900, 2, [100, "all"]),
        (7000, 2, [100, 1000, "all"]),
        (7000, 60, [300, 1000, "all"]),
        (90_000, 2, [100, 1000]),
    ],
)
def test_label_budgets(rows: int, labels: int, budgets: list) -> None:
    assert label_budgets(rows, labels) == budgets


def test_seconds_of_several_jobs_are_those_of_trainings_that_cannot_be_divided() -> None:
    """Six trainings of 12 s and six of 48 s, the longest first, take four jobs 96 s."""
    study = Design(architectures=ARCHITECTURES, pretraining_seeds=3, budgets=(1000, "all"))
    taken = {jobs: replace(pace(0.0), jobs=jobs).seconds(study) for jobs in (1, 4, 100)}
    assert taken[1] - taken[4] == pytest.approx(6 * (12 + 48) - 96)
    assert taken[1] - taken[100] == pytest.approx(6 * (12 + 48) - 48)


@pytest.mark.slow
def test_measured_has_a_time_for_every_architecture_and_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("a.csv").write_text(classified())
    calls: list[Json] = []

    def measure(raw: Json, budgets: Sequence[Budget], num_outputs: int) -> Pace:
        calls.append(raw)
        return paced(raw, budgets, num_outputs)

    monkeypatch.setattr("tests.labelled_files.paced", measure)
    proposed("a.csv")
    (raw,) = calls
    task = raw["tasks"]["a"] | {"num_train": 4000}  # enough rows for more than 500 steps
    pace = measured(raw | {"tasks": {"a": task}}, [100, 4000], 2)
    assert pace.step_s.keys() == {"modernbert", "phi"} and min(pace.step_s.values()) > 0
    for architecture in pace.step_s:
        few, many = (pace.trials_s[architecture, OWN_EPOCHS, b] for b in (100, 4000))
        assert 0 < 2 * few < many  # 500 and 2,000 steps
