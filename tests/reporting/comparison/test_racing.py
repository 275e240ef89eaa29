"""A study with a race: the report decides it anew and takes the trials that it gives, no others."""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stages.core.params import Params
from stages.evaluation.raced_seeds import raced_seeds, validation_merits
from stages.evaluation.records import EpochRecord, ScoredTrial, read, write
from stages.reporting.comparison import racing
from stages.reporting.comparison.results import Results, load
from stages.reporting.page import pages
from tests.synthetic_study import raw_params, write_study

FIRST, MOST = 3, 5
EVALUATED = Path("data/evaluated")


@pytest.fixture
def raced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """Full fine-tuning races to five seeds; probes have no epochs."""
    monkeypatch.chdir(tmp_path)
    raw = raw_params()
    write_study(tmp_path, raw)
    raw["finetune"] |= {"seeds": [1, 2, 3], "race": {"most": MOST}}
    params = Params(**raw)
    for task in params.tasks:
        trials = read(EVALUATED / task / "trials.csv", ScoredTrial)
        epochs = read(EVALUATED / task / "history.csv", EpochRecord)
        merits = validation_merits(trials[0].metric, trials, epochs)
        seeds = raced_seeds(params.finetune, params.pretrain, merits, lambda some, seed: {})

        def listed(t: ScoredTrial, seeds=seeds) -> bool:
            given = seeds.get((t.run, t.method, t.label_budget), params.finetune.seeds)
            return t.finetune_seed in given

        keep(task, listed)
    return params


def keep(task: str, listed: Callable[[ScoredTrial], bool]) -> None:
    trials = read(EVALUATED / task / "trials.csv", ScoredTrial)
    kept = [i for i, trial in enumerate(trials) if listed(trial)]
    rows = np.load(EVALUATED / task / "row_scores.npy")
    write(EVALUATED / task / "trials.csv", ScoredTrial, [trials[i] for i in kept])
    np.save(EVALUATED / task / "row_scores.npy", rows[kept])


def num_seeds(found: Results, run: str, method: str) -> int:
    cell = found.cell(run, "tag", method, "200")
    assert cell is not None
    return cell.num_finetune_seeds


def test_the_best_have_more_seeds_and_the_page_says_why(raced: Params) -> None:
    found = load(raced)
    assert num_seeds(found, "encoder_mlm", "full") == MOST
    assert num_seeds(found, "decoder_scratch", "full") == FIRST
    assert num_seeds(found, "encoder_mlm", "linear_probe") == FIRST
    (said,) = racing.caveats(found)
    assert f"all runs have {FIRST}" in said and f"up to {MOST}" in said
    assert "finetune.race" in pages.markdown(found)
    with Path("data/evaluated/tag/trials.csv").open() as file:
        assert len([*csv.reader(file)]) - 1 == sum(t.task == "tag" for t in found.trials)


def test_a_trial_that_the_race_gives_is_missed(raced: Params) -> None:
    keep("tag", lambda t: (t.run, t.method, t.finetune_seed) != ("encoder_mlm", "full", MOST))
    with pytest.raises(ValueError, match="no trial of encoder_mlm on tag"):
        load(raced)


def test_a_trial_that_the_race_does_not_give_is_refused(raced: Params) -> None:
    """As after ``most`` was lowered without running fine-tuning again."""
    race = raced.finetune.model_copy(update={"race": None})
    with pytest.raises(ValueError, match="does not list"):
        load(raced.model_copy(update={"finetune": race}))


def test_without_a_race_nothing_is_said(results: Results) -> None:
    assert [*racing.caveats(results)] == []
