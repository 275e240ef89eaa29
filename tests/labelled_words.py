"""Two small tasks that baselines are fitted to: which words are tools, and what a text is about."""

import contextlib
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from stages import fit_baseline
from stages.core import paths
from stages.core.artifacts import write_json, write_jsonl
from stages.core.plans import BaselinePlan
from tests.small import new_folder

FITTING = {"type": ("majority", "tfidf"), "tag": ("majority", "crf")}
PRETRAIN_SEEDS, FINETUNE_SEEDS = [1, 7], [1, 2, 3]
LABELS = {"classification": ["fruit", "tool"], "tagging": ["B-TOOL", "O"]}
WORDS = {"fruit": ["apple", "pear"], "tool": ["hammer", "saw"]}


def plan_of(task: str, **changes: Any) -> BaselinePlan:
    """Returns the plan of the baselines that fit a task, with ``changes``."""
    plan = BaselinePlan(
        baselines={name: {"name": name} for name in FITTING[task]},
        label_budgets=[4, "all"],
        pretrain_seeds=PRETRAIN_SEEDS,
        finetune_seeds=FINETUNE_SEEDS,
        code={},
    )
    return plan.model_copy(update=changes)


def write_tasks() -> None:
    """Writes 24 classified sentences and 24 tagged sentences."""
    for task, kind, metric in (
        ("type", "classification", "macro_f1"),
        ("tag", "tagging", "entity_f1"),
    ):
        examples = paths.examples(task)
        examples.mkdir(parents=True)
        for split, number in (("train", 12), ("validation", 4), ("test", 8)):
            rows = [_row(kind, i, labelled=split != "test") for i in range(number)]
            write_jsonl(examples / f"{split}.jsonl", rows)
        about = {"kind": kind, "metric": metric, "labels": LABELS[kind]}
        about |= {"num_examples": {"train": 12}, "split_seeds": []}
        write_json(examples / "task.json", about)


def fit_baselines() -> None:
    """Writes the tasks and their baselines, which are fitted only once, into the working folder."""
    shutil.copytree(_fitted(), Path(), dirs_exist_ok=True)


@cache
def _fitted() -> Path:
    """Returns the folder of a study with both tasks and their fitted baselines."""
    folder = new_folder()
    with contextlib.chdir(folder):
        write_tasks()
        for task in FITTING:
            fit_baseline.main(plan_of(task), task)
    return folder


def _row(kind: str, i: int, *, labelled: bool) -> dict[str, Any]:
    label = list(WORDS)[i % 2]
    word = WORDS[label][i // 2 % 2]
    if kind == "classification":
        row = {"id": str(i), "text": f"a {word}", "label": label}
    else:
        tags = ["O", "B-TOOL" if label == "tool" else "O"]
        row = {"id": str(i), "words": ["a", word], "tags": tags}
    return row if labelled else {k: v for k, v in row.items() if k not in ("label", "tags")}
