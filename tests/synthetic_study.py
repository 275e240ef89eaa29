"""The results of a whole study, drawn from known effects, for tests of findings and of the report.

Two architectures pretrained and from scratch, a smaller size, three training sets, two methods,
five seeds and the baselines, on three tasks.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

from stages.core.artifacts import write_json, write_jsonl
from stages.core.keys import CheckpointKey, TrialKey
from stages.core.params import Params
from stages.core.seeding import stream
from stages.core.study_file import typed
from stages.evaluation.calibration import CoverageRecord, ReliabilityRecord
from stages.evaluation.confusion import ConfusionRecord, records
from stages.evaluation.doubtful_labels import DoubtfulLabel
from stages.evaluation.near_duplicates import NearDuplicates
from stages.evaluation.records import (
    CLASSICAL,
    CostRecord,
    EpochRecord,
    InputRecord,
    ScoredTrial,
    SkippedMethod,
    write,
)
from stages.evaluation.transferability import ESTIMATES, EstimateRecord
from stages.findings.models import Progress, Step, TriedStep
from stages.findings.results import Results
from stages.tasks._labelled_rows import distinct_draws

STUDY = YAML(typ="safe").load(Path(__file__).with_suffix(".yaml").read_text())
METRICS = {"tag": "entity_f1", "type": "macro_f1", "section": "macro_f1"}
FAMILIES = {"encoder": "modernbert", "decoder": "phi"}
WEIGHTS = {192: 2_563_072, 96: 812_544, 48: 288_000}  # by d_model
NUM_TEST = 1000
DOUBTFUL = DoubtfulLabel(id="7", label="a", likelier_label="b", probability=0.1, text="a b")


def run(
    model: str, objective: str = "none", corpus: str = "all", *, d_model: int = 192, **training: Any
) -> dict[str, Any]:
    """Returns the entry of a model; without an objective it is from scratch."""
    name = FAMILIES.get(model, model)
    sizes = {} if name == "bilstm" else {"num_heads": 4}
    return {
        "corpus": "none" if objective == "none" else corpus,
        "tokenizer": "unigram",
        "architecture": {"name": name, "d_model": d_model, "num_layers": 4, **sizes},
        "objective": objective,
        "seeds": [1],
        **({"training": training} if training else {}),
    }


def public(path: str, revision: str = "0" * 40) -> dict[str, Any]:
    """Returns the entry of a published checkpoint."""
    architecture = {"name": "hub", "path": path, "revision": revision}
    return {"architecture": architecture, "objective": "none", "corpus": "none", "seeds": [1]}


def further(path: str, objective: str, **settings: Any) -> dict[str, Any]:
    """Returns the entry of a published checkpoint that is pretrained further."""
    return public(path) | {"corpus": "all", "objective": objective} | settings


RUNS = {
    "encoder_mlm": run("encoder", "mlm"),
    "encoder_scratch": run("encoder"),
    "decoder_causal": run("decoder", "causal"),
    "decoder_scratch": run("decoder"),
    "encoder_small": run("encoder", "mlm", d_model=96),
    "encoder_scientific": run("encoder", "mlm", "scientific"),
    "encoder_deep_learning": run("encoder", "mlm", "deep_learning"),
}
# What each model adds to 50 points. Fine-tuning seeds add noise of 1.5 points, and pretraining
# seeds after the first add noise of 1 point.
EFFECTS = {
    "encoder_mlm": 0.06,
    "encoder_scratch": -0.12,
    "decoder_causal": -0.01,
    "decoder_scratch": -0.15,
    "encoder_small": 0.052,
    "encoder_scientific": 0.055,
    "encoder_deep_learning": 0.02,
}


def repeated(runs: Mapping[str, Any], seeds: int) -> dict[str, Any]:
    """Returns the models, each pretrained with the seeds from 1 to ``seeds``."""
    return {name: entry | {"seeds": [*range(1, seeds + 1)]} for name, entry in runs.items()}


def raw_params(runs: Mapping[str, Any] = RUNS, **finetune: Any) -> dict[str, Any]:
    """Returns the parsed params.yaml of a study, with settings of ``finetune:`` changed."""
    raw = deepcopy(STUDY) | {"models": deepcopy(dict(runs))}
    raw["finetune"] |= finetune
    return raw


def drawn(raw: Mapping[str, Any], *, score: float | None = None) -> Results:
    """Returns the results of a study. With ``score``, every trial of every model has this score,
    in every test row."""
    params = typed(raw)
    trials, rows = list[ScoredTrial](), dict[TrialKey, np.ndarray]()
    for task in params.tasks:
        of_task = [*_of_models(params, task), *_of_baselines(params, task)]
        if score is not None:
            of_task = [t if t.method == CLASSICAL else replace(t, value=score) for t in of_task]
        trials += of_task
        rows |= {trial.key: _rows(trial, noisy=score is None) for trial in of_task}
    overlap = dict.fromkeys(params.tasks, {"num_test": NUM_TEST, "exact": 4, "ngram": 15})
    by_model = [trial for trial in trials if trial.method != CLASSICAL]
    machine = {"hardware": "A processor & more", "processor_time_s": 120.0, "threads": 2}
    return Results(
        params=params,
        trials=trials,
        row_scores=rows,
        tasks={task: about(task) for task in params.tasks},
        curves=[epoch for trial in by_model if trial.num_epochs for epoch in _curve(trial)],
        pretraining_costs={
            key: machine | {"wall_time_s": 61.5, "peak_memory_bytes": 900_000_000}
            for key in params.checkpoints
        },
        finetuning_costs={t.key: _cost(t) for t in by_model},
        progress={key: _progress(params, key) for key in params.checkpoints},
        contamination={
            (name, "unigram"): {"documents": 900, "tasks": overlap} | _amount(name)
            for name in params.corpora
        },
        examples={task: [_example(task, [*params.models])] for task in params.tasks},
        near_duplicates=dict.fromkeys(params.tasks, NearDuplicates(NUM_TEST, 5, 0.8, "a b", "b a")),
        confusion={t: _confused([x for x in trials if x.task == t]) for t in params.tasks},
        doubtful_labels={task: [DOUBTFUL] for task in params.tasks},
        reliability={t: _reliable([x for x in trials if x.task == t]) for t in params.tasks},
        coverage={t: _covered([x for x in by_model if x.task == t]) for t in params.tasks},
        inputs={task: _inputs(params, task) for task in params.tasks},
        estimates={task: _estimates(params, task) for task in params.tasks},
    )


def saved(results: Results, root: Path = Path()) -> Results:
    """Writes ``data/`` of a study as its stages leave it; returns the results."""
    params = results.params
    for task in params.tasks:
        folder, timings = root / "data/evaluated" / task, root / "data/timings/finetune" / task
        trials = [trial for trial in results.trials if trial.task == task]
        made = {(trial.model, trial.method) for trial in trials}
        gaps = sorted({*product(params.models, params.finetune.methods)} - made)
        skipped = [SkippedMethod(model=a, method=b, reason="incompatible") for a, b in gaps]
        tables: dict[str, tuple[type, list[Any]]] = {
            "trials": (ScoredTrial, trials),
            "history": (EpochRecord, [epoch for epoch in results.curves if epoch.task == task]),
            "skipped": (SkippedMethod, skipped),
            "inputs": (InputRecord, results.inputs[task]),
            "estimates": (EstimateRecord, results.estimates[task]),
            "confusion": (ConfusionRecord, results.confusion[task]),
            "doubtful_labels": (DoubtfulLabel, results.doubtful_labels[task]),
            "reliability": (ReliabilityRecord, results.reliability[task]),
            "coverage": (CoverageRecord, results.coverage[task]),
        }
        for name, (record, listed) in tables.items():
            write(folder / f"{name}.csv", record, listed)
        rows = [results.row_scores[trial.key] for trial in trials]
        np.save(folder / "row_scores.npy", np.array(rows, dtype=np.float32))
        np.save(folder / "row_groups.npy", np.empty(0, dtype=np.int64))
        write_json(folder / "task.json", results.tasks[task])
        write_json(folder / "near_duplicates.json", asdict(results.near_duplicates[task]))
        write_jsonl(folder / "examples.jsonl", results.examples[task])
        costs = [cost for cost in results.finetuning_costs.values() if cost.task == task]
        for name in params.models:
            own = [cost for cost in costs if cost.model == name]
            write(timings / f"{name}.csv", CostRecord, own)
    records_of: dict[str, Any] = {
        f"timings/pretrain/{name}/{seed}": cost
        for (name, seed), cost in results.pretraining_costs.items()
    }
    for (corpus, own), record in results.contamination.items():
        records_of[f"contamination/{corpus}/{own}"] = record
    for path, record in records_of.items():
        (root / "data" / path).parent.mkdir(parents=True, exist_ok=True)
        write_json(root / "data" / f"{path}.json", record)
    for (name, seed), progress in results.progress.items():
        write(root / f"data/progress/history/{name}/{seed}.csv", Step, progress.history)
        write(root / f"data/progress/rates/{name}/{seed}.csv", TriedStep, progress.tries)
    return results


# Fixtures ------------------------------------------------------------------------------------

FOUR = {name: RUNS[name] for name in [*RUNS][:3]} | {"encoder_scientific": RUNS[[*RUNS][5]]}


@pytest.fixture(scope="session")
def results() -> Results:
    """The results of the study."""
    return drawn(raw_params())


@pytest.fixture(scope="session")
def five_seeds() -> Results:
    """The results of four of its models with five pretraining and three fine-tuning seeds."""
    return drawn(raw_params(repeated(FOUR, 5), seeds=[1, 2, 3]))


def with_trials(results: Results, new: Callable[[ScoredTrial], Mapping[str, Any]]) -> Results:
    """Returns results in which trials have other values."""
    return replace(results, trials=[replace(t, **new(t)) for t in results.trials])


def with_baseline_at(results: Results, value: float) -> Results:
    """Returns results in which each task's strongest baseline has this score in all trials."""
    return with_trials(results, lambda t: {"value": value} if t.model in ("crf", "tfidf") else {})


