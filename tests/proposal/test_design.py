"""A study fits into the time allowed, and more time makes a larger study."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.core.artifacts import Json
from stages.proposal.design import (
    PROBE,
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
BUDGETS: list[Budget] = [1000, 100, "all"]
PUBLISHED_COSTS = 17  # in trials of a small model


def pace(step_s: float, trial_s: float) -> Pace:
    of_budget: dict[Budget, float] = {1000: trial_s, 100: trial_s, "all": 3 * trial_s}
    of_architecture = dict.fromkeys(ARCHITECTURES, 1) | {"hub": PUBLISHED_COSTS}
    return Pace(
        step_s=dict.fromkeys(ARCHITECTURES, step_s),
        trials_s={
            (architecture, budget): times * seconds
            for architecture, times in of_architecture.items()
            for budget, seconds in of_budget.items()
        },
    )


def design(
    seconds: float,
    *,
    step_s: float = 0.4,
    trial_s: float = 12.0,
    keep_budgets: bool = False,
    published: bool = False,
    must_pretrain: bool = False,
):
    return fitted(
        Design(architectures=ARCHITECTURES[:1], budgets=(BUDGETS[0],), pretrains=True),
        ARCHITECTURES,
        BUDGETS,
        2000 * STEP_TOKENS,
        pace(step_s, trial_s),
        seconds,
        keep_budgets=keep_budgets,
        published=published,
        can_be_probed=True,
        must_pretrain=must_pretrain,
    )


@given(st.floats(600, 50_000), st.floats(0.001, 1), st.floats(0.1, 20), st.booleans())
def test_fitted_takes_no_more_than_the_time(
    seconds: float, step_s: float, trial_s: float, published: bool
) -> None:
    fitting, least = (
        design(s, step_s=step_s, trial_s=trial_s, published=published) for s in (seconds, 0.0)
    )
    takes = pace(step_s, trial_s).seconds
    assert takes(fitting) <= max(seconds, takes(least))


def test_fitted_adds_seeds_labels_and_steps_with_more_time() -> None:
    least, usual, large = design(0), design(600), design(1_000_000)
    assert least.pretraining_seeds == 1 and least.architectures == ("encoder",)
    assert usual.architectures == ARCHITECTURES and usual.pretraining_seeds >= 2
    assert large.pretraining_seeds == 5 and large.budgets == (1000, 100, "all")
    assert large.pretraining_steps == 8000  # four epochs
    assert (usual.d_model, large.d_model) == (128, 256)
    assert (least.probed, large.probed) == ("none", "all")


def test_fitted_probes_the_published_checkpoint_and_counts_its_time() -> None:
    """The other runs are probed if there is time."""
    designs = [design(seconds, published=True) for seconds in range(500, 5000, 10)]
    assert {each.probed for each in designs if each.published} == {"published", "all"}
    takes = pace(0.4, 12.0).seconds
    own = next(each for each in designs if each.probed == "published")
    trials = own.pretraining_seeds * len(own.finetuning_seeds) * len(own.budgets)
    probes = takes(own) - takes(replace(own, probed="none"))
    assert probes == pytest.approx(PROBE * trials * PUBLISHED_COSTS * 12.0)


def test_fitted_keeps_the_checkpoint_where_there_is_no_time_to_pretrain_as_well() -> None:
    """Text from the user to pretrain on excludes the checkpoint."""
    takes = pace(0.4, 12.0).seconds
    both = replace(design(0), published=True, probed="published")
    short = takes(both) - 1
    assert short >= takes(replace(both, pretrains=False))
    kept = design(short, published=True)
    assert kept.published and not kept.pretrains and takes(kept) <= short
    assert not design(short, published=True, must_pretrain=True).published
    assert design(takes(both), published=True).pretrains


def test_fitted_keeps_budgets_that_a_flag_names() -> None:
    assert design(0, keep_budgets=True).budgets == (1000, 100, "all")


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


def test_seconds_of_several_jobs_are_those_of_trainings_that_cannot_be_divided() -> None:
    """Six trainings of 12 s and six of 36 s, the longest first, take four jobs 72 s."""
    one = replace(pace(0.0, 12.0), jobs=1)
    study = replace(design(0.0), pretrains=False, pretraining_seeds=3, budgets=(1000, "all"))
    study = replace(study, architectures=ARCHITECTURES)
    taken = {jobs: replace(one, jobs=jobs).seconds(study) for jobs in (1, 4, 100)}
    assert taken[1] - taken[4] == pytest.approx(6 * (12 + 36) - 72)
    assert taken[1] - taken[100] == pytest.approx(6 * (12 + 36) - 36)


@pytest.mark.slow
def test_measured_has_a_time_for_every_architecture_and_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("a.csv").write_text(classified())
    calls: list[Json] = []

    def measure(raw: Json, budgets: Sequence[Budget]) -> Pace:
        calls.append(raw)
        return paced(raw, budgets)

    monkeypatch.setattr("tests.labelled_files.paced", measure)
    proposed("a.csv")
    (raw,) = calls
    task = raw["tasks"]["a"] | {"num_train": 4000}  # enough rows for more than 500 steps
    pace = measured(raw | {"tasks": {"a": task}}, [100, 4000])
    assert pace.step_s.keys() == {"modernbert", "phi"} and min(pace.step_s.values()) > 0
    for architecture in pace.step_s:
        few, many = (pace.trials_s[architecture, budget] for budget in (100, 4000))
        assert 0 < 2 * few < many  # 500 and 2,000 steps
