"""The evaluated trials of a whole study, drawn from known effects, for tests of the report.

Two architectures pretrained and from scratch, a smaller size, three training sets, two methods,
five seeds and the baselines, on three tasks.
"""

import json
import math
from collections import Counter
from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from stages.core.artifacts import write_json, write_jsonl
from stages.core.keys import RunKey, TrialKey
from stages.core.params import Params, Run
from stages.core.seeding import stream
from stages.evaluation.calibration import CoverageRecord, ReliabilityRecord
from stages.evaluation.confusion import ConfusionRecord, records
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
from stages.findings.models import Step, TriedStep
from stages.tasks._labelled_rows import distinct_draws
from tests.smoke import write_plans

TRAINING = {
    "num_steps": 1000,
    "batch_rows": 32,
    "micro_batch_rows": 32,
    "max_tokens": 128,
    "lr": 0.003,
    "warmup_fraction": 0.1,
    "decay": "linear",
    "weight_decay": 0.01,
    "max_grad_norm": 1.0,
    "num_validations": 5,
}
ADAPTATION = {
    "num_epochs": 6,
    "min_steps": 0,
    "patience": "none",
    "batch_examples": 16,
    "lr": 0.001,
    "warmup_fraction": 0.1,
    "decay": "linear",
    "weight_decay": 0.01,
    "max_grad_norm": 1.0,
}
HARDWARE = "A processor & more"
METRICS = {"tag": "entity_f1", "type": "macro_f1", "section": "macro_f1"}


FAMILY = {"encoder": "modernbert", "decoder": "phi", "encoder_decoder": "bart"}
ARCHITECTURE = {family: name for name, family in FAMILY.items()}


def run(model: str, objective: str, corpus: str = "all", d_model: int = 192, seed: int = 1) -> dict:
    return {
        "corpus": corpus,
        "tokenizer": "unigram",
        "parent": "none",
        "architecture": {
            "name": FAMILY.get(model, model),
            "d_model": d_model,
            **({} if model == "bilstm" else {"num_layers": 4, "num_heads": 4}),
        },
        "objective": {"name": objective},
        "training": dict(TRAINING),
        "seeds": [seed],
    }


def kind_of(entry: Run) -> str:
    """Returns the architecture of a run's family."""
    name = entry.architecture["name"]
    return ARCHITECTURE.get(name, name)


def public(path: str, revision: str = "0" * 40, seed: int = 1) -> dict:
    model = {"name": "hub", "path": path, "revision": revision}
    return run("hub", "none", "none", seed=seed) | {"architecture": model, "tokenizer": "none"}


def further(path: str, objective: str, **settings: Any) -> dict:
    """A public checkpoint that is pretrained further."""
    learns = {"tokenizer": "own", "corpus": "all", "objective": {"name": objective}}
    return public(path) | learns | settings


RUNS = {
    "encoder_mlm": run("encoder", "mlm"),
    "encoder_scratch": run("encoder", "none", "none"),
    "decoder_causal": run("decoder", "causal"),
    "decoder_scratch": run("decoder", "none", "none"),
    "encoder_small": run("encoder", "mlm", d_model=96),
    "encoder_scientific": run("encoder", "mlm", "scientific"),
    "encoder_deep_learning": run("encoder", "mlm", "deep_learning"),
}
# What each run adds to 50 points. Fine-tuning seeds add noise of 1.5 points, and pretraining seeds
# after the first add noise of 1 point.
EFFECTS = {
    "encoder_mlm": 0.06,
    "encoder_scratch": -0.12,
    "decoder_causal": -0.01,
    "decoder_scratch": -0.15,
    "encoder_small": 0.052,
    "encoder_scientific": 0.055,
    "encoder_deep_learning": 0.02,
}


NUM_TEST = 1000


def repeated(runs: Mapping[str, Any], seeds: int) -> dict[str, Any]:
    """Returns the runs, each pretrained with the seeds from 1 to ``seeds``."""
    listed = [*range(1, seeds + 1)]
    return {name: deepcopy(entry) | {"seeds": listed} for name, entry in runs.items()}


