"""The README.md of an export: a model card, with the metadata that the Hugging Face Hub reads."""

from collections.abc import Sequence

from huggingface_hub import EvalResult, ModelCardData

from stages.core import paths
from stages.core.artifacts import read_json
from stages.core.components import Settings
from stages.core.keys import RunKey, TrialKey
from stages.core.params import NONE
from stages.evaluation.metrics import scale_of
from stages.evaluation.records import CLASSICAL, read_texts
from stages.tracking.records import Row, trial_of

MOST = 12  # rows of scores in a card; a checkpoint has scores on all tasks
CARD = """\
---
{metadata}
---

# {title}

{about}

## How to load it

```python
{load}
```
{note}
## Data

{data}

## Training

{training}

## Scores

{scores}

## Limits

{limits}
"""
NO_TABLES = (
    "The tables of the study's report (`reports/*.csv`) did not have this model when it was "
    "exported, so no score is known."
)
LIMITS = """\
- It was made in a study that compares models on small data. It is no product.
- Its scores are those of test rows from the same source as the training rows. Other kinds of text,
  other languages and fairness between groups of people were not tested.
- No licence is stated here: those of the training texts and of a public checkpoint apply."""


def model_card(
    key: RunKey | TrialKey,
    record: Settings | None,
    *,
    load: str,
    note: str,
    pipeline: str | None = None,
    library: str = "transformers",
) -> str:
    """Returns the card of a checkpoint or of one of its trials, with the checkpoint's ``record``.
    If ``record`` is None, the card is of a classical baseline's trial. ``pipeline`` is the kind of
    ``transformers`` pipeline that can use the model, None if no kind can; ``library`` is the
    package that loads the model."""
    if record is None:
        data = list[str]()
        training = [
            "- A classical baseline: it has no pretraining, and is fitted when it is loaded."
        ]
        limits = "- It knows nothing of language but its training rows."
    else:
        data, settings = _corpus(key.run), record["settings"]
        values = settings["training"].items()
        steps = [f"{name} {value}" for name, value in values if not isinstance(value, dict)]
        shown = ", ".join([f"objective `{record['objective']}`", *steps])
        training = [f"- Pretraining: {shown}."]
        if (parent := settings.get("parent", NONE)) != NONE:
            training.append(
                f"- It began with the weights of the run `{parent}`, or learnt from it."
            )
        longest = settings["training"]["max_tokens"]
        limits = f"- Texts of more than {longest} tokens were cut in training."
    known = [row for row in read_texts(paths.REPORTS / "scores.csv") if row["run"] == key.run]
    results = None  # without fine-tuning, a checkpoint has no scores of its own
    if isinstance(key, TrialKey):
        task, method, budget = key.task, key.method, key.label_budget
        place = {"task": task, "method": method, "label_budget": budget}
        known = [row for row in known if place.items() <= row.items()]
        results = [
            EvalResult(
                task_type=pipeline or "other",
                dataset_type=task,
                dataset_name=f"{task}, {method}, label budget {budget}",
                metric_type=row["metric"],
                metric_value=float(row["mean"]),
            )
            for row in known
        ] or None
        title = f"{key.run} on {task}"
        how = "fitted to" if method == CLASSICAL else f"fine-tuned with `{method}` on"
        about = f"`{key.run}`, {how} the task `{task}`; label budget: {budget}."
        task_record = read_json(paths.examples(task) / "task.json")
        numbers, labels = task_record.get("num_examples", {}), task_record.get("labels", [])
        sizes = ", ".join(f"{number:,} of {split}" for split, number in numbers.items())
        named = f"; {len(labels)} labels" if labels else ""
        data.append(f"- Task: `{task}`{f', rows: {sizes}' if sizes else ''}{named}.")
        training += _finetuning(key)
    else:
        title = key.run
        about = f"`{key.run}` (seed {key.pretrain_seed}), without fine-tuning."
    metadata = ModelCardData(
        library_name="mlflow" if record is None else library,
        pipeline_tag=pipeline,
        model_name=title,
        eval_results=results,
    )
    return CARD.format(
        metadata=metadata.to_yaml(),
        title=title,
        about=about,
        load=load,
        note=f"\n{note}\n" if note else "",
        data="\n".join(data) or "- The text that it was pretrained on is unknown here.",
        training="\n".join(training),
        scores=_scores(key, known),
        limits=f"{limits}\n{LIMITS}",
    )


def _corpus(run: str) -> list[str]:
    """Returns a line on a run's pretraining text from the report; empty if the report has none."""
    for row in read_texts(paths.REPORTS / "corpora.csv"):
        if row["run"] == run:
            words, documents = int(row["corpus_words"]), int(row["corpus_documents"])
            return [
                f"- Pretraining: the corpus `{row['corpus']}`, {words:,} words in {documents:,} "
                f"documents, read {float(row['epochs']):.2g} times."
            ]
    return []


def _finetuning(key: TrialKey) -> list[str]:
    """Returns a line on a trial's training from the report; empty for a baseline."""
    for row in read_texts(paths.REPORTS / "trials.csv"):
        if trial_of(row) == key and key.method != CLASSICAL:
            return [
                f"- Fine-tuning: {int(row['num_trained_params']):,} of "
                f"{int(row['num_params']):,} parameters, {row['num_epochs']} epochs, learning "
                f"rate {row['lr']}, seed {key.finetune_seed}."
            ]
    return []


def _scores(key: RunKey | TrialKey, known: Sequence[Row]) -> str:
    if not known:
        return NO_TABLES
    lines = [
        "| task | method | label budget | metric | mean | interval |",
        "|---|---|---|---|---|---|",
    ]
    for row in known[:MOST]:
        shown = [
            scale_of(row["metric"]).shown(float(row[end])) for end in ("low", "high") if row[end]
        ]
        mean = scale_of(row["metric"]).shown(float(row["mean"]))
        cells = (row["task"], row["method"], row["label_budget"], row["metric"], mean)
        lines.append(f"| {' | '.join(cells)} | {' to '.join(shown) or 'unknown'} |")
    if len(known) > MOST:
        lines.append(f"\n{len(known) - MOST} more are in the study's `reports/scores.csv`.")
    lines.append(
        "\nA mean is over the study's seeds; its interval is of other seeds and test rows."
    )
    if isinstance(key, TrialKey):
        own = [row for row in read_texts(paths.REPORTS / "trials.csv") if trial_of(row) == key]
        for row in own:
            value = scale_of(row["metric"]).shown(float(row["value"]))
            lines.append(f"The score of the exported trial alone: {value}.")
        for row in read_texts(paths.REPORTS / "answer.csv"):
            if (row["task"], row["label_budget"]) == (key.task, key.label_budget):
                lines.append(f"What the study puts first on this task: {row['use']}")
    return "\n".join(lines)