# What the stages record ----------------------------------------------------------------------


def about(task: str) -> dict[str, Any]:
    """Returns the record of prepare_task."""
    return {
        "kind": "tagging" if task == "tag" else "classification",
        "labels": ["B-CODE", "O"] if task == "tag" else ["a", "b", "c"],
        "split_seeds": [],
        "num_examples": {"train": 1200, "validation": 200, "test": NUM_TEST},
    }


def _label(checkpoint: CheckpointKey) -> str:
    """Returns a name of the checkpoint, for streams of random numbers."""
    name, seed = checkpoint
    return name if seed == 1 else f"{name}_{seed}"


def _effect(task: str, checkpoint: CheckpointKey) -> float:
    """Returns what a checkpoint adds to the score of a task, besides the noise of its trials."""
    name, seed = checkpoint
    noise = 0.0 if seed == 1 else stream(seed, task, name).normal(0, 0.01)
    return EFFECTS.get(name, 0.0) + noise


def _of_models(params: Params, task: str) -> list[ScoredTrial]:
    finetune = params.finetune
    keys = product(params.checkpoints, finetune.methods, finetune.label_budgets, finetune.seeds)
    return [_trial(params, TrialKey(*c, task, m, str(b), seed)) for c, m, b, seed in keys]


def _trial(params: Params, key: TrialKey) -> ScoredTrial:
    entry, checkpoint = params.models[key.model], CheckpointKey(key.model, key.pretrain_seed)
    objective, corpus = entry.learnt
    name, d_model = entry.architecture["name"], entry.architecture.get("d_model", 192)
    rng = stream(key.finetune_seed, key.task, _label(checkpoint), key.method, key.label_budget)
    value = 0.5 + _effect(key.task, checkpoint) + (0.0 if key.label_budget == "200" else 0.05)
    value += rng.normal(0, 0.015) - (0.05 if key.method == "linear_probe" else 0.0)
    noise = stream(key.finetune_seed, "validation", str(checkpoint)).normal(0, 0.01)
    num_params = WEIGHTS[d_model] + 1000 * (name == "phi")
    tokens = 4_096_000 * (objective != "none")
    lineage: dict[str, Any] = {"lineage_tokens": tokens, "lineage_bytes": 4 * tokens}
    lineage["lineage_flops"] = 6 * num_params * tokens
    if entry.is_public:  # its original pretraining is unknown
        lineage.update(dict.fromkeys(lineage))
    origin: dict[str, Any] = {
        "architecture": name,
        "used_architecture": name,
        "objective": objective,
    }
    sizes: dict[str, Any] = {"d_model": d_model, "design": f"{name} of {d_model}"}
    sizes |= {"num_layers": 4, "num_params": num_params, "num_pretrained_params": num_params}
    accuracy = min(value + 0.2, 1.0)
    is_full, settings = key.method == "full", params.finetune.methods[key.method].training
    fitted: dict[str, Any] = {"converged": 1, "C": 0.1, "num_tries": 6, "at_edge": 0}
    if settings:
        fitted = {"lr": settings.rates[0], "best_epoch": 5, "num_epochs": 6}
        fitted |= {"num_tries": len(settings.rates)}
    return ScoredTrial(
        **key._asdict(),
        **fitted,
        **lineage,
        **origin,
        **sizes,
        corpus=corpus,
        num_trained_params=num_params if is_full else 1544,
        finetune_flops=(6 if is_full else 2) * num_params * 64_000,
        weights_bytes=4 * num_params + (0 if is_full else 4 * 1544),
        last_train_loss=0.1,
        metric=METRICS[key.task],
        value=value,
        other_metric="accuracy",
        other_value=accuracy,
        accuracy=accuracy,
        mean_probability=min(value + 0.3, 1.0),
        calibration_error=0.1,
        validation_score=value + noise,
    )