def raw_params(runs: Mapping[str, Any] = RUNS) -> dict[str, Any]:
    """Returns the arguments of ``Params``, in which every setting of a study has its value."""
    source = {"name": "files", "path": "texts"}
    task = {"source": source, "num_train": 1000, "num_validation": 200, "num_test": 500, "seed": 1}
    return {
        "study": "synthetic",
        "title": None,
        "compute": {
            "device": "cpu",
            "precision": "float32",
            "compile": False,
            "threads": 2,
            "trial_threads": 1,
        },
        "distributed": {"devices": 1, "num_nodes": 1, "strategy": "ddp"},
        "corpora": {
            name: {"source": source, "max_tokens": "all", "decontaminate_against": "none"}
            for name in ("all", "scientific", "deep_learning")
        },
        "tokenizers": {
            "unigram": {
                "corpus": "all",
                "algorithm": "unigram",
                "vocab_size": 4096,
                "max_sentences": 1000,
            }
        },
        "tasks": {
            name: {
                "task": {"name": "tagging" if name == "tag" else "classification"},
                **deepcopy(task),
            }
            for name in METRICS
        },
        "models": deepcopy(dict(runs)),
        "pretrain": {"matched": "tokens", "reference": next(iter(runs))},
        "baselines": {
            "majority": {"name": "majority"},
            "tfidf": {"name": "tfidf"},
            "crf": {"name": "crf"},
        },
        "finetune": {
            "methods": {
                "full": {"method": {"name": "full"}, "training": dict(ADAPTATION)},
                "linear_probe": {"method": {"name": "linear_probe"}},
            },
            "label_budgets": [200],
            "seeds": [1, 2, 3, 4, 5],
            "max_tokens": 128,
            "keep_weights": "none",
        },
        "evaluation": {"confidence": 0.95},
    }


def write_study(
    root: Path,
    raw: Mapping[str, Any],
    *,
    score: float | None = None,
    incompatible: Collection[tuple[str, str]] = (),
) -> Params:
    """Writes ``data/`` of a study as its stages leave it; returns its params.

    With ``score``, every trial of every run has this score, in every test row. ``incompatible`` are
    pairs of a run and a method without trials.
    """
    params = Params(**raw)
    skipped = [
        SkippedMethod(run=run, method=method, reason="incompatible") for run, method in incompatible
    ]
    for task in params.tasks:
        trials, curves = [], []
        estimates = estimates_of(params, task)
        for name, entry in params.runs.items():
            costs = []
            for pretrain_seed, method, budget, seed in product(
                entry.seeds,
                params.finetune.methods,
                params.finetune.label_budgets,
                params.finetune.seeds,
            ):
                if (name, method) in incompatible:
                    continue
                checkpoint = RunKey(name, pretrain_seed)
                trial = _trial(params, task, checkpoint, method, budget, seed)
                trial = trial if score is None else replace(trial, value=score)
                first = trial.finetune_seed == params.finetune.seeds[0]
                trials.append(trial)
                curves += _curve(trial) if params.finetune.methods[method].training else []
                costs.append(
                    CostRecord(
                        **trial.key._asdict(),
                        wall_time_s=2.5,
                        peak_memory_bytes=400_000_000,
                        processor_time_s=2.0,
                        latency_s=0.004 if first else None,
                        texts_per_s=800.0 if first else None,
                        tokens_per_s=16_000.0 if first else None,
                        hardware=HARDWARE,
                        threads=1,
                        side_by_side=2,
                    )
                )
            write(root / "data/timings/finetune" / task / f"{name}.csv", CostRecord, costs)
        for name, budget in product(params.baselines, params.finetune.label_budgets):
            if name != ("tfidf" if task == "tag" else "crf"):
                trials += _baselines(params, task, name, budget)
        write(root / "data/evaluated" / task / "trials.csv", ScoredTrial, trials)
        scored = rows_of(trials)
        if score is not None:
            scored[:] = np.array([[trial.value] for trial in trials])
        np.save(root / "data/evaluated" / task / "row_scores.npy", scored)
        np.save(root / "data/evaluated" / task / "row_groups.npy", np.empty(0, dtype=np.int64))
        write(root / "data/evaluated" / task / "history.csv", EpochRecord, curves)
        write(root / "data/evaluated" / task / "skipped.csv", SkippedMethod, skipped)
        write(root / "data/evaluated" / task / "inputs.csv", InputRecord, read_of(task, params))
        write(root / "data/evaluated" / task / "estimates.csv", EstimateRecord, estimates)
        write_json(root / "data/evaluated" / task / "task.json", about(task))
        write_jsonl(root / "data/evaluated" / task / "examples.jsonl", looked_at(task, params))
        near = {"num_test": NUM_TEST, "number": 5, "similarity": 0.8, "test": "a b", "train": "b a"}
        write_json(root / "data/evaluated" / task / "near_duplicates.json", near)
        write(root / "data/evaluated" / task / "confusion.csv", ConfusionRecord, confused(trials))
        reliable = [_reliable(trial) for trial in trials[:: len(params.finetune.seeds)]]
        write(root / "data/evaluated" / task / "reliability.csv", ReliabilityRecord, reliable)
        runs_trials = [trial for trial in trials if trial.method != CLASSICAL]
        covered = [record for trial in runs_trials for record in _covered(trial)]
        write(root / "data/evaluated" / task / "coverage.csv", CoverageRecord, covered)
    for checkpoint in params.checkpoints:
        name, seed = checkpoint
        path = root / "data/timings/pretrain" / name / f"{seed}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        cost = {
            "wall_time_s": 61.5,
            "peak_memory_bytes": 900_000_000,
            "tokens_per_s": 14000.0,
            "processor_time_s": 120.0,
            "device": "cpu",
            "hardware": HARDWARE,
            "threads": 2,
        }
        path.write_text(json.dumps(cost))
        write_progress(root / "data/progress", checkpoint, params.runs[name])
    for corpus in params.corpora:
        path = root / "data/contamination" / corpus / "unigram.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, overlapping(params))
        path = root / "data/likeness" / corpus / "unigram.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, alike(params, corpus))
    write_plans(params, root)
    return params


