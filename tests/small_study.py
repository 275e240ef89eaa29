"""A study that is trained in seconds: a run from scratch and a public checkpoint, two tasks."""

import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stages import pretrain
from stages.core.artifacts import write_json, write_jsonl
from stages.core.params import Params, load
from stages.matching.budget import plans
from tests.small import documents, small_tokenizer
from tests.small_hub import checkpoint, revision_of
from tests.smoke import with_values

SCRATCH = "encoder_scratch"
TASKS = ("section", "tag")
SECTION = {"name": "classification", "pooling": "mean"}
MAX_TOKENS = 64
LINES = [line.split() for document in documents()[:14] for line in document if " " in line]
SMALLER = {
    "compute.threads": 1,
    # In bfloat16 a close call may go the other way in a batch of other rows.
    "compute.precision": "float32",
    "tokenizers.unigram.vocab_size": 600,
    f"pretrain.{SCRATCH}.model.d_model": 32,
    "finetune.methods.full.training.num_epochs": 4,
    "finetune.methods.linear_probe.method": {"name": "linear_probe", "C": [0.1, 1.0]},
    "finetune.label_budgets": [64],
    "finetune.keep_weights": "all",
}


def write_study(
    folder: Path, *, lr: float | list[float], section: Mapping[str, Any] = SECTION
) -> Params:
    """What ``pretrain`` reads of it and, after that, ``finetune``; the folder must be the current
    one. ``lr`` is that of full fine-tuning, ``section`` the entry of that task."""
    path = with_values(folder, SMALLER | {"finetune.methods.full.training.lr": lr})
    params = with_public_checkpoint(load(path))
    write_tasks(section)
    for name in ("encoded/none", "plans", "pretrained", "tokenizers/unigram"):
        Path("data", name).mkdir(parents=True)
    (model,) = small_tokenizer().files
    shutil.copyfile(model, Path("data/tokenizers/unigram", model.name))
    for nothing in ("encoded/none/unigram", "pretrained/none"):
        Path("data", nothing).write_text("nothing\n")
    for key, plan in plans(params).items():
        write_json(Path(f"data/plans/{key}.json"), asdict(plan))
    return params


def write_pair(folder: Path) -> Params:
    """A study of an encoder and a decoder from scratch, with their checkpoints."""
    params = write_study(folder, lr=1e-3)
    encoder = params.pretrain[SCRATCH]
    decoder = encoder.model_copy(update={"model": encoder.model | {"name": "decoder"}})
    params = params.model_copy(update={"pretrain": {SCRATCH: encoder, "decoder": decoder}})
    for key, plan in plans(params).items():
        write_json(Path(f"data/plans/{key}.json"), asdict(plan))
        pretrain.main(params, key)
    return params


def with_public_checkpoint(params: Params) -> Params:
    """The run from scratch and, as "public", a small BERT."""
    scratch, folder = params.pretrain[SCRATCH], checkpoint("bert")
    model = {"name": "hub", "path": str(folder), "revision": revision_of(folder)}
    public = scratch.model_copy(update={"model": model, "tokenizer": "none"})
    budget = params.budget.model_copy(update={"matched": "none", "reference": SCRATCH})
    runs = {SCRATCH: scratch, "public": public}
    return params.model_copy(update={"pretrain": runs, "budget": budget})


def write_tasks(section: Mapping[str, Any] = SECTION) -> None:
    """Which words are in title case, and whether a line is in capitals."""
    rows = {
        "tag": [
            {"words": words, "tags": ["B-CODE" if word.istitle() else "O" for word in words]}
            for words in LINES
        ],
        "section": [
            {"text": text.upper() if i % 2 else text, "label": ("calm", "loud")[i % 2]}
            for i, text in enumerate(map(" ".join, LINES))
        ],
    }
    about = {
        "tag": ({"name": "tagging"}, ["B-CODE", "O"], "entity_f1", "word_accuracy"),
        "section": ({**section}, ["calm", "loud"], "macro_f1", "accuracy"),
    }
    for task, of_task in rows.items():
        folder = Path("data/tasks", task, "examples")
        folder.mkdir(parents=True)
        numbered = [{"id": f"row {i}"} | row for i, row in enumerate(of_task)]
        write_jsonl(folder / "train.jsonl", numbered[:64])
        write_jsonl(folder / "validation.jsonl", numbered[64:80])
        hidden = ("tags", "label")
        test = [{k: v for k, v in row.items() if k not in hidden} for row in numbered[80:140]]
        write_jsonl(folder / "test.jsonl", test)
        entry, labels, metric, other = about[task]
        record = {"task": entry, "kind": entry["name"], "labels": labels}
        record |= {"metric": metric, "other_metric": other}
        write_json(folder / "task.json", record)
