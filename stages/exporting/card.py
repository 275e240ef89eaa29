"""The README.md of an export: a model card, with the metadata that the Hugging Face Hub reads."""

from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from stages.core import paths
from stages.core.artifacts import Json, read_json
from stages.core.keys import CheckpointKey, TrialKey
from stages.core.params import NONE
from stages.evaluation.metrics import scale_of
from stages.evaluation.records import CLASSICAL, read_texts

MAX_SCORES = 12
LIMITS = """\
- It was made in a study that compares models on small data. It is no product.
- Its scores are those of test rows from the same source as the training rows. Other kinds of text,
  other languages and fairness between groups of people were not tested.
- No licence is stated here: those of the training texts and of a public checkpoint apply."""


def write_card(
    folder: Path,
    key: CheckpointKey | TrialKey,
    *,
    use: str,
    note: str = "",
    library: str = "transformers",
) -> None:
    """Writes the card of a checkpoint or of a trial, with the data, training and scores that the
    tables of the last report have. ``use`` is the code that loads and uses the model, and
    ``library`` the package that it needs."""
    is_trial = isinstance(key, TrialKey)
    title = f"{key.model} on {key.task}" if is_trial else f"{key.model}, seed {key.pretrain_seed}"
    scores = [row for row in read_texts(paths.REPORTS / "scores.csv") if row["model"] == key.model]
    if is_trial:
        cell = {"task": key.task, "method": key.method, "label_budget": key.label_budget}
        scores = [row for row in scores if cell.items() <= row.items()]
    results = [
        EvalResult(
            task_type="other",
            dataset_type=row["task"],
            dataset_name=f"{row['task']}, label budget {row['label_budget']}",
            metric_type=row["metric"],
            metric_value=float(row["mean"]),
        )
        for row in (scores if is_trial else [])
    ]
    metadata = ModelCardData(
        library_name=library, model_name=title, eval_results=results or None
    ).to_yaml()
    sections = {
        "How to use it": f"```python\n{use}\n```\n\n{note}".strip(),
        "Data and training": "\n".join(_origin(key)),
        "Scores": _score_table(scores),
        "Limits": LIMITS,
    }
    text = "\n\n".join(f"## {name}\n\n{section}" for name, section in sections.items())
    ModelCard(f"---\n{metadata}\n---\n\n# {title}\n\n{text}\n").save(folder / "README.md")


def _origin(key: CheckpointKey | TrialKey) -> list[str]:
    """Returns lines on what the model was pretrained and fine-tuned on, and how."""
    lines = list[str]()
    file = paths.pretrained(CheckpointKey(key.model, key.pretrain_seed)) / "run.json"
    if file.is_file():
        record = read_json(file)
        lines.append(f"- Pretraining: objective `{record['objective']}`.")
        if record["corpus"] != NONE:
            lines.append(f"- Corpus: `{record['corpus']}`.")
    if isinstance(key, TrialKey):
        task: Json = read_json(paths.examples(key.task) / "task.json")
        numbers = task.get("num_examples", {}).items()
        rows = ", ".join(f"{number:,} of {split}" for split, number in numbers)
        lines.append(f"- Task: `{key.task}`{f', rows: {rows}' if rows else ''}.")
        how = "fitted to" if key.method == CLASSICAL else f"method `{key.method}`,"
        lines.append(
            f"- Adaptation: {how} label budget {key.label_budget}, seed {key.finetune_seed}."
        )
    return lines


def _score_table(scores: Sequence[dict[str, str]]) -> str:
    """Returns a table of the mean scores over the study's seeds, with their intervals."""
    if not scores:
        return "The tables of the study's report had no score of this model when it was exported."
    lines = [
        "| task | method | label budget | metric | mean | interval |",
        "|---|---|---|---|---|---|",
    ]
    for row in scores[:MAX_SCORES]:
        scale = scale_of(row["metric"])
        ends = [scale.shown(float(row[end])) for end in ("low", "high") if row[end]]
        cells = [row[name] for name in ("task", "method", "label_budget", "metric")]
        cells += [scale.shown(float(row["mean"])), " to ".join(ends) or "unknown"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", "A mean is over the seeds of the study."])
