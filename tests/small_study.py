"""A study that is trained in seconds: a run from scratch and a public checkpoint, two tasks."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

from stages import evaluate, finetune, pretrain, record_inputs
from stages.core import paths
from stages.core.artifacts import Json, write_json, write_jsonl
from stages.core.params import Model, Params
from stages.core.plans import FinetunePlan, InputsPlan, PretrainPlan
from stages.core.study_file import load
from stages.evaluation import records
from stages.evaluation.doubtful_labels import DoubtfulLabel
from stages.tasks._task import TASKS as KINDS
from stages.text.corpus import encode
from tests.small import documents, saved, small_tokenizer
from tests.small_hub import checkpoint, revision_of
from tests.smoke import plans, with_values, write_plans

SCRATCH = "encoder_scratch"
TASKS = ("section", "tag")
SECTION = {"name": "classification", "pooling": "mean"}
MAX_TOKENS = 64
LINES = [line.split() for document in documents()[:14] for line in document if " " in line]
SMALLER = {
    "compute.threads": 1,
    # In bfloat16 a close prediction may change with the other rows of its batch.
    "compute.precision": "float32",
    "tokenizers.unigram.vocab_size": 600,
    f"models.{SCRATCH}.architecture.d_model": 32,
    "finetune.methods.full.training.num_epochs": 4,
    "finetune.methods.linear_probe.method": {"name": "linear_probe", "C": [0.1, 1.0]},
    "finetune.label_budgets": [64],
    "finetune.keep_weights": "all",
}


def write_study(
    folder: Path, *, lr: float | list[float], section: Mapping[str, Any] = SECTION
) -> Params:
    """Writes what ``pretrain`` and then ``finetune`` read into a folder, which must be the current
    one. ``lr`` is the rate of full fine-tuning, ``section`` the entry of that task."""
    path = with_values(folder, SMALLER | {"finetune.methods.full.training.lr": lr})
    params = with_public_checkpoint(load(path))
    write_tasks(section)
    for name in ("encoded", "pretrained", "tokenizers/unigram"):
        Path("data", name).mkdir(parents=True)
    small_tokenizer().save_to(Path("data/tokenizers/unigram"))
    Path("data/encoded/none").write_text("nothing\n")
    write_inputs(params)
    return params


def run_stage(params: Params, stage: ModuleType, *keys: str) -> None:
    """Runs the stage of a module of ``stages/`` with the plan that the root stage writes for it."""
    name = stage.__name__.rpartition(".")[2]
    stage.main(plans(params)[name, *keys], *keys)


def write_corpus() -> None:
    """Writes the tokenizer of ``small`` as the tokenizer "unigram", and the topics of the language
    reference, encoded with it, as the corpus "prose"."""
    tokenizer, folder = Path("data/tokenizers/unigram"), Path("data/encoded/prose/unigram")
    tokenizer.mkdir(parents=True)
    small_tokenizer().save_to(tokenizer)
    for split, texts in {"train": documents()[8:], "validation": documents()[:8]}.items():
        saved(encode(texts, small_tokenizer()), folder / split)
    write_json(folder / "encoded.json", {"train_bytes": 1000, "train_tokens": 250})


def write_inputs(params: Params) -> None:
    """Writes the plans of a study and the inputs of its runs. Tasks may have no rows yet."""
    write_plans(params)
    plan = plans(params)["record_inputs", "models"]
    assert isinstance(plan, InputsPlan)
    record_inputs.main(plan.model_copy(update={"tasks": []}), "models")


def pretrain_plan(params: Params, run: str) -> PretrainPlan:
    plan = plans(params)["pretrain", run]
    assert isinstance(plan, PretrainPlan)
    return plan


def finetune_plan(params: Params, task: str) -> FinetunePlan:
    plan = plans(params)["finetune", task]
    assert isinstance(plan, FinetunePlan)
    return plan


def pretrain_run(params: Params, run: str) -> None:
    pretrain.main(pretrain_plan(params, run), run)


def fine_tune(params: Params, task: str = TASKS[0]) -> None:
    finetune.main(finetune_plan(params, task), task)


def files_of(folder: Path) -> dict[str, bytes]:
    """Returns the content of every file below a folder, by its path in the folder."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def tuned(params: Params, **settings: Any) -> Params:
    """Returns the study with other settings of ``finetune:``."""
    return params.model_copy(update={"finetune": params.finetune.model_copy(update=settings)})


