"""Which runs get more seeds, from planted validation scores."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_type_hints

import pytest

from stages.core.params import Params
from stages.core.seeding import stream
from stages.evaluation.raced_seeds import (
    Candidate,
    Merits,
    Place,
    possible_seeds,
    raced_seeds,
    validation_merits,
)
from stages.evaluation.records import EpochRecord, TrialRecord
from tests.synthetic_study import RUNS, raw_params, repeated

MOST = 8
CLEAR = {name: 10.0 * i for i, name in enumerate(RUNS)}  # the last is the best
NOISE = 0.1


def study(seeds: list[int], most: int = MOST, pretrain_seeds: int = 1) -> Params:
    raw = raw_params(repeated(RUNS, pretrain_seeds))
    raw["finetune"] |= {"seeds": seeds, "race": {"most": most}, "label_budgets": [50, 200]}
    return Params(**raw)


def merit_of(place: Place, seed: int) -> float:
    run = place[0].removesuffix("_2")
    return CLEAR[run] + NOISE * stream(seed, *place).normal()


def raced(params: Params, method: str = "full") -> tuple[dict[Place, list[int]], list[Candidate]]:
    """The seeds, and every candidate that was asked for one more. One method has scores."""
    places = [(run, method, n) for run in params.pretrain for n in ("50", "200")]
    asked = list[Candidate]()

    def add(candidates: Sequence[Candidate], seed: int) -> Merits:
        asked.extend(candidates)
        return {(p, seed): merit_of(p, seed) for c in candidates for p in c.places}

    merits = {(p, s): merit_of(p, s) for p in places for s in params.finetune.seeds}
    return raced_seeds(params.finetune, params.pretrain, merits, add), asked


def test_seeds_that_are_added_follow_the_largest() -> None:
    assert possible_seeds(study([7, 2, 5]).finetune) == [7, 2, 5, 8, 9, 10, 11, 12]
    raw = raw_params()
    assert possible_seeds(Params(**raw).finetune) == raw["finetune"]["seeds"]


def test_runs_that_are_clearly_worse_get_no_more_and_a_winner_needs_none() -> None:
    seeds, asked = raced(study([1, 2, 3]))
    assert all(found[:3] == [1, 2, 3] and len(found) < MOST for found in seeds.values())
    assert {place[:1] + place[2:] for place in seeds} == {
        (r, n) for r in RUNS for n in ("50", "200")
    }
    assert sum(map(len, seeds.values())) == 3 * len(seeds) + len(asked)


def test_runs_that_tie_get_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CLEAR, "encoder_scientific", CLEAR["encoder_deep_learning"])
    seeds, _ = raced(study([1, 2, 3]))
    assert {p[0] for p, s in seeds.items() if len(s) == MOST} == {
        "encoder_scientific",
        "encoder_deep_learning",
    }


def test_pretraining_seeds_of_a_run_get_the_same_seeds() -> None:
    """Their mean is raced: a seed of the best run that is poor gets as many as the other."""
    params = study([1, 2, 3], pretrain_seeds=2)
    seeds, asked = raced(params)
    for run in RUNS:
        assert seeds[run, "full", "50"] == seeds[f"{run}_2", "full", "50"]
    assert all(len(candidate.runs) == 2 for candidate in asked)


def test_a_place_without_scores_takes_no_part() -> None:
    """A method without epochs, and a run that is screened out or does not fit."""
    params = study([1, 2, 3])
    seeds, _ = raced(params, "linear_probe")
    assert {place[1] for place in seeds} == {"linear_probe"}
    assert raced_seeds(params.finetune, params.pretrain, {}, lambda some, seed: {}) == {}


def epoch(number: int, value: float, *, lr: float = 0.1, seed: int = 1) -> EpochRecord:
    return EpochRecord(
        run="encoder_mlm",
        method="full",
        task="tag",
        label_budget="50",
        finetune_seed=seed,
        lr=lr,
        epoch=number,
        train_loss=1.0,
        validation_metric=value,
        validation_loss=1.0,
    )


def test_the_score_of_a_trial_is_that_of_the_epoch_that_it_keeps() -> None:
    """At the rate and in the variant that it keeps; where less is better, with the other sign."""
    about: dict[str, Any] = {"label_budget": "50", "finetune_seed": 1, "lr": 0.1, "best_epoch": 2}
    of_type = {str: "some", int: 1, float: 1.0}  # None of the others
    others = {name: of_type.get(hint) for name, hint in get_type_hints(TrialRecord).items()}
    about |= {"run": "encoder_mlm", "method": "full"}
    about |= {"read_out": "pooling=last", "initial_weights": "usual"}
    trial = TrialRecord(**(others | about))  # type: ignore[arg-type]
    here = [epoch(1, 0.9), epoch(2, 0.5), epoch(2, 0.8, lr=0.2), epoch(2, 0.7, seed=2)]
    epochs = [replace(e, read_out="pooling=last", initial_weights="usual") for e in here]
    epochs += [replace(e, validation_metric=1.0, read_out="pooling=mean") for e in epochs]
    place = "encoder_mlm", "full", "50"
    assert validation_merits("macro_f1", [trial], epochs) == {(place, 1): 0.5}
    assert validation_merits("word_perplexity", [trial], epochs) == {(place, 1): -0.5}
    assert validation_merits("macro_f1", [trial], epochs[:1]) == {}
