"""The number and the lengths of a task's texts; assumptions if the task is not prepared yet."""

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from stages.core import paths
from stages.core.artifacts import Json, read_json, read_jsonl
from stages.core.keys import RunKey
from stages.core.params import Finetune, Run, Task
from stages.kinds._cells import Row
from stages.kinds._column import SPACELESS
from stages.kinds._kind import SPLITS, of_draw
from stages.matching.budget import AnyWords
from stages.models._backbone import MODELS
from stages.sources._source import SOURCES
from stages.tasks._task import TASKS, Example
from stages.tasks._task import Task as TaskComponent
from stages.tasks._text_to_text import TextToText
from stages.text.tokenizer import TaskTokenizer
from stages.training.finetuning import BUCKET_BATCHES, in_parts
from stages.trials.inputs import input_record

SAMPLED_ROWS = 300  # rows of train whose lengths are measured
MOST_COUNTED = 50_000  # rows of a file that are counted before the task is prepared
# Assumed of a tokenizer that is not trained yet. English captions have as many with a tokenizer of
# the documentation; a vocabulary of the same kind of text has fewer.
TOKENS_PER_WORD = 2.2
ASSUMED_VOCABULARY = 1000  # its size; no length depends on it
# A word, or a letter of a script whose words have no blanks between them.
WORD = re.compile(rf"[{chr(SPACELESS)}-\U0010ffff]|[^\s{chr(SPACELESS)}-\U0010ffff]+")


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
    assumed: bool  # whether the task or its tokenizer is not prepared
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


@dataclass(frozen=True)
class Rows:
    """The rows of a task, as far as they are known."""

    counts: dict[str, int | None]  # by split; None means all rows
    train: Sequence[Row]  # a sample
    record: Json  # the settings of the task, and its labels
    are_prepared: bool


def rows_of(key: str, entry: Task, seed: int) -> Rows | None:
    """Returns the rows of the prepared task or, if it is not prepared, those of a source that is
    quick to read. Returns None if there is neither."""
    with suppress(ValueError, OSError, KeyError):  # KeyError: a record of another version
        return _prepared(key, entry, seed)
    with suppress(ValueError, OSError):
        return _first_rows(entry)
    return None


def _prepared(key: str, entry: Task, seed: int) -> Rows:
    examples = paths.examples(key)
    record = read_json(examples / "task.json")
    if record["task"]["name"] != entry.task["name"]:
        raise ValueError(f"{examples}: prepared as another task")
    rows = {split: of_draw(read_jsonl(examples / f"{split}.jsonl"), seed) for split in SPLITS}
    counts: dict[str, int | None] = {split: len(rows[split]) for split in SPLITS}
    return Rows(counts, rows["train"][:SAMPLED_ROWS], record, are_prepared=True)


def _first_rows(entry: Task) -> Rows | None:
    kind = TASKS.find(entry.task["name"], where="task").kind
    source = SOURCES.build(entry.source, where="source")
    if not source.is_local:
        return None
    numbers, rows = Counter[str](), list[Json]()
    for example in islice(source.examples(kind), MOST_COUNTED):
        numbers[example.split] += 1
        if example.split == "train" and len(rows) < SAMPLED_ROWS:
            rows.append({"id": example.id, **kind.prepared(example.row)})
    counts = counts_of(entry)
    if numbers.total() < MOST_COUNTED:  # rows that are removed as duplicates are counted, too
        counts |= {split: numbers[split] for split, number in counts.items() if number is None}
    labels = sorted({label for row in rows for label in kind.labels_of(row)})
    record = {"task": entry.task, "labels": labels}
    return Rows(counts, rows, record, are_prepared=False) if rows else None


class _AssumedTokenizer(AnyWords):
    """Stands in for a tokenizer that is not trained yet: each word has TOKENS_PER_WORD tokens or,
    as that is no whole number, a few words one more than others."""

    def encode(self, texts: list[str]) -> list[list[int]]:
        return [ids for ids, _ in self.encode_with_offsets(texts)]

    def encode_with_offsets(
        self, texts: list[str]
    ) -> list[tuple[list[int], list[tuple[int, int]]]]:
        return [self._encoded(text) for text in texts]

    @property
    def _id(self) -> int:
        return int(self.regular_ids[0])

    def _encoded(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        words = [word.span() for word in WORD.finditer(text)]
        number = round(TOKENS_PER_WORD * len(words))
        spans = [words[int(i / TOKENS_PER_WORD)] for i in range(number)]
        return [self._id] * number, spans

    def encode_words(self, rows: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        ends = (np.rint(TOKENS_PER_WORD * np.arange(len(row) + 1)).astype(int) for row in rows)
        return [[[self._id] * number for number in np.diff(of_row).tolist()] for of_row in ends]

    def decode(self, ids: object) -> str:
        raise ValueError("the tokenizer is not trained yet")


def _tokenizer(checkpoint: RunKey, run: Run) -> TaskTokenizer:
    folder = paths.pretrained(checkpoint) if run.is_public else paths.TOKENIZERS / run.tokenizer
    if not folder.is_dir():
        return _AssumedTokenizer(ASSUMED_VOCABULARY)
    return MODELS.find(run.model["name"], where="model").tokenizer_of(run.model, folder)


def texts_of(
    run_key: str,
    run: Run,
    task_key: str,
    task: Task,
    finetune: Finetune,
    rows: Rows | None,
    *,
    text_to_text: bool,
) -> Texts:
    """Returns the texts of the ``rows``, cut or read in windows as the task does it. Without rows,
    or if they cannot be encoded yet, all texts have the maximum length and one window."""
    checkpoint = RunKey(run_key, run.seeds[0])
    if rows is not None:
        with suppress(ValueError, OSError):
            return _encoded(checkpoint, run, task_key, finetune, rows, text_to_text=text_to_text)
    longest = finetune.max_tokens
    writes = TASKS.find(task.task["name"], where="task").generates or text_to_text
    return Texts(
        **(counts_of(task) if rows is None else rows.counts),
        sizes=(Size(longest, longest, num_windows=1),),
        written=int(task.task.get("max_target_tokens", longest)) if writes else 0,
        per_row=1,
        assumed=True,
        rows_cut=0.0,
        tokens_cut=0.0,
    )


def _encoded(
    checkpoint: RunKey,
    run: Run,
    task_key: str,
    finetune: Finetune,
    rows: Rows,
    *,
    text_to_text: bool,
) -> Texts:
    tokenizer, record = _tokenizer(checkpoint, run), rows.record
    task: TaskComponent = TASKS.build(
        record["task"], record["labels"], tokenizer, finetune.max_tokens, where="task"
    )
    if text_to_text:
        task = TextToText(task_key, record, task)
    examples = task.encode(rows.train)
    read = input_record(checkpoint, "train", "", examples)
    assumed = not rows.are_prepared or isinstance(tokenizer, _AssumedTokenizer)
    return Texts(
        **rows.counts,
        sizes=tuple(map(Size.of, examples)),
        written=float(np.mean([len(e.labels) if task.generates else 0 for e in examples])),
        per_row=len(examples) / len(rows.train),
        assumed=assumed,
        rows_cut=0.0 if assumed else read.rows_cut / len(rows.train),
        tokens_cut=0.0 if assumed else read.tokens_cut / read.tokens,
    )


def counts_of(task: Task) -> dict[str, int | None]:
    """Returns the numbers of rows that params.yaml sets, by split; None means all rows."""
    counts = {"train": task.num_train, "validation": task.num_validation, "test": task.num_test}
    return {split: None if n == "all" else int(n) for split, n in counts.items()}
