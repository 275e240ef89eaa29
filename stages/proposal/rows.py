"""Reads the labelled rows as the pipeline will read them, and says what is known of them before
anything is trained."""

import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
from jaxtyping import Int

from stages.core.artifacts import Json
from stages.core.components import below
from stages.prepare_task import (
    check_groups,
    check_kind,
    count_labels,
    times_of,
    with_enough_rows,
    without_duplicates,
)
from stages.proposal.files import files_of
from stages.proposal.flags import Flags
from stages.proposal.roles import Guess
from stages.sources._columns import EMPTY_CELLS, GROUP, NONE, TIME
from stages.sources._source import SOURCES, Labelled
from stages.tasks._cells import EmptyCellError
from stages.tasks._labels import LABEL_CASE, NO_LABEL_SIGNS, signs_of_none
from stages.tasks._task import SPLITS, TASKS, Split, settings_of
from stages.tasks._task import Task as Kind

SPACELESS = {"CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR"}  # scripts
LETTERS = 20_000  # number of letters of the texts that are read to find the script
SHOWN_LABELS = 8
FEW_TEST_ROWS = 400
ODD_LINES = 10  # fewest lines of a text that is suspicious


@dataclass(frozen=True, kw_only=True)
class Examples:
    """The rows of each split, without those whose input is also in a later split."""

    kind: Kind
    source: Json  # settings of the source
    by_split: dict[Split, list[Labelled]]
    removed: dict[str, int]  # rows of a split whose input a later split has

    @property
    def num(self) -> dict[Split, int]:
        return {split: len(self.by_split[split]) for split in SPLITS}

    @property
    def labels(self) -> dict[str, int]:
        return count_labels(self.by_split["train"], self.kind)

    @cached_property
    def inputs(self) -> list[str]:
        """The texts of train."""
        return [" ".join(self.kind.texts(example.row)) for example in self.by_split["train"]]

    @property
    def targets(self) -> list[str]:
        """The texts of train that are to be written, if the task is to write a text."""
        rows = [example.row for example in self.by_split["train"]]
        return [row["target"] for row in rows] if self.kind.name == "seq2seq" else []

    @cached_property
    def scripts(self) -> Counter[str]:
        """The number of letters of each script in the texts of train."""
        letters = islice((c for text in self.inputs for c in text if c.isalpha()), LETTERS)
        names = (unicodedata.name(c, "OTHER").replace("-", " ") for c in letters)
        return Counter(name.split()[0] for name in names) or Counter(LATIN=1)

    @property
    def is_spaceless(self) -> bool:
        """Whether most letters are of a script without blanks between words."""
        return self.scripts.most_common(1)[0][0] in SPACELESS

    @property
    def latin(self) -> float:
        """The share of Latin letters."""
        return self.scripts["LATIN"] / self.scripts.total()

    def count_words(self, texts: Sequence[str]) -> Int[np.ndarray, " N"]:
        """Returns the number of words of each text, or of its letters if the script has no blanks
        between words."""
        spaceless = self.is_spaceless
        counts = [len(t.replace(" ", "")) if spaceless else len(t.split()) for t in texts]
        return np.array(counts, dtype=np.int64)


def read_examples(source: Json, guess: Guess, flags: Flags, notes: list[str]) -> Examples:
    """Returns the rows of the source with the guessed columns. Rows with an empty cell, and rows
    whose label is certainly a sign for no label, are left out, and their number is added to
    ``notes``.

    Raises ValueError for rows that the pipeline would refuse, with their file and line.
    """
    kind, files = TASKS[guess.kind], files_of(source)
    form = source.get("format") or files[0].format
    usual = {"words": "FORM", "tags": "UPOS"} if form == "conllu" else {}
    plain = {key: parameter.default for key, parameter in settings_of(kind).items()}
    signs = NONE if flags.no_label == [] else flags.no_label
    said = {NO_LABEL_SIGNS: signs, LABEL_CASE: flags.label_case}
    source = source | {
        role: name
        for role, name in guess.columns.items()
        if name != usual.get(role, role) or role in kind.optional
    }
    source |= {key: value for key, value in guess.settings.items() if value != plain.get(key)}
    source |= {key: said[key] for key in plain if said.get(key) is not None}

    def read() -> list[Labelled]:
        return [*SOURCES.build(source, where="DATA").examples(kind)]

    try:
        labelled = read()
    except EmptyCellError as error:
        source |= {EMPTY_CELLS: "skip"}
        labelled = read()
        if not any(example.split == "train" for example in labelled):
            raise
        total = sum(1 for file in files for _ in file.records())
        notes.append(f"{total - len(labelled):,} of {total:,} rows have an empty cell ({error}).")
    check_kind(labelled, kind, where="data")
    counts = count_labels(labelled, kind)
    missing = signs_of_none(counts) if NO_LABEL_SIGNS in plain else {}
    if missing and all(missing.values()) and NO_LABEL_SIGNS not in source:
        source |= {NO_LABEL_SIGNS: [*missing]}
        shown = ", ".join(f"{sign!r} ({counts[sign]:,} rows)" for sign in missing)
        notes.append(f"Left out as signs for no label: {shown}. (--set no_label=SIGN,... or '')")
        labelled = read()
    with below(f"{files[0].path}: source"):
        check_groups(labelled)
        labelled = with_enough_rows(labelled, kind, source, flags.min_rows_per_class)
    labelled = [example._replace(row=kind.prepared(example.row)) for example in labelled]
    by_split, removed = without_duplicates(labelled, kind)
    return Examples(kind=kind, source=source, by_split=by_split, removed=removed)