def write_progress(folder: Path, checkpoint: RunKey, entry: Run) -> None:
    """Writes the progress of a pretraining as the stage leaves it. The loss falls with the root of
    the tokens."""
    name, seed = checkpoint
    trained, decoder = entry.objective["name"] != "none", entry.architecture["name"] == "phi"
    offset = stream(seed, str(entry.architecture), entry.corpus).random()
    steps = [
        Step(
            step=step,
            tokens=4096 * step,
            flops=40_000_000 * entry.architecture.get("d_model", 192) * step,
            loss=(loss := 4 + offset + 3 / step**0.5),
            lr=0.003,
            validation_loss=loss + 0.1 if step % 200 == 0 else None,
        )
        for step in range(20, 1001, 20)
        if trained
    ]
    write(folder / "history" / name / f"{seed}.csv", Step, steps)
    tries = _tries(entry, steps) if trained else []
    write(folder / "rates" / name / f"{seed}.csv", TriedStep, tries)
    text = {"passage": "a list & <i>more</i>", "prompt": "a list &", "written": "<b>of</b> …"}
    nothing = {"passage": "", "prompt": "", "written": "It begins"}
    samples = folder / "samples" / name / f"{seed}.jsonl"
    samples.parent.mkdir(parents=True, exist_ok=True)
    write_jsonl(samples, [nothing, text] if trained and decoder else [])


def _tries(entry: Run, steps: list[Step]) -> list[TriedStep]:
    """Returns the tried learning rates. If there are several, the second is kept, and training
    diverges at the third and all later ones."""
    rates = entry.training.rates
    if len(rates) == 1:
        return []
    kept = [TriedStep(rate=rates[1], kept=1, **asdict(step)) for step in steps]
    worse: dict[str, Any] = asdict(steps[-1]) | {
        "loss": steps[-1].loss + 0.5,
        "validation_loss": (steps[-1].validation_loss or 0) + 0.5,
    }
    converged = [TriedStep(rate=rates[0], kept=0, **worse), *kept]
    lost: dict[str, Any] = asdict(steps[0]) | {"loss": math.nan, "validation_loss": None}
    return converged + [TriedStep(rate=rate, kept=0, **lost) for rate in rates[2:]]


def overlapping(params: Params) -> dict[str, Any]:
    """Returns the record of measure_contamination."""
    tasks = {task: {"num_test": 1000, "exact": 4, "ngram": 15} for task in params.tasks}
    return {"documents": 900, "tasks": tasks, "removed": {}}


def alike(params: Params, corpus: str) -> dict[str, Any]:
    """Returns the record of measure_likeness. A corpus ``NAME_half`` has half of the text of
    ``NAME``; all others have equally many tokens. The tasks are most like the first corpus."""
    text, *_ = corpus.split("_half")
    place = 1 + list(params.corpora).index(text)
    tokens = 1_000_000 // (2 if "_half" in corpus else 1)
    of_task = {"words": 9000, "similarity": 0.9 - 0.02 * place}
    return {
        "tokens": tokens,
        "sha256": text,
        "documents": 900,
        "words": 600_000,
        "types": 20_000,
        "bytes": 4_000_000,
        "tasks": dict.fromkeys(params.tasks, of_task),
    }


def looked_at(task: str, params: Params) -> list[dict[str, Any]]:
    """Returns the examples of predictions that evaluate writes."""
    runs = [*params.runs]
    votes = [
        {"prediction": "array", "right": True, "models": runs[:1]},
        {"prediction": "int <b>", "right": False, "models": runs[1:]},
    ]
    row = {"id": f"{task} 1", "chosen": "any", "input": {"text": "a list & <i>more</i>"}}
    return [row | {"answer": "array", "predictions": votes}]


