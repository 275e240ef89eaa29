"""Trials of a model with random weights on tasks of a few rows, without a study."""

from pathlib import Path
from typing import Any

from stages.core import paths
from stages.core.artifacts import read_json, write_json, write_jsonl
from stages.core.keys import CheckpointKey
from stages.core.params import Compute, Finetune
from stages.core.plans import FinetunePlan
from stages.trials.groups import run_trials, trial_groups
from stages.trials.runner import Trial
from tests.small import small_entry, small_model, small_tokenizer

CHECKPOINT = CheckpointKey("model", 1)
WORDS = ("class", "function", "method", "string", "list", "value", "name", "object")
TRAINING = {
    "num_epochs": 1,
    "batch_examples": 8,
    "lr": 1e-2,
    "warmup_fraction": 0.0,
    "decay": "linear",
    "weight_decay": 0.0,
    "max_grad_norm": 1.0,
    "optimizer": {"name": "adamw"},
}
LABELS = ["calm", "loud"]
# The kinds of tasks: entry of params.yaml, record in ``task.json``.
TASKS: dict[str, dict[str, Any]] = {
    "classification": {"labels": LABELS, "metric": "macro_f1"},
    "multi_label": {"labels": ["loud", "long"], "metric": "micro_f1"},
    "regression": {"labels": [], "metric": "pearson", "target_mean": 2.0, "target_std": 1.0},
    "tagging": {"labels": ["B-X", "O"], "metric": "entity_f1"},
}


def write_checkpoint(
    family: str, *, large: float = 3.0, objective: str = "mlm", **settings: Any
) -> Any:
    """Writes a checkpoint as pretraining does; returns the model. With the objective "none" its
    trials are from scratch."""
    model, folder = small_model(family, **settings), paths.pretrained(CHECKPOINT)
    for weight in model.parameters():
        if weight.dim() >= 2:
            weight.data.mul_(large)
    folder.mkdir(parents=True)
    model.save(folder)
    small_tokenizer().save_to(folder)
    account = dict.fromkeys(("pretrain_tokens", "pretrain_flops", "lineage_tokens"), 0)
    account |= {"lineage_flops": 0, "lineage_bytes": 0, "num_params": 1}
    write_json(folder / "metrics.json", account)
    record = {
        **CHECKPOINT._asdict(),
        "architecture": model.architecture,
        "d_model": model.d_model,
        "num_layers": model.num_layers,
        "objective": objective,
        "corpus": "prose",
        "has_prefix": False,
        "model": small_entry(family, **settings),
        "settings": {"parent": "none"},
        "tokenizer": "t",
        "fingerprint": "f",
    }
    write_json(folder / "run.json", record)
    return model


def row_of(i: int) -> dict[str, Any]:
    """Returns a row for all tasks; labels depend on its words alone."""
    words = [WORDS[(i * i + 3 * j) % len(WORDS)] for j in range(3 + i % 4)]
    words = [word.upper() if i % 2 else word for word in words]
    return {
        "id": f"row {i}",
        "text": " ".join(words),
        "words": words,
        "label": LABELS[i % 2],
        "labels": [name for name, has in (("loud", i % 2), ("long", len(words) > 4)) if has],
        "target": float(len(words)) / 2,
        "tags": ["B-X" if word.lower() in ("class", "list") else "O" for word in words],
    }


def write_task(task: str, **settings: Any) -> None:
    """Writes what ``prepare_task`` writes of a task that has the name of its kind."""
    folder, rows = paths.examples(task), [row_of(i) for i in range(72)]
    folder.mkdir(parents=True)
    write_jsonl(folder / "train.jsonl", rows[:40])
    write_jsonl(folder / "validation.jsonl", rows[40:56])
    answers = ("label", "labels", "target", "tags")
    test = [{k: v for k, v in row.items() if k not in answers} for row in rows[56:]]
    write_jsonl(folder / "test.jsonl", test)
    record = {"task": {"name": task, **settings}, "kind": task, "split_seeds": []}
    write_json(folder / "task.json", record | TASKS[task])


def plan_of(methods: dict[str, Any], **settings: Any) -> FinetunePlan:
    """Returns the plan of trials with these entries of ``finetune.methods``."""
    section: dict[str, Any] = {
        "methods": methods,
        "label_budgets": [32],
        "max_tokens": 32,
        "keep_weights": "all",
    }
    return FinetunePlan(
        code={},
        models={},
        finetune=Finetune(**(section | settings)),
        compute=Compute(device="cpu", precision="float32"),
    )


def trials(plan: FinetunePlan, task: str) -> list[Trial]:
    """Runs all trials, or takes them from the store; weights go to their place in the study."""
    finetune, record = plan.finetune, read_json(paths.pretrained(CHECKPOINT) / "run.json")
    scratch = record["objective"] == "none"
    groups = trial_groups(finetune, CHECKPOINT, task, finetune.methods, from_scratch=scratch)
    folder = Path(paths.FINETUNED, task, CHECKPOINT.model, "weights")
    folder.mkdir(parents=True, exist_ok=True)
    return run_trials(plan, task, groups, {CHECKPOINT.model: folder})
