"""The runs that a screen keeps, given planted estimates."""

from itertools import permutations
from typing import Any

import pandas as pd
import pytest

from benchmarks.screening import screens
from stages.core.keys import RunKey
from stages.core.params import Params, Screen
from stages.evaluation.estimates import ESTIMATES, EstimateRecord
from stages.evaluation.screening import ScreenedOut, candidates, screened_out
from tests.smoke import faults_of, smoke_with
from tests.synthetic_study import RUNS, raw_params, repeated

PRETRAINED = [name for name in RUNS if not name.endswith("_scratch")]
TWICE = Params(**raw_params(repeated(RUNS, 2)))  # with two seeds of each run


def record(checkpoint: RunKey, value: float | None, **others: Any) -> EstimateRecord:
    about: dict[str, Any] = {"estimate": "knn", "layers": "last"} | others
    about |= checkpoint._asdict() | {"num_rows": 9, "num_states": 9, "flops": 1}
    return EstimateRecord(value=value, layer=None, reason="", **about)


def screened(keep: int, records: list[EstimateRecord]) -> list[ScreenedOut]:
    return screened_out(Screen(by="knn", keep=keep), TWICE.runs, records)


def test_screened_out_is_nothing_without_a_screen() -> None:
    records = [record(checkpoint, 1.0) for checkpoint in TWICE.checkpoints]
    assert screened_out(None, TWICE.runs, records) == []


def test_screened_out_keeps_the_highest_and_runs_from_scratch() -> None:
    """Neither the order in params.yaml nor high estimates of runs from scratch matter."""
    assert candidates(TWICE.runs) == PRETRAINED
    for order in [*permutations(PRETRAINED)][::17]:
        values = {name: float(i) for i, name in enumerate(order)}
        records = [record(key, values.get(key.run, -9.0)) for key in TWICE.checkpoints]
        assert screened(2, records) == [
            ScreenedOut(name, "knn", values[name], rank)
            for rank, name in enumerate(order[-3::-1], start=3)
        ]


def test_screened_out_ranks_a_run_by_the_mean_of_its_seeds() -> None:
    """A run with a low mean is screened out even if one of its seeds has the best estimate."""
    low = {RunKey("decoder_causal", 1): 0.9, RunKey("decoder_causal", 2): 0.0}
    records = [record(key, low.get(key, 0.5)) for key in TWICE.checkpoints]
    assert screened(4, records) == [ScreenedOut("decoder_causal", "knn", 0.45, 5)]


def test_screened_out_keeps_the_first_of_ties() -> None:
    records = [record(key, 0.5) for key in reversed(TWICE.checkpoints)]
    assert [run.run for run in screened(3, records)] == PRETRAINED[3:]


@pytest.mark.parametrize(
    ("value", "others"), [(None, {}), (1.0, {"estimate": "logme"}), (1.0, {"layers": "best"})]
)
def test_screened_out_ignores_other_and_undefined_estimates(
    value: float | None, others: dict[str, str]
) -> None:
    assert screened(1, [record(key, value, **others) for key in TWICE.checkpoints]) == []


def test_screened_out_keeps_a_run_of_which_a_seed_has_no_estimate() -> None:
    without = RunKey("encoder_small", 2)
    records = [record(key, 0.1) for key in TWICE.checkpoints if key != without]
    assert {run.run for run in screened(1, records)} == {*PRETRAINED[1:]} - {"encoder_small"}


@pytest.mark.parametrize("by", ESTIMATES)
def test_screen_may_use_every_estimate(by: str) -> None:
    assert not faults_of(smoke_with({"finetune.screen": {"by": by, "keep": 1}}))


@pytest.mark.parametrize(
    ("screen", "path", "parts"),
    [
        ({"by": "accuracy", "keep": 3}, "finetune.screen.by", ESTIMATES),
        ({"by": "knn", "keep": 0}, "finetune.screen.keep", ("greater than 0",)),
        ({"by": "knn", "keep": 2.5}, "finetune.screen.keep", ("integer",)),
        ({"by": "knn"}, "finetune.screen.keep", ("missing",)),
        ({"by": "knn", "keep": 3, "kep": 1}, "finetune.screen.kep", ("by", "keep")),
    ],
)
def test_screen_is_refused_in_one_line_with_its_path_and_the_valid_values(
    screen: dict[str, object], path: str, parts: tuple[str, ...]
) -> None:
    (fault,) = faults_of(smoke_with({"finetune.screen": screen}))
    assert fault.path == path and all(part in fault.message for part in parts)


def test_benchmark_of_screens_counts_what_each_loses_and_saves() -> None:
    """Five pretrained runs have scores from .1 to .5, and two from scratch .15 and .2. A perfect
    screen loses nothing; a reversed one loses the distance from its choice to the best."""
    runs = Params(**raw_params()).runs
    score = {name: 0.1 * (i + 1) for i, name in enumerate(PRETRAINED)}
    score |= {"encoder_scratch": 0.15, "decoder_scratch": 0.2}
    about = {"task": "type", "method": "full", "label_budget": "50", "metric": "accuracy"}
    trials = pd.DataFrame([about | {"run": run, "value": value} for run, value in score.items()])
    costs = pd.DataFrame([{"run": run, "wall_time_s": 10.0} for run in score])
    keys = [RunKey(run, 1) for run in PRETRAINED]
    records = [record(key, score[key.run]) for key in keys]
    records += [record(key, -score[key.run], estimate="logme") for key in keys]
    screen = {(row["by"], row["keep"]): row for row in screens(runs, trials, costs, records, 7.0)}
    assert {keep for _, keep in screen} == {"1", "2", "3"}  # keeping all five is no screen
    for keep in ("1", "2", "3"):
        assert screen["knn", keep]["of the screen"] == f"{PRETRAINED[-1]} full"
        assert screen["knn", keep]["lost"] == "0.0"
    assert screen["logme", "1"]["of the screen"] == "decoder_scratch full"
    assert [screen["logme", keep]["lost"] for keep in ("1", "2", "3")] == ["30.0", "30.0", "20.0"]
    # The best of two runs drawn from five is .5 in 4 of 10 draws, .4 in 3, .3 in 2 and .2 in 1.
    assert screen["knn", "2"]["at random"] == "10.0"
    assert screen["knn", "2"]["trials saved"] == "43%"  # 3 of 7
    assert screen["knn", "2"]["with the screen"] == "47 s"  # 4 trials and 7 s of estimates
