"""Facts about the labelled rows that are known before anything is trained."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from stages.evaluation.near_duplicates import near_duplicates
from stages.kinds._kind import SPLITS
from stages.prepare_task import times_of
from stages.proposal.examples import Examples, count_words
from stages.proposal.files import files_of
from stages.proposal.lengths import Lengths, share_cut
from stages.sources._columns import GROUP, TIME

SHOWN_LABELS = 8
UNEVEN = 5  # classes are uneven if the largest has this many times the smallest's rows
FEW_TEST_ROWS = 400
FEW_TEST_SCORES = 100  # test rows, for metrics other than a share of right answers
MANY_CUT = 0.01
ODD_LINES = 10  # fewest lines of a text that is suspicious
NORMAL_95 = 1.96
MOST_COMPARED = {"train": 20_000, "test": 2_000}  # rows that are searched for near-duplicates


def facts(
    examples: Examples, lengths: Lengths, most: Mapping[str, int], *, given: set[str]
) -> Iterator[str]:
    """Yields sentences about the rows; ``most`` are max_tokens and max_target_tokens, and ``given``
    are the splits that have files, or "split" if a column names the splits."""
    counted = ", ".join(f"{examples.num[split]:,} {split}" for split in SPLITS)
    group = examples.source.get(GROUP)
    how = f"drawn by a hash of {group or 'the input'}, 80/10/10"
    if times := times_of(examples.by_split):
        begins = ", ".join(f"{split} from {times[split][0]}" for split in SPLITS[1:])
        how = f"drawn in the order of {examples.source[TIME]}, about 80/10/10: {begins}"
    if "split" in given:
        how = "as the column has them; a split that it does not name is drawn from train"
    elif given - {"train"}:
        drawn = [split for split in SPLITS if split not in given]
        how = f"{' and '.join(drawn)} drawn from train" if drawn else "as the files have them"
    yield f"Rows: {counted} ({how})."
    yield from _labels(examples)
    yield from _lengths(examples, lengths, most)
    yield from _swallowed(examples)
    yield from _duplicates(examples)
    yield from _near_duplicates(examples)
    yield f"Script: {examples.script.title()}."
    num_test = examples.num["test"]
    has_accuracy = examples.kind.stratified or examples.kind.right_if is not None
    if has_accuracy and 0 < num_test < FEW_TEST_ROWS:
        points = 100 * NORMAL_95 * math.sqrt(0.25 / num_test)
        yield f"{num_test} test rows tell an accuracy of 50 % to within {points:.0f} points (95 %)."
    elif 0 < num_test < FEW_TEST_SCORES:
        yield f"{num_test} test rows are few: differences must be large to be seen."


def _labels(examples: Examples) -> Iterator[str]:
    if not examples.kind.has_classes:
        return
    labels = sorted(examples.labels.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{label}: {number:,}" for label, number in labels[:SHOWN_LABELS])
    more = f" and {len(labels) - SHOWN_LABELS} more" if len(labels) > SHOWN_LABELS else ""
    what = "Tags" if examples.kind.target in examples.kind.lists else "Labels"
    yield f"{what} in train: {shown}{more}."
    rows = [example.row for split in SPLITS for example in examples.by_split[split]]
    if not examples.kind.stratified and all(len(row.get("labels", ())) == 1 for row in rows):
        yield (
            "Each row has exactly one label. If that is so in all data, they are classes: write "
            "the label of each row to one column (--label NAME)."
        )
    for split in SPLITS[1:]:
        given = {
            label for e in examples.by_split[split] for label in examples.kind.labels_of(e.row)
        }
        if split in examples.source and len(given) == 1 < len(labels):
            yield (
                f"Every row of {split} has the label {next(iter(given))}. If it is a placeholder, "
                "leave this file out (--train FILE)."
            )
    if examples.kind.stratified and labels[0][1] >= UNEVEN * labels[-1][1]:
        yield (
            f"Classes are uneven ({labels[0][1]:,} of {labels[0][0]}, {labels[-1][1]:,} of "
            f"{labels[-1][0]}): compared by macro F1, which counts each class alike; accuracy "
            "stands beside it."
        )


def _lengths(examples: Examples, lengths: Lengths, most: Mapping[str, int]) -> Iterator[str]:
    cut = _cut(lengths.inputs, most["max_tokens"], "text")
    if examples.kind.name == "span_qa":
        cut = "longer contexts are read in windows"
    inputs = _quantiles(examples.num_words)
    yield f"Length in words: {inputs}. With max_tokens {most['max_tokens']} {cut} (--max-tokens N)."
    if examples.targets:
        targets = _quantiles(count_words(examples.targets, examples.script))
        longest = most["max_target_tokens"]
        cut = _cut(lengths.targets, longest, "target")
        yield f"Targets in words: {targets}. With max_target_tokens {longest} {cut}."


def _quantiles(words: Sequence[int] | np.ndarray) -> str:
    half, most, longest = np.quantile(words, [0.5, 0.95, 1.0])
    return f"{half:.0f} in the middle, 95 % up to {most:.0f}, {longest:.0f} the longest"


def _cut(lengths: np.ndarray, most: int, what: str) -> str:
    cut = share_cut(lengths, most)
    many = f"about {cut:.0%} of the {what}s are cut"
    return many if cut >= MANY_CUT else f"hardly any {what} is cut"


def _swallowed(examples: Examples) -> Iterator[str]:
    """Yields a sentence about texts of many lines if most texts of csv or tsv files have one line.
    An unclosed quotation mark makes all rows up to the next mark part of one text."""
    if examples.kind.lists or files_of(examples.source)[0].format not in ("csv", "tsv"):
        return
    rows = [example for split in SPLITS for example in examples.by_split[split]]
    lines = np.array([" ".join(examples.kind.texts(e.row)).strip().count("\n") + 1 for e in rows])
    if np.median(lines) == 1 and lines.max() >= ODD_LINES:
        yield (
            f"{(lines >= ODD_LINES).sum():,} texts go over {ODD_LINES} to {lines.max():,} lines, "
            "most over one: quotation marks that do not close may have swallowed rows (longest: "
            f"{rows[int(np.argmax(lines))].id})."
        )


def _near_duplicates(examples: Examples) -> Iterator[str]:
    test = [example.row for example in examples.by_split["test"][: MOST_COMPARED["test"]]]
    train = [example.row for example in examples.by_split["train"][: MOST_COMPARED["train"]]]
    similar = near_duplicates(test, train, examples.kind)
    if similar.number:
        of_rows = f"{similar.number:,} of {similar.num_test:,} test rows"
        yield (
            f"{of_rows} have a near-duplicate in train, such as {similar.example}. If rows of one "
            "user or document belong together, --group NAME draws them into one split."
        )


def _duplicates(examples: Examples) -> Iterator[str]:
    shared = [f"{n:,} rows of {split}" for split, n in examples.removed.items() if n]
    if shared:
        yield f"Left out since a later split has the same input: {' and '.join(shared)}."
    if examples.repeated:
        yield (
            f"{examples.repeated:,} rows of train repeat an input of train, "
            f"{examples.contradicting:,} with another answer; they stay."
        )