def notes_on_rows(examples: Examples) -> Iterator[str]:
    """Yields sentences about the rows."""
    kind, source, num = examples.kind, examples.source, examples.num
    yield f"Rows: {', '.join(f'{num[split]:,} {split}' for split in SPLITS)} ({_drawn(examples)})."
    labels = sorted(examples.labels.items(), key=lambda item: -item[1])
    if labels:
        shown = ", ".join(f"{label}: {number:,}" for label, number in labels[:SHOWN_LABELS])
        yield f"{len(labels)} kinds of {kind.target} in train, most of all {shown}."
    for split in SPLITS[1:]:
        given = {label for e in examples.by_split[split] for label in kind.labels_of(e.row)}
        if split in source and len(given) == 1 < len(labels):
            yield (
                f"Every row of {split} has the label {next(iter(given))}. If it is a placeholder, "
                "leave this file out (--set train=FILE)."
            )
    half, most, longest = np.quantile(examples.count_words(examples.inputs), [0.5, 0.95, 1.0])
    yield f"Words per text: median {half:.0f}, 95th percentile {most:.0f}, maximum {longest:.0f}."
    rows = [example for split in SPLITS for example in examples.by_split[split]]
    if not kind.lists and files_of(source)[0].format in ("csv", "tsv"):
        lines = np.array([" ".join(kind.texts(e.row)).strip().count("\n") + 1 for e in rows])
        if np.median(lines) == 1 and lines.max() >= ODD_LINES:
            yield (
                f"{(lines >= ODD_LINES).sum():,} texts have {ODD_LINES} to {lines.max():,} lines, "
                "most have one: quotation marks that do not close may have swallowed rows "
                f"(longest: {rows[int(np.argmax(lines))].id})."
            )
    if shared := [f"{n:,} rows of {split}" for split, n in examples.removed.items() if n]:
        yield f"Left out since a later split has the same input: {' and '.join(shared)}."
    answers: dict[str, set[str]] = defaultdict(set)
    for example in examples.by_split["train"]:
        answers[kind.same_input(example.row)].add(kind.answer(example.row))
    if repeated := num["train"] - len(answers):
        several = sum(len(of_input) > 1 for of_input in answers.values())
        yield f"{repeated:,} rows of train repeat an input; {several:,} inputs have many answers."
    if (kind.stratified or kind.right_if is not None) and num["test"] < FEW_TEST_ROWS:
        points = 100 * 1.96 * math.sqrt(0.25 / max(num["test"], 1))
        yield f"With {num['test']} test rows, the margin of error is about ±{points:.0f} points."


def _drawn(examples: Examples) -> str:
    """Returns how the splits are drawn."""
    source = examples.source
    if times := times_of(examples.by_split):
        begins = ", ".join(f"{split} from {times[split][0]}" for split in SPLITS[1:])
        return f"drawn in the order of {source[TIME]}, about 80/10/10: {begins}"
    if "split" in source:
        return "as the column has them; a split that it does not name is drawn from train"
    drawn = [split for split in SPLITS if split not in source]
    if len(drawn) < 2:
        return f"{drawn[0]} drawn from train" if drawn else "as the files have them"
    return f"drawn by a hash of {source.get(GROUP) or 'the input'}, 80/10/10"
