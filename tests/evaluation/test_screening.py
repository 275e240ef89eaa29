"""The runs that a screen keeps, given planted estimates."""

from itertools import permutations

import pandas as pd
import pytest

from benchmarks.screening import screens
from stages.core.params import Params, Screen, typed
from stages.evaluation.estimates import ESTIMATES, EstimateRecord
from stages.evaluation.repetitions import repetitions
from stages.evaluation.screening import ScreenedOut, candidates, screened_out
from tests.synthetic_study import RUNS, raw_params, repeated

PRETRAINED = [name for name in RUNS if not name.endswith("_scratch")]


def record(run: str, value: float | None, **others: str) -> EstimateRecord:
    about = {"estimate": "knn", "layers": "last"} | others
    return EstimateRecord(
        run=run, value=value, layer=None, num_rows=9, num_states=9, flops=1, reason="", **about
    )


def names(groups: list[ScreenedOut]) -> set[str]:
    return {run for each in groups for run in each.runs}


@pytest.fixture
def params() -> Params:
    """Returns two pretraining seeds of each run: ``encoder_mlm``, ``encoder_mlm_2``, ..."""
    return Params(**raw_params(repeated(RUNS, 2)))


def test_without_the_setting_nothing_is_screened_out(params: Params) -> None:
    assert screened_out(None, params.pretrain, [record(run, 1.0) for run in RUNS]) == []


def test_the_highest_are_kept_and_runs_from_scratch_always(params: Params) -> None:
    """Neither the order in params.yaml nor high estimates of runs from scratch matter."""
    for order in [*permutations(PRETRAINED)][::17]:
        values = {name: float(i) for i, name in enumerate(order)}
        records = [
            record(f"{name}{seed}", values.get(name, -9.0)) for name in RUNS for seed in ("", "_2")
        ]
        screened = screened_out(Screen(by="knn", keep=2), params.pretrain, records)
        assert names(screened) == {f"{n}{seed}" for n in order[:-2] for seed in ("", "_2")}
        assert [each.value for each in screened] == sorted(values[n] for n in order[:-2])[::-1]
        assert [each.rank for each in screened] == [3, 4, 5]


def test_the_seeds_of_a_run_stand_or_fall_together_by_their_mean(params: Params) -> None:
    """A run with a low mean is screened out even if one of its seeds has the best estimate."""
    records = [record(f"{name}{seed}", 0.5) for name in PRETRAINED for seed in ("", "_2")]
    low = [record("decoder_causal", 0.9), record("decoder_causal_2", 0.0)]
    records = [low.pop(0) if r.run.startswith("decoder_causal") else r for r in records]
    (out,) = screened_out(Screen(by="knn", keep=4), params.pretrain, records)
    assert out == ScreenedOut(("decoder_causal", "decoder_causal_2"), "knn", 0.45, 5)


def test_of_ties_the_first_in_the_file_is_kept(params: Params) -> None:
    records = [record(run, 0.5) for run in params.pretrain]
    screened = screened_out(Screen(by="knn", keep=3), params.pretrain, records[::-1])
    assert [each.runs[0] for each in screened] == PRETRAINED[3:]


def test_what_has_no_estimate_is_not_screened_out(params: Params) -> None:
    """Covers an undefined estimate, a run without estimates, and another estimate or layer."""
    screen = Screen(by="knn", keep=1)
    assert screened_out(screen, params.pretrain, []) == []
    assert screened_out(screen, params.pretrain, [record(r, None) for r in params.pretrain]) == []
    others = [record(r, 1.0, estimate="logme") for r in params.pretrain]
    others += [record(r, 1.0, layers="best") for r in params.pretrain]
    assert screened_out(screen, params.pretrain, others) == []
    some = [record(r, 0.1 if "mlm" in r else 0.2) for r in params.pretrain if "small" not in r]
    screened = names(screened_out(screen, params.pretrain, some))
    assert "encoder_small" not in screened and "encoder_mlm" in screened


def test_candidates_are_the_groups_that_are_pretrained(params: Params) -> None:
    assert [runs[0] for runs in candidates(params.pretrain)] == PRETRAINED
    assert len(repetitions(params.pretrain)) == len(RUNS)


def test_every_estimate_can_screen() -> None:
    for by in ESTIMATES:
        raw = raw_params()
        raw["finetune"]["screen"] = {"by": by, "keep": 3}
        assert typed(raw).finetune.screen == Screen(by=by, keep=3)


@pytest.mark.parametrize(
    ("screen", "path", "valid"),
    [
        ({"by": "accuracy", "keep": 3}, "finetune.screen.by", ESTIMATES),
        ({"by": "knn", "keep": 0}, "finetune.screen.keep", ("greater than 0",)),
        ({"by": "knn", "keep": 2.5}, "finetune.screen.keep", ("integer",)),
        ({"by": "knn"}, "finetune.screen.keep", ("missing",)),
        ({"by": "knn", "keep": 3, "kep": 1}, "finetune.screen.kep", ("by", "keep")),
    ],
)
def test_a_bad_value_is_one_line_with_its_path_and_the_valid_ones(
    screen: dict[str, object], path: str, valid: tuple[str, ...]
) -> None:
    raw = raw_params()
    raw["finetune"]["screen"] = screen
    with pytest.raises(ValueError) as caught:
        typed(raw)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{path}: ") and all(name in line for name in valid)


def test_what_a_screen_would_have_lost_and_saved_of_a_finished_study() -> None:
    """Five pretrained runs have scores from .1 to .5, and two from scratch .15 and .2. A perfect
    screen loses nothing; a reversed one loses the distance from its choice to the best."""
    runs = Params(**raw_params()).pretrain
    score = {name: 0.1 * (i + 1) for i, name in enumerate(PRETRAINED)}
    score |= {"encoder_scratch": 0.15, "decoder_scratch": 0.2}
    about = {"task": "type", "method": "full", "label_budget": "50", "metric": "accuracy"}
    trials = pd.DataFrame([about | {"run": run, "value": value} for run, value in score.items()])
    costs = pd.DataFrame([{"run": run, "wall_time_s": 10.0} for run in score])
    records = [record(run, score[run]) for run in PRETRAINED]
    records += [record(run, -score[run], estimate="logme") for run in PRETRAINED]
    screen = {(row["by"], row["keep"]): row for row in screens(runs, trials, costs, records, 7.0)}
    assert {keep for _, keep in screen} == {"1", "2", "3"}  # keeping all five is no screen
    best = PRETRAINED[-1]
    for keep in ("1", "2", "3"):
        assert screen["knn", keep]["of the screen"] == f"{best} full"
        assert screen["knn", keep]["lost"] == "0.0"
    assert screen["logme", "1"]["of the screen"] == "decoder_scratch full"
    assert [screen["logme", keep]["lost"] for keep in ("1", "2", "3")] == ["30.0", "30.0", "20.0"]
    # The best of two runs drawn from five is .5 in 4 of 10 draws, .4 in 3, .3 in 2 and .2 in 1.
    assert screen["knn", "2"]["at random"] == "10.0"
    assert screen["knn", "2"]["trials saved"] == "43%"  # 3 of 7
    assert screen["knn", "2"]["with the screen"] == "47 s"  # 4 trials and 7 s of estimates
