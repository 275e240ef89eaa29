"""Studies whose truth is planted, run from fine-tuning to the contrasts of the report.

A text is a few words, each of which speaks for one of two labels; the majority decides the label of
the text. A checkpoint is a small backbone with random weights that knows some of the words: one
dimension of their embeddings says for which label they speak. Each pretraining seed draws the known
words; their expected share is planted, as the effect of a corpus, a size or an architecture. Groups
that know and read equally truly do not differ, and other groups truly do.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from stages import evaluate, finetune, fit_baseline
from stages.core import paths
from stages.core.artifacts import sha256, write_json, write_jsonl
from stages.core.keys import RunKey
from stages.core.params import Params, Run
from stages.core.plans import BaselinePlan, EvaluationPlan, FinetunePlan
from stages.core.seeding import stream, torch_stream
from stages.findings.results import Results, load
from stages.models._backbone import MODELS, Backbone
from stages.models._transformer import TransformerBackbone
from stages.training.checkpoint import WEIGHTS, save_weights
from stages.trials.estimates import Estimated
from tests.small import small_tokenizer
from tests.smoke import plans, write_plans
from tests.synthetic_study import alike, overlapping, raw_params, run, write_progress

TASK, LABELS = "polarity", ("against", "for")
NUM_WORDS, WORDS_OF_TEXT = 40, 5
NUM_TRAIN, NUM_VALIDATION, NUM_TEST = 600, 60, 300
STD = 0.1  # of random weights
STRENGTH = 0.4  # of a known word's polarity in its embedding
D_FF = 16  # units beyond these are dead
DIMENSIONS = {"d_model": 8, "num_layers": 1, "num_heads": 2, "d_ff": D_FF}
SEEDS_OF_A_STUDY = 1000  # at most; no two studies share a seed

PROBE = {"linear_probe": {"method": {"name": "linear_probe", "C": [0.01, 0.1, 1.0]}}}
FULL = {
    "full": {
        "method": {"name": "full"},
        "training": {
            "num_epochs": 5,
            "min_steps": 0,
            "patience": "none",
            "batch_examples": 16,
            "lr": 0.01,
            "warmup_fraction": 0.1,
            "decay": "linear",
            "weight_decay": 0.01,
            "max_grad_norm": 1.0,
        },
    }
}


@dataclass(frozen=True)
class Planted:
    """A group of runs: its level on each axis, and the share of all words that it knows."""

    knows: float
    corpus: str = "first"
    architecture: str = "encoder"
    d_ff: int = D_FF

    @property
    def is_pretrained(self) -> bool:
        return self.corpus != "none"

    @property
    def truth(self) -> tuple[float, str]:
        """A value that is equal for groups that truly do not differ: a probe reads the encoder of
        an encoder-decoder, and more dead units change nothing."""
        reads = "decoder" if self.architecture == "decoder" else "encoder"
        return self.knows, reads if self.is_pretrained else "none"

    def entry(self, seeds: list[int]) -> dict[str, Any]:
        objective = {"encoder": "mlm", "decoder": "causal", "encoder_decoder": "denoising"}
        learns = objective[self.architecture] if self.is_pretrained else "none"
        model = {"name": self.architecture, **DIMENSIONS, "d_ff": self.d_ff}
        return run(self.architecture, learns, self.corpus) | {"model": model, "seeds": seeds}


GROUPS = {
    "reference": Planted(0.5),
    "other_corpus": Planted(0.5, corpus="second"),
    "better_corpus": Planted(0.9, corpus="third"),
    "encoder_decoder": Planted(0.5, architecture="encoder_decoder"),
    "decoder": Planted(0.3, architecture="decoder"),
    "wider": Planted(0.5, d_ff=2 * D_FF),
    "wider_and_better": Planted(0.7, d_ff=3 * D_FF),
    "scratch": Planted(0.0, corpus="none"),
}


@dataclass(frozen=True)
class Design:
    """The seeds, methods, label budgets and groups of a study."""

    pretrain_seeds: int
    finetune_seeds: int
    methods: tuple[str, ...] = ("linear_probe",)
    label_budgets: tuple[int, ...] = (96,)
    groups: tuple[str, ...] = tuple(GROUPS)


@cache
def words() -> dict[str, int]:
    """Returns words of one token each, with the label that each speaks for."""
    tokenizer = small_tokenizer()
    regular = tokenizer.regular_ids
    pieces = [tokenizer.shown([i]) for i in regular[tokenizer.starts_word[regular]].tolist()]
    whole = [w for w in pieces if len(w) > 2 and w.isalpha() and len(tokenizer.encode([w])[0]) == 1]
    return {word: i % 2 for i, word in enumerate(whole[:NUM_WORDS])}


def results_of(design: Design, study: int, folder: Path) -> Results:
    """Runs a whole study in a new folder; rows, seeds and checkpoints differ between studies. No
    contrast reads estimates or bits of texts, which would take a third of the time."""
    folder.mkdir(parents=True)
    nothing = {"text_bits": lambda *_: None, "estimated": lambda *_: Estimated([], 0.0)}
    with _inside(folder), patch.multiple(finetune, **nothing):
        params = _written(design, study)
        planned = plans(params)
        finetune_plan, baseline_plan = planned["finetune", TASK], planned["fit_baseline", TASK]
        evaluation_plan = planned["evaluate", TASK]
        assert isinstance(finetune_plan, FinetunePlan)
        assert isinstance(baseline_plan, BaselinePlan)
        assert isinstance(evaluation_plan, EvaluationPlan)
        finetune.main(finetune_plan, TASK)
        fit_baseline.main(baseline_plan, TASK)
        evaluate.main(evaluation_plan, TASK)
        return load(params)


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _written(design: Design, study: int) -> Params:
    """Writes what ``finetune`` and the stages after it read."""
    params = _params(design, study)
    _write_task(study)
    write_plans(params)
    for checkpoint in params.checkpoints:
        entry = params.runs[checkpoint.run]
        _write_checkpoint(checkpoint, entry)
        write_progress(paths.PROGRESS, checkpoint, entry)
    for corpus in params.corpora:
        for folder, measured in (
            (paths.CONTAMINATION, overlapping(params)),
            (paths.LIKENESS, alike(params, corpus)),
        ):
            (folder / corpus).mkdir(parents=True)
            write_json(folder / corpus / "unigram.json", measured)
    return params


def _params(design: Design, study: int) -> Params:
    seeds = [SEEDS_OF_A_STUDY * study + p for p in range(1, design.pretrain_seeds + 1)]
    runs = {name: GROUPS[name].entry(seeds) for name in design.groups}
    raw = raw_params(runs)
    (corpus, *_), (task, *_) = raw["corpora"].values(), raw["tasks"].values()
    corpora = {group.corpus for group in GROUPS.values() if group.is_pretrained}
    raw["compute"] |= {"threads": 1, "trial_threads": 1}
    raw["corpora"] = {name: corpus for name in sorted(corpora)}
    raw["tokenizers"]["unigram"] |= {"corpus": "first", "vocab_size": small_tokenizer().vocab_size}
    raw["tasks"] = {TASK: task | {"task": {"name": "classification"}}}
    raw["budget"] = {"matched": "none", "reference": next(iter(runs))}
    raw["baselines"] = {"majority": {"name": "majority"}}
    raw["finetune"] |= {
        "methods": {name: (PROBE | FULL)[name] for name in design.methods},
        "label_budgets": [*design.label_budgets],
        "seeds": [*range(1, design.finetune_seeds + 1)],
        "max_tokens": 16,
    }
    return Params(**raw)


def _write_task(study: int) -> None:
    rng, vocabulary = stream(study, "rows"), [*words()]
    folder = paths.examples(TASK)
    folder.mkdir(parents=True)
    numbers = {"train": NUM_TRAIN, "validation": NUM_VALIDATION, "test": NUM_TEST}
    for split, number in numbers.items():
        drawn = rng.integers(NUM_WORDS, size=(number, WORDS_OF_TEXT))
        texts = [[vocabulary[i] for i in row] for row in drawn]
        rows = [
            {
                "id": f"{split} {i}",
                "text": " ".join(text),
                "label": LABELS[sum(words()[word] for word in text) > WORDS_OF_TEXT / 2],
            }
            for i, text in enumerate(texts)
        ]
        if split == "test":
            write_jsonl(paths.test_labels(TASK), rows)
            rows = [{k: v for k, v in row.items() if k != "label"} for row in rows]
        write_jsonl(folder / f"{split}.jsonl", rows)
    about = {
        "task": {"name": "classification"},
        "kind": "classification",
        "labels": [*LABELS],
        "metric": "macro_f1",
        "other_metric": "accuracy",
        "num_examples": numbers,
        "split_seeds": [],
        "duplicates_removed": {"train": 0, "validation": 0},
    }
    write_json(folder / "task.json", about)


# Checkpoints --------------------------------------------------------------------------------------


def _write_checkpoint(checkpoint: RunKey, entry: Run) -> None:
    """Writes a checkpoint as ``pretrain`` leaves it."""
    name, seed = checkpoint
    planted = GROUPS[name]
    tokenizer, folder = small_tokenizer(), paths.pretrained(checkpoint)
    backbone = MODELS.build(entry.model, tokenizer.vocab_size, where=f"pretrain.runs.{name}.model")
    _draw(backbone, checkpoint, knows=planted.knows)
    folder.mkdir(parents=True)
    save_weights(backbone, folder / WEIGHTS)
    for file in tokenizer.files:
        shutil.copyfile(file, folder / file.name)
    objective, corpus = entry.learnt
    record = {
        "run": name,
        "pretrain_seed": seed,
        "architecture": backbone.architecture,
        "d_model": backbone.d_model,
        "num_layers": backbone.num_layers,
        "objective": objective,
        "corpus": corpus,
        "has_prefix": False,
        "model": entry.model,
        "settings": entry.model_dump(exclude={"seeds"}) | {"seed": seed},
        "tokenizer": sha256(*tokenizer.files),
        "fingerprint": str(checkpoint),
    }
    write_json(folder / "run.json", record)
    write_json(folder / "metrics.json", _account(backbone, trained=planted.is_pretrained))
    cost = {"wall_time_s": 1.0, "peak_memory_bytes": 1, "tokens_per_s": 1.0, "device": "cpu"}
    cost |= {"processor_time_s": 1.0, "gpu_energy_j": 0.0, "hardware": "none", "threads": 1}
    timing = paths.pretraining_time(checkpoint)
    timing.parent.mkdir(parents=True, exist_ok=True)
    write_json(timing, cost)


def _account(backbone: Backbone, *, trained: bool) -> dict[str, int]:
    work = {"tokens": 4_096_000, "flops": 10**12, "bytes": 16_384_000}
    done = {kind: amount * trained for kind, amount in work.items()}
    return {
        "num_params": sum(weight.numel() for weight in backbone.parameters()),
        "num_embedding_params": sum(w.numel() for w in backbone.lookup_tables.parameters()),
        **{f"pretrain_{kind}": amount for kind, amount in done.items()},
        **{f"lineage_{kind}": amount for kind, amount in done.items()},
    }


@torch.no_grad()
def _draw(backbone: Backbone, checkpoint: RunKey, *, knows: float) -> None:
    """Draws random weights, equal in all architectures, and the words that a checkpoint knows."""
    assert isinstance(backbone, TransformerBackbone)
    name, seed = checkpoint
    # The name of each stream ends with the seed's number in its study, as in the results.
    key = f"{name}_{seed % SEEDS_OF_A_STUDY}"
    generator = torch_stream(seed, "weights", key)
    for name, weight in backbone.named_parameters():
        if weight.dim() >= 2:
            weight.normal_(0, STD, generator=generator)
        else:
            weight.fill_(1.0 if name.endswith("weight") else 0.0)
        if name.endswith("up.weight"):
            weight[D_FF:] = 0
        if name.endswith("down.weight"):
            weight[:, D_FF:] = 0
    tokenizer, rng = small_tokenizer(), stream(seed, "known words", key)
    for word, label in words().items():
        if rng.random() < knows:
            (token,) = tokenizer.encode([word])[0]
            backbone.embedding.tokens.weight[token, 0] = STRENGTH * (2 * label - 1)