def with_models(params: Params, models: Mapping[str, Model]) -> Params:
    """Returns the study with other models, the first of which is the reference."""
    settings = {"matched": "none", "reference": next(iter(models))}
    pretrain = params.pretrain.model_copy(update=settings)
    return params.model_copy(update={"models": dict(models), "pretrain": pretrain})


def with_public_checkpoint(params: Params) -> Params:
    """Returns the study with two runs: the run from scratch and, as "public", a small BERT."""
    scratch, folder = params.models[SCRATCH], checkpoint("bert")
    model = {"name": "hub", "path": str(folder), "revision": revision_of(folder)}
    public = scratch.model_copy(update={"architecture": model, "tokenizer": "none"})
    return with_models(params, {SCRATCH: scratch, "public": public})


def write_tasks(section: Mapping[str, Any] = SECTION) -> None:
    """Writes two tasks: which words are in title case, and whether a line is in capitals."""
    words = [{"words": line, "tags": _tags(line)} for line in LINES]
    lines = [
        {"text": text.upper() if i % 2 else text, "label": ("calm", "loud")[i % 2]}
        for i, text in enumerate(map(" ".join, LINES))
    ]
    write_task("tag", words, {"name": "tagging"})
    write_task("section", lines, section)


def _tags(words: list[str]) -> list[str]:
    return ["B-CODE" if word.istitle() else "O" for word in words]


def write_task(
    key: str,
    rows: Sequence[Json],
    entry: Mapping[str, Any],
    *,
    train: int = 64,
    validation: int = 16,
    test: int = 60,
) -> None:
    """Writes the task of an entry ``task:`` as ``prepare_task`` does, with ``train`` of the rows
    for training, the next ``validation`` for validation and so on."""
    kind, folder = KINDS[entry["name"]], paths.examples(key)
    numbered = iter({"id": f"row {i}", **row} for i, row in enumerate(rows))
    folder.mkdir(parents=True)
    for split, number in (("train", train), ("validation", validation), ("test", test)):
        part = [*islice(numbered, number)]
        if split == "test":
            target = kind.target
            labels = [{"id": row["id"], target: row[target]} for row in part]
            write_jsonl(paths.test_labels(key), labels)
            write_jsonl(paths.test_originals(key), [])
            part = [{name: v for name, v in row.items() if name != target} for row in part]
        write_jsonl(folder / f"{split}.jsonl", part)
    metric, other_metric = kind.compared_by({**entry})
    record = {
        "task": {**entry},
        "kind": kind.name,
        "labels": sorted({label for row in rows for label in kind.labels_of(row)}),
        "metric": metric,
        "other_metric": other_metric,
        "num_examples": {"train": train, "validation": validation, "test": test},
        "split_seeds": [],
    }
    write_json(folder / "task.json", record)


def scores(params: Params, task: str) -> list[records.ScoredTrial]:
    """Returns the scores of the study's trials of a task, without baselines."""
    folder = paths.BASELINES / task
    for name, record in (
        ("trials.csv", records.TrialRecord),
        ("predictions.csv.gz", records.PredictionRecord),
        ("doubtful_labels.csv", DoubtfulLabel),
    ):
        records.write(folder / name, record, [])
    run_stage(params, evaluate, task)
    return records.read(paths.EVALUATED / task / "trials.csv", records.ScoredTrial)
