"""Facts about the labelled rows that are known before anything is trained."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from stages.evaluation.near_duplicates import near_duplicates
from stages.prepare_task import times_of
from stages.proposal.examples import Examples, count_words
from stages.proposal.files import files_of
from stages.proposal.lengths import Lengths, share_cut
from stages.sources._columns import GROUP, TIME
from stages.tasks._kind import SPLITS, Split

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
    kind, source, num = examples.kind, examples.source, examples.num
    yield f"Rows: {_counts(num)} ({_drawn(examples, given)})."
    if kind.has_classes:
        yield from _labels(examples)
    cut = _cut(lengths.inputs, most["max_tokens"], "text")
    cut = "longer contexts are read in windows" if kind.name == "span_qa" else cut
    words = _quantiles(examples.num_words)
    yield f"Words per text: {words}. With max_tokens {most['max_tokens']} {cut}."
    if examples.targets:
        words, longest = count_words(examples.targets, examples.script), most["max_target_tokens"]
        cut = _cut(lengths.targets, longest, "target")
        yield f"Words per target: {_quantiles(words)}. With max_target_tokens {longest} {cut}."
    if not kind.lists and files_of(source)[0].format in ("csv", "tsv"):
        yield from _swallowed(examples)
    if shared := [f"{n:,} rows of {split}" for split, n in examples.removed.items() if n]:
        yield f"Left out since a later split has the same input: {' and '.join(shared)}."
    if examples.repeated:
        yield (
            f"{examples.repeated:,} rows of train repeat an input of train, "
            f"{examples.contradicting:,} with another answer; they stay."
        )
    test, train = (
        [example.row for example in examples.by_split[split][: MOST_COMPARED[split]]]
        for split in ("test", "train")
    )
    similar = near_duplicates(test, train, kind)
    if similar.number:
        yield (
            f"{similar.number:,} of {similar.num_test:,} test rows have a near-duplicate in train, "
            f"such as {similar.example}. If rows of one user or document belong together, --group "
            "NAME draws them into one split."
        )
    yield f"Script: {examples.script.title()}."
    has_accuracy = kind.stratified or kind.right_if is not None
    if has_accuracy and 0 < num["test"] < FEW_TEST_ROWS:
        points = 100 * NORMAL_95 * math.sqrt(0.25 / num["test"])
        yield f"With {num['test']} test rows, the margin of error is about ±{points:.0f} points."
    elif 0 < num["test"] < FEW_TEST_SCORES:
        yield f"{num['test']} test rows are few: differences must be large to be seen."


def _counts(num: Mapping[Split, int]) -> str:
    return ", ".join(f"{num[split]:,} {split}" for split in SPLITS)


def _drawn(examples: Examples, given: set[str]) -> str:
    """Returns how the splits are drawn."""
    if times := times_of(examples.by_split):
        begins = ", ".join(f"{split} from {times[split][0]}" for split in SPLITS[1:])
        return f"drawn in the order of {examples.source[TIME]}, about 80/10/10: {begins}"
    if "split" in given:
        return "as the column has them; a split that it does not name is drawn from train"
    if given - {"train"}:
        drawn = [split for split in SPLITS if split not in given]
        return f"{' and '.join(drawn)} drawn from train" if drawn else "as the files have them"
    return f"drawn by a hash of {examples.source.get(GROUP) or 'the input'}, 80/10/10"


def _labels(examples: Examples) -> Iterator[str]:
    kind, by_split = examples.kind, examples.by_split
    labels = sorted(examples.labels.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{label}: {number:,}" for label, number in labels[:SHOWN_LABELS])
    more = f" and {len(labels) - SHOWN_LABELS} more" if len(labels) > SHOWN_LABELS else ""
    yield f"{'Tags' if kind.target in kind.lists else 'Labels'} in train: {shown}{more}."
    rows = [example.row for split in SPLITS for example in by_split[split]]
    if not kind.stratified and all(len(row.get("labels", ())) == 1 for row in rows):
        yield (
            "Each row has exactly one label. If that is so in all data, they are classes: write "
            "the label of each row to one column (--label NAME)."
        )
    for split in SPLITS[1:]:
        given = {label for e in by_split[split] for label in kind.labels_of(e.row)}
        if split in examples.source and len(given) == 1 < len(labels):
            yield (
                f"Every row of {split} has the label {next(iter(given))}. If it is a placeholder, "
                "leave this file out (--set train=FILE)."
            )
    if kind.stratified and labels[0][1] >= UNEVEN * labels[-1][1]:
        yield (
            f"Classes are uneven ({labels[0][1]:,} of {labels[0][0]}, {labels[-1][1]:,} of "
            f"{labels[-1][0]}): compared by macro F1, which counts each class alike."
        )


def _quantiles(words: Sequence[int] | np.ndarray) -> str:
    half, most, longest = np.quantile(words, [0.5, 0.95, 1.0])
    return f"median {half:.0f}, 95th percentile {most:.0f}, maximum {longest:.0f}"


def _cut(lengths: np.ndarray, most: int, what: str) -> str:
    cut = share_cut(lengths, most)
    many = f"about {cut:.0%} of the {what}s are cut"
    return many if cut >= MANY_CUT else f"hardly any {what} is cut"


def _swallowed(examples: Examples) -> Iterator[str]:
    """Yields a sentence about texts of many lines if most texts have one line. An unclosed
    quotation mark makes all rows up to the next mark part of one text."""
    rows = [example for split in SPLITS for example in examples.by_split[split]]
    lines = np.array([" ".join(examples.kind.texts(e.row)).strip().count("\n") + 1 for e in rows])
    if np.median(lines) == 1 and lines.max() >= ODD_LINES:
        yield (
            f"{(lines >= ODD_LINES).sum():,} texts go over {ODD_LINES} to {lines.max():,} lines, "
            "most over one: quotation marks that do not close may have swallowed rows (longest: "
            f"{rows[int(np.argmax(lines))].id})."
        )