def confused(trials: list[ScoredTrial]) -> list[ConfusionRecord]:
    """Returns the confusions that evaluate writes: of 90 rows of class ``b``, 30 are predicted as
    ``c``."""
    counts = {("a", "a"): 100, ("b", "b"): 60, ("b", "c"): 30, ("c", "c"): 98, ("c", "a"): 2}
    return list(records((trial.key.cell, Counter(counts)) for trial in trials))


def _reliable(trial: ScoredTrial) -> ReliabilityRecord:
    """Returns the only bin of a cell whose predictions are overconfident by 0.1."""
    return ReliabilityRecord(
        model=trial.model,
        method=trial.method,
        label_budget=trial.label_budget,
        number=300,
        mean_probability=0.7,
        accuracy=0.6,
    )


def _covered(trial: ScoredTrial) -> list[CoverageRecord]:
    """Returns the coverage of a trial with a temperature: at 95 % accuracy it answers 120 of 300
    rows, at 99 % none."""
    return [
        CoverageRecord(
            **trial.key._asdict(),
            num_validation=100,
            num_test=300,
            temperature=1.25,
            calibration_error=0.1,
            calibrated_error=0.04,
            stated_accuracy=stated,
            min_confidence=0.8 if stated < 0.99 else None,
            num_answered=120 if stated < 0.99 else 0,
            num_right=111 if stated < 0.99 else 0,
        )
        for stated in (0.95, 0.99)
    ]


def read_of(task: str, params: Params) -> list[InputRecord]:
    """Returns the inputs that evaluate writes: a decoder reads a word's label at its last
    subword."""

    def read_at(run: Run) -> str:
        decodes = run.architecture["name"] == "phi"
        if task == "tag":
            return f"{'last' if decodes else 'first'} subword of a word"
        return "last token" if decodes else "mean of tokens"

    return [
        InputRecord(
            **checkpoint._asdict(),
            split=split,
            read_at=read_at(params.runs[checkpoint.run]),
            rows=200,
            rows_cut=4,
            tokens=6000,
            tokens_cut=30,
        )
        for checkpoint in params.checkpoints
        for split in ("train", "validation", "test")
    ]


def effect_of(task: str, checkpoint: RunKey) -> float:
    """Returns what a checkpoint adds to the score of a task, besides the noise of its trials."""
    name, seed = checkpoint
    noise = 0.0 if seed == 1 else stream(seed, task, name).normal(0, 0.01)
    return EFFECTS.get(name, 0.0) + noise


def estimates_of(params: Params, task: str) -> list[EstimateRecord]:
    """Returns estimates: H-scores rank the models by their effects, LogME in the reverse order;
    H-scores are undefined on the task ``section``."""
    estimates = []
    for checkpoint, estimate in product(params.checkpoints, ESTIMATES):
        sign = -1 if estimate == "logme" else 1
        undefined = estimate == "h_score" and task == "section"
        value = 1 + sign * effect_of(task, checkpoint)
        estimates.append(
            EstimateRecord(
                **checkpoint._asdict(),
                estimate=estimate,
                value=None if undefined else value,
                num_rows=200,
                num_states=200,
                flops=0 if undefined else 40_000_000_000,
                reason="a reason" if undefined else "",
            )
        )
    return estimates


def about(task: str) -> dict[str, Any]:
    """Returns the record of prepare_task."""
    return {
        "task": {"name": "tagging" if task == "tag" else "classification"},
        "kind": "tagging" if task == "tag" else "classification",
        "labels": ["B-CODE", "O"] if task == "tag" else ["a", "b", "c"],
        "split_seeds": [],
        "num_examples": {"train": 1200, "validation": 200, "test": NUM_TEST},
        "duplicates_removed": {"train": 3, "validation": 0},
    }


def rows_of(trials: list[ScoredTrial]) -> np.ndarray:
    """Returns scores of test rows. Some rows are hard for all runs, others for one run."""

    def normal(*key: str) -> np.ndarray:
        return stream(1, "rows", *key).normal(size=NUM_TEST)

    scores = []
    for trial in trials:
        name = trial.run if trial.method == CLASSICAL else _label(trial.checkpoint)
        run, seed = f"{name} {trial.method}", str(trial.finetune_seed)
        noise = 0.3 * normal(trial.task) + 0.15 * normal(trial.task, run)
        if trial.run != "majority":  # its predictions do not depend on the seed
            noise += 0.2 * normal(trial.task, run, seed)
        scores.append(trial.value + noise - noise.mean())
    return np.array(scores, dtype=np.float32)


