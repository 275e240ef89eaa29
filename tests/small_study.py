"""A study that is trained in seconds: a run from scratch and a public checkpoint, two tasks."""

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from stages import finetune, pretrain, record_inputs
from stages.core.artifacts import write_json, write_jsonl
from stages.core.params import Params
from stages.core.plans import FinetunePlan, InputsPlan, PretrainPlan
from stages.core.study_file import load
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


def write_pair(folder: Path) -> Params:
    """Writes a study of an encoder and a decoder from scratch, with their checkpoints."""
    params = write_study(folder, lr=1e-3)
    encoder = params.models[SCRATCH]
    decoder = encoder.architecture | {"name": "phi"}
    decoder = encoder.model_copy(update={"architecture": decoder})
    params = params.model_copy(update={"models": {SCRATCH: encoder, "decoder": decoder}})
    write_inputs(params)
    for run in params.models:
        pretrain_run(params, run)
    return params


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


def with_public_checkpoint(params: Params) -> Params:
    """Returns the study with two runs: the run from scratch and, as "public", a small BERT."""
    scratch, folder = params.models[SCRATCH], checkpoint("bert")
    model = {"name": "hub", "path": str(folder), "revision": revision_of(folder)}
    public = scratch.model_copy(update={"architecture": model, "tokenizer": "none"})
    pretrain = params.pretrain.model_copy(update={"matched": "none", "reference": SCRATCH})
    runs = {SCRATCH: scratch, "public": public}
    return params.model_copy(update={"models": runs, "pretrain": pretrain})


def write_tasks(section: Mapping[str, Any] = SECTION) -> None:
    """Writes two tasks: which words are in title case, and whether a line is in capitals."""
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
        record |= {"metric": metric, "other_metric": other, "num_examples": {"train": 64}}
        record |= {"split_seeds": []}
        write_json(folder / "task.json", record)