def _of_baselines(params: Params, task: str) -> list[ScoredTrial]:
    """Returns a trial for each draw of labelled rows. Their mean score does not depend on the
    number of seeds."""
    means = {"majority": 0.04, "tfidf": 0.57, "crf": 0.53}
    trials = []
    for name, budget in product(params.baselines, params.finetune.label_budgets):
        if name == ("tfidf" if task == "tag" else "crf"):
            continue  # each fits another kind of task
        draws = distinct_draws(
            budget,
            pretrain_seeds=params.pretrain_seeds,
            finetune_seeds=params.finetune.seeds,
            about=about(task),
            task=task,
        )
        middle = np.mean([seed for _, seed in draws])
        for pretrain_seed, seed in draws:
            value = means[name] + (0.0 if name == "majority" else 0.004 * float(seed - middle))
            key = TrialKey(name, pretrain_seed, task, CLASSICAL, str(budget), seed)
            about_trial: dict[str, Any] = {"architecture": name, "used_architecture": name}
            about_trial |= {"metric": METRICS[task], "other_metric": "accuracy", "num_tries": 4}
            about_trial |= dict.fromkeys(("value", "other_value", "validation_score"), value)
            trials.append(ScoredTrial(**key._asdict(), **about_trial))
    return trials


def _rows(trial: ScoredTrial, *, noisy: bool) -> np.ndarray:
    """Returns scores of test rows. Some rows are hard for all models, others for one model."""
    name = trial.model if trial.method == CLASSICAL else _label(trial.checkpoint)
    model, seed = f"{name} {trial.method}", str(trial.finetune_seed)
    # The predictions of the commonest class do not depend on the seed.
    keys = {(trial.task,): 0.3, (trial.task, model): 0.15}
    keys |= {} if trial.model == "majority" else {(trial.task, model, seed): 0.2}
    noise = sum(s * stream(1, "rows", *key).normal(size=NUM_TEST) for key, s in keys.items())
    noise = noise - np.mean(noise) if noisy else np.zeros(NUM_TEST)
    return np.asarray(trial.value + noise, dtype=np.float32)