def _trial(
    params: Params, task: str, checkpoint: RunKey, method: str, budget: int | str, seed: int
) -> ScoredTrial:
    entry = params.runs[checkpoint.run]
    objective, corpus = entry.learnt
    pretrained = objective != "none"
    rng = stream(seed, task, _label(checkpoint), method, str(budget))
    more_labels = 0.0 if budget == 200 else 0.05
    value = 0.5 + effect_of(task, checkpoint) + more_labels + rng.normal(0, 0.015)
    value -= 0.05 if method == "linear_probe" else 0.0
    d_model = entry.architecture.get("d_model", 192)
    num_params = {192: 2_563_072, 96: 812_544, 48: 288_000}[d_model]
    num_params += 1_000 if entry.architecture["name"] == "phi" else 0
    settings = params.finetune.methods[method].training
    return ScoredTrial(
        run=checkpoint.run,
        architecture="encoder" if entry.is_public else kind_of(entry),
        objective=objective,
        method=method,
        task=task,
        corpus=corpus,
        pretrain_seed=checkpoint.pretrain_seed,
        finetune_seed=seed,
        label_budget=str(budget),
        num_params=num_params,
        num_trained_params=num_params if method == "full" else 1544,
        pretrain_tokens=None if entry.as_published else 4_096_000 if pretrained else 0,
        pretrain_flops=None if entry.as_published else 6 * num_params * 4_096_000 * pretrained,
        lineage_tokens=None if entry.is_public else 4_096_000 if pretrained else 0,
        lineage_flops=None if entry.is_public else 6 * num_params * 4_096_000 * pretrained,
        finetune_flops=6 * num_params * 64_000 if method == "full" else 2 * num_params * 64_000,
        lr=settings.rates[0] if settings else 0.0,
        d_model=d_model,
        num_layers=4,
        best_epoch=5 if settings else 0,
        weights_bytes=4 * num_params + (0 if method == "full" else 4 * 1544),
        num_pretrained_params=num_params,
        used_architecture="encoder" if entry.is_public else kind_of(entry),
        design=f"{entry.architecture['name']} of {d_model}",
        lineage_bytes=None if entry.is_public else 16_384_000 if pretrained else 0,
        num_epochs=6 if settings else 0,
        num_steps=78,
        last_train_loss=0.1,
        best_is_last=0,
        chosen_in_warmup=0,
        still_improving=0,
        converged=None if settings else 1,
        C=None if settings else 0.1,
        num_tries=len(settings.rates) if settings else 6,
        at_edge=None if settings else 0,
        metric=METRICS[task],
        value=value,
        other_metric="accuracy",
        other_value=min(value + 0.2, 1.0),
        accuracy=min(value + 0.2, 1.0),
        mean_probability=min(value + 0.3, 1.0),
        calibration_error=0.1,
        validation_score=value + stream(seed, "validation", str(checkpoint)).normal(0, 0.01),
    )


def _label(checkpoint: RunKey) -> str:
    """Returns a name of the checkpoint, for streams of random numbers."""
    name, seed = checkpoint
    return name if seed == 1 else f"{name}_{seed}"


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


def _baselines(params: Params, task: str, name: str, budget: int | str) -> list[ScoredTrial]:
    """Returns a trial for each draw of labelled rows. Their mean score does not depend on the
    number of seeds."""
    draws = distinct_draws(
        budget,
        pretrain_seeds=params.pretrain_seeds,
        finetune_seeds=params.finetune.seeds,
        about=about(task),
        task=task,
    )
    seeds = [seed for _, seed in draws]
    spread = 0.0 if name == "majority" else 0.004
    offsets = [spread * (seed - sum(seeds) / len(seeds)) for seed in seeds]
    return [
        _baseline(task, name, str(budget), *draw, offset)
        for draw, offset in zip(draws, offsets, strict=True)
    ]


def _baseline(
    task: str, name: str, budget: str, pretrain_seed: int, finetune_seed: int, offset: float
) -> ScoredTrial:
    value = {"majority": 0.04, "tfidf": 0.57, "crf": 0.53}[name] + offset
    key = TrialKey(name, pretrain_seed, task, CLASSICAL, budget, finetune_seed)
    fields: dict[str, Any] = {**key._asdict(), "architecture": name, "used_architecture": name}
    scores: dict[str, Any] = {
        "metric": METRICS[task],
        "value": value,
        "validation_score": value,
        "num_tries": 4,
    }
    return ScoredTrial(**fields, **scores, other_metric="accuracy", other_value=value)
