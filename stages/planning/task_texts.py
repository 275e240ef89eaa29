"""The number and the lengths of a task's texts; assumptions if the task is not prepared yet."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl
from stages.core.keys import RunKey
from stages.core.params import Finetune, Run, Task
from stages.kinds._kind import SPLITS, of_draw
from stages.models._backbone import MODELS
from stages.tasks._task import TASKS, Example
from stages.tasks._task import Task as TaskComponent
from stages.tasks._text_to_text import TextToText
from stages.training.finetuning import BUCKET_BATCHES, in_parts
from stages.trials.inputs import input_record

SAMPLED_ROWS = 300  # rows of train whose lengths are measured


class Size(NamedTuple):
    """The size of an example in tokens and windows."""

    tokens: int  # of all windows
    longest: int  # tokens of the longest window
    num_windows: int

    @staticmethod
    def of(example: Example) -> "Size":
        tokens = len(example.tokens)
        longest = max((len(window.tokens) for window in example.windows), default=tokens)
        return Size(tokens, longest, example.num_windows)


@dataclass(frozen=True)
class Texts:
    """The numbers of rows of a task and the sizes of its examples."""

    train: int | None  # None is "all", not counted yet
    validation: int | None
    test: int | None
    sizes: tuple[Size, ...]  # of a sample of the examples
    written: float  # mean tokens of the text to write; 0 if none
    per_row: float  # examples per row; more than 1 if each window is an example
    assumed: bool  # whether the task is not prepared; then all texts get the maximum length
    rows_cut: float  # share of the sampled rows that are cut
    tokens_cut: float  # share of the sampled tokens that are cut

    def padded(self, batch_examples: int) -> float:
        """Returns the mean tokens of an example, padded in batches of ``batch_examples``."""
        lengths = np.array([size.tokens for size in self.sizes])
        bucket = np.arange(len(lengths)) // (BUCKET_BATCHES * batch_examples)
        order = [self.sizes[i] for i in np.lexsort((lengths, bucket))]
        batches = (order[at : at + batch_examples] for at in range(0, len(order), batch_examples))
        parts = [part for batch in batches for part in in_parts(batch, batch_examples)]
        return sum(_padded(part) for part in parts) / len(lengths)

    @property
    def num_windows(self) -> float:
        """The mean number of windows of an example, each a row of a batch."""
        return sum(size.num_windows for size in self.sizes) / len(self.sizes)


def _padded(part: Sequence[Size]) -> int:
    """Returns the tokens of a batch with padding."""
    return sum(size.num_windows for size in part) * max(size.longest for size in part)


def texts_of(
    run_key: str, run: Run, task_key: str, task: Task, finetune: Finetune, *, text_to_text: bool
) -> Texts:
    """Returns the texts of the prepared task or, if the task or the tokenizer is not prepared, as
    many texts as params.yaml sets, all of the maximum length."""
    longest = finetune.max_tokens
    try:
        checkpoint = RunKey(run_key, run.seeds[0])
        return _prepared(checkpoint, run, task_key, task, finetune, text_to_text=text_to_text)
    except (ValueError, OSError):
        writes = TASKS.find(task.task["name"], where="task").generates or text_to_text
        return Texts(
            **counts_of(task),
            sizes=(Size(longest, longest, num_windows=1),),
            written=int(task.task.get("max_target_tokens", longest)) if writes else 0,
            per_row=1,
            assumed=True,
            rows_cut=0.0,
            tokens_cut=0.0,
        )


def _prepared(
    checkpoint: RunKey,
    run: Run,
    task_key: str,
    entry: Task,
    finetune: Finetune,
    *,
    text_to_text: bool,
) -> Texts:
    """Returns the texts of the prepared task. Raises ValueError or OSError if the task or the
    tokenizer is not prepared."""
    examples = paths.examples(task_key)
    folder = paths.pretrained(checkpoint) if run.is_public else paths.TOKENIZERS / run.tokenizer
    if not folder.is_dir():
        raise FileNotFoundError(folder)
    record = read_json(examples / "task.json")
    if record["task"]["name"] != entry.task["name"]:
        raise ValueError(f"{examples}: prepared as another task")
    rows = {
        split: of_draw(read_jsonl(examples / f"{split}.jsonl"), finetune.seeds[0])
        for split in SPLITS
    }
    tokenizer = MODELS.find(run.model["name"], where="model").tokenizer_of(run.model, folder)
    task: TaskComponent = TASKS.build(
        record["task"], record["labels"], tokenizer, finetune.max_tokens, where="task"
    )
    if text_to_text:
        task = TextToText(task_key, record, task)
    sampled = rows["train"][:SAMPLED_ROWS]
    encoded = task.encode(sampled)
    read = input_record(checkpoint, "train", "", encoded)
    return Texts(
        *(len(rows[split]) for split in SPLITS),
        sizes=tuple(map(Size.of, encoded)),
        written=float(np.mean([len(e.labels) if task.generates else 0 for e in encoded])),
        per_row=len(encoded) / len(sampled),
        assumed=False,
        rows_cut=read.rows_cut / len(sampled),
        tokens_cut=read.tokens_cut / read.tokens,
    )


def counts_of(task: Task) -> dict[str, int | None]:
    """Returns the numbers of rows that params.yaml sets, by split; None means all rows."""
    counts = {"train": task.num_train, "validation": task.num_validation, "test": task.num_test}
    return {split: None if n == "all" else int(n) for split, n in counts.items()}