def _curve(trial: ScoredTrial) -> list[EpochRecord]:
    return [
        EpochRecord(
            **trial.key._asdict(),
            lr=trial.lr,
            epoch=epoch,
            train_loss=2.0 / epoch,
            validation_metric=trial.value * (1 - 0.5 / epoch**1.5),
            validation_loss=1.0 + 0.1 * abs(epoch - 3),
        )
        for epoch in range(1, 7)
    ]


def _cost(trial: ScoredTrial) -> CostRecord:
    """Returns the cost of a trial; speed is measured for the first fine-tuning seed alone."""
    costs: dict[str, Any] = {"wall_time_s": 2.5, "processor_time_s": 2.0}
    costs |= {"peak_memory_bytes": 400_000_000}
    speed: dict[str, Any] = {"latency_s": 0.004, "texts_per_s": 800.0, "tokens_per_s": 16_000.0}
    if trial.finetune_seed != 1:
        speed |= dict.fromkeys(speed)
    machine: dict[str, Any] = {"hardware": "A processor & more", "threads": 1, "side_by_side": 2}
    return CostRecord(**trial.key._asdict(), **costs, **speed, **machine)


def _progress(params: Params, key: CheckpointKey) -> Progress:
    """Returns the progress of a pretraining, whose loss falls with the root of the tokens."""
    entry = params.models[key.model]
    offset = stream(key.pretrain_seed, str(entry.architecture), entry.corpus).random()
    steps = [
        Step(
            step=step,
            tokens=4096 * step,
            flops=10**9 * step,
            loss=4 + offset + 3 / step**0.5,
            lr=0.003,
            validation_loss=4.1 + offset + 3 / step**0.5 if step % 200 == 0 else None,
        )
        for step in range(20, 1001, 20)
    ]
    return Progress([] if entry.objective["name"] == "none" else steps, [])


def _amount(corpus: str) -> dict[str, Any]:
    """Returns how much text a corpus has. A corpus ``NAME_half`` has half of the text of
    ``NAME``; all others have equally many tokens."""
    text, *half = corpus.split("_half")
    return {"tokens": 500_000 if half else 1_000_000, "sha256": text}


def _example(task: str, models: list[str]) -> dict[str, Any]:
    votes = [
        {"prediction": "array", "right": True, "models": models[:1]},
        {"prediction": "int <b>", "right": False, "models": models[1:]},
    ]
    row = {"id": f"{task} 1", "chosen": "any", "input": {"text": "a list & <i>more</i>"}}
    return row | {"answer": "array", "predictions": votes}


def _confused(trials: list[ScoredTrial]) -> list[ConfusionRecord]:
    """Returns confusions: of 90 rows of class ``b``, 30 are predicted as ``c``."""
    counts = {("a", "a"): 100, ("b", "b"): 60, ("b", "c"): 30, ("c", "c"): 98, ("c", "a"): 2}
    return [*records((trial.key.cell, Counter(counts)) for trial in trials)]


def _reliable(trials: list[ScoredTrial]) -> list[ReliabilityRecord]:
    """Returns one bin for each cell, whose predictions are overconfident by 0.1."""
    numbers = {"number": 300, "mean_probability": 0.7, "accuracy": 0.6}
    cells = dict.fromkeys((trial.model, trial.method, trial.label_budget) for trial in trials)
    return [
        ReliabilityRecord(model=model, method=method, label_budget=budget, **numbers)
        for model, method, budget in cells
    ]


def _covered(trials: list[ScoredTrial]) -> list[CoverageRecord]:
    """Returns the coverage of trials with a temperature: at 95 % accuracy they answer 120 of 300
    rows, at 99 % none."""
    errors = {"temperature": 1.25, "calibration_error": 0.1, "calibrated_error": 0.04}
    numbers: dict[str, Any] = {"num_validation": 100, "num_test": 300} | errors
    stated: list[dict[str, Any]] = [
        {"stated_accuracy": 0.95, "min_confidence": 0.8, "num_answered": 120, "num_right": 111},
        {"stated_accuracy": 0.99, "min_confidence": None, "num_answered": 0, "num_right": 0},
    ]
    pairs = product((trial.key for trial in trials), stated)
    return [CoverageRecord(**key._asdict(), **numbers, **of_one) for key, of_one in pairs]


def _inputs(params: Params, task: str) -> list[InputRecord]:
    numbers = {"rows": 200, "rows_cut": 4, "tokens": 6000, "tokens_cut": 30}
    read_at = "last subword of a word" if task == "tag" else "mean of tokens"
    return [
        InputRecord(**checkpoint._asdict(), split=split, read_at=read_at, **numbers)
        for checkpoint in params.checkpoints
        for split in ("train", "validation", "test")
    ]


def _estimates(params: Params, task: str) -> list[EstimateRecord]:
    """Returns estimates: H-scores rank the models by their effects, LogME in the reverse order;
    H-scores are undefined on the task ``section``."""
    estimates = []
    for checkpoint, estimate in product(params.checkpoints, ESTIMATES):
        undefined = estimate == "h_score" and task == "section"
        value = 1 + (-1 if estimate == "logme" else 1) * _effect(task, checkpoint)
        numbers: dict[str, Any] = {"num_rows": 200, "num_states": 200, "flops": 10**9}
        numbers |= {"value": None if undefined else value, "reason": "a reason" * undefined}
        estimates.append(EstimateRecord(**checkpoint._asdict(), estimate=estimate, **numbers))
    return estimates
