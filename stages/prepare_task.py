"""Read a task: its examples for training, validation and test, and the test labels separately."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from stages.core import paths
from stages.core.artifacts import Json, replacing, write_json, write_jsonl
from stages.core.code import code_hash
from stages.core.components import Settings, below
from stages.core.params import Task
from stages.core.plans import TaskPlan
from stages.core.process import run_stage
from stages.core.seeding import stream
from stages.sources._columns import SPLIT_SEED
from stages.sources._source import SOURCES, Labelled, Source, check_split
from stages.tasks._kind import SPLITS, Kind, Split, settings_of
from stages.tasks._labelled_rows import stratified_order
from stages.tasks._labels import NO_LABEL_SIGNS, check_unclear
from stages.tasks._task import TASKS

MOST_SHOWN = 20  # labels that a message lists


def main(plan: TaskPlan, key: str) -> str:
    """Writes ``examples/{train,validation,test}.jsonl``, ``examples/task.json``,
    ``test_labels.jsonl`` and ``test_originals.jsonl``.

    If each fine-tuning seed draws its own splits, a split's file has the rows of all draws, the
    column ``draws`` lists the seeds that drew a row, and ``num_examples`` is the size of the
    smallest draw. Labels are collected from all draws, since the heads of all trials have the same
    labels. Facts, such as the mean of the targets, are computed from the rows that are in train in
    every draw, so that no test row affects them. Other numbers describe the first draw.

    The rows of test in ``examples`` have no labels. ``test_originals.jsonl`` has the
    original inputs of test rows in which the source masked words; corpora are searched for these.

    Train is a sample of ``num_train`` rows in random order; each trial draws its labelled rows from
    all of them (``labelled_rows``). Raises ValueError if examples do not fit the task, are fewer
    than requested, or have a label in validation or test that train lacks.
    """
    task = plan.task
    where = f"tasks.{key}"
    name, settings = str(task.task.get("name", "")), task.task
    kind = TASKS.find(name, where=f"{where}.task").for_rows()
    draws = draws_of(task, kind, where=where)
    first, examples, seeds_of = draws[0], *_united([each.examples for each in draws], task)
    labels = sorted(count_labels(examples["train"], kind))
    with below(f"{where}.task"):
        kind.check_labels(labels, settings)
    in_all = [
        example.row
        for example, column in zip(examples["train"], seeds_of["train"], strict=True)
        if len(column.get("draws", draws)) == len(draws)
    ]
    with below(f"{where}.source"):
        facts = kind.facts(in_all)
    numbers = {split: min(len(each.examples[split]) for each in draws) for split in SPLITS}
    metric, other_metric = kind.compared_by(settings)

    target = kind.target
    about = {
        "task": settings,
        "kind": kind.name,
        "labels": labels,
        "metric": metric,
        "other_metric": other_metric,
        "code": code_hash(f"tasks/{name}"),
        "split_seeds": task.split_seeds or [],
        "num_examples": numbers,
        # Test is left out: trials depend on this file, and their predictions must depend on no test
        # label.
        "num_labels": {
            split: count_labels(first.examples[split], kind) for split in SPLITS if split != "test"
        },
        "duplicates_removed": first.removed,
        "duplicates_within_train": first.repeated,
        "share_a_text": sharing(first.examples, kind),
        "versions": first.versions,
        **facts,
    }
    if times := times_of(examples):
        about["times"] = times
    with (
        replacing(paths.examples(key)) as folder,
        replacing(paths.test_labels(key)) as test_labels,
        replacing(paths.test_originals(key)) as originals,
    ):
        folder.mkdir()
        for split in SPLITS:
            hidden = target if split == "test" and not kind.is_own_answer else ""
            group = _group if split == "test" else lambda _: {}
            rows = (
                {"id": e.id, **{k: v for k, v in e.row.items() if k != hidden}, **drawn, **group(e)}
                for e, drawn in zip(examples[split], seeds_of[split], strict=True)
            )
            write_jsonl(folder / f"{split}.jsonl", rows)
        write_json(folder / "task.json", about)
        write_jsonl(test_labels, ({"id": e.id, target: e.row[target]} for e in examples["test"]))
        originals_of = ((e.id, e.row, e.original or {}) for e in examples["test"])
        changed = ({"id": id, **was} for id, row, was in originals_of if {**row, **was} != row)
        write_jsonl(originals, changed)
    parts = ", ".join(f"{numbers[split]:,} rows of {split}" for split in SPLITS)
    if task.split_seeds:
        parts += f" in the smallest of {len(draws)} draws"
    return f"{parts}; {len(labels)} labels" if labels else parts


def _group(example: Labelled) -> Json:
    """Returns the column ``group`` of a row that resembles others, for the intervals of scores."""
    group = example.group if example.cluster is None else example.cluster
    return {} if group is None else {"group": group}


class Draw(NamedTuple):
    """The examples of one draw of the splits."""

    examples: dict[Split, list[Labelled]]
    removed: dict[str, int]  # by split, the number of rows whose input is in a later split
    repeated: int  # number of train rows that repeat the input of another
    versions: Json


def draws_of(task: Task, kind: Kind, *, where: str) -> list[Draw]:
    """Returns the one draw of the splits, or a draw for each seed of ``task.split_seeds``. Raises
    the errors of ``main``, with the seed in the message."""
    draws = []
    for seed in task.split_seeds or [None]:
        seeded = {} if seed is None else {SPLIT_SEED: seed}
        source: Source = SOURCES.build({**task.source, **seeded}, where=f"{where}.source")
        try:
            draws.append(_draw(task, source, kind, where=where))
        except ValueError as error:
            more = "" if seed is None else f" (split_per_seed: in the splits of seed {seed})"
            raise ValueError(f"{error}{more}") from None
    return draws


def _draw(task: Task, source: Source, kind: Kind, *, where: str) -> Draw:
    """Reads, checks and samples the examples of one draw of the splits."""
    try:
        labelled = list(source.examples(kind))
        for example in labelled:
            check_split(example)
    except ValueError as error:
        raise ValueError(f"{where}.source: {error}") from None
    check_kind(labelled, kind, where=where)
    with below(f"{where}.source"):
        check_groups(labelled)
    with below(f"{where}.task"):
        kind.check_rows(((e.id, e.row) for e in labelled), task.task)
    labelled = [e._replace(row=kind.prepared(e.row)) for e in labelled]
    with below(f"{where}.source"):
        labelled = with_enough_rows(labelled, kind, task.source, task.min_rows_per_class)
    examples, removed = without_duplicates(labelled, kind)
    repeated = len(examples["train"]) - len({kind.same_input(e.row) for e in examples["train"]})
    examples = sampled(examples, task, kind, where=where)
    if kind.has_classes:
        check_labels(examples, kind, where=where)
    return Draw(examples, removed, repeated, source.versions())


def _united(
    draws: Sequence[dict[Split, list[Labelled]]], task: Task
) -> tuple[dict[Split, list[Labelled]], dict[Split, list[Json]]]:
    """Returns the rows of each split over all draws, and for each row its column ``draws``: the
    seeds that drew the row into the split, in order. If all seeds share one draw, rows have no such
    column."""
    if not task.split_seeds:
        return draws[0], {split: [{} for _ in draws[0][split]] for split in SPLITS}
    examples: dict[Split, list[Labelled]] = {}
    columns: dict[Split, list[Json]] = {}
    for split in SPLITS:
        seeds_of: dict[str, list[int]] = defaultdict(list)
        for seed, draw in zip(task.split_seeds, draws, strict=True):
            for example in draw[split]:
                seeds_of[example.id].append(seed)
        by_id = {e.id: e for draw in draws for e in draw[split]}
        # Sorted by id, so that a seed's rows have the same order whatever the other seeds are:
        # trials draw rows by position.
        ids = sorted(by_id)
        examples[split] = [by_id[id] for id in ids]
        columns[split] = [{"draws": seeds_of[id]} for id in ids]
    return examples, columns


def count_labels(examples: Iterable[Labelled], kind: Kind) -> Counter[str]:
    return Counter(sorted(label for example in examples for label in kind.labels_of(example.row)))


def check_kind(examples: list[Labelled], kind: Kind, *, where: str) -> None:
    """Raises ValueError unless the source's examples have unique ids and the columns of the task's
    kind."""
    if not examples:
        raise ValueError(f"{where}.source: no labelled example was found")
    seen: set[str] = set()
    for example in examples:
        if example.id in seen:
            raise ValueError(f"{where}.source: two examples have the id {example.id}")
        seen.add(example.id)
        if not set(kind.columns) <= example.row.keys():
            given, needed = ", ".join(example.row), " and ".join(kind.columns)
            raise ValueError(
                f"{where}.task: {kind.name} needs {needed}, but {example.id} has {given}"
            )


def check_groups(examples: Iterable[Labelled]) -> None:
    """Raises ValueError if a group is in several splits (possible only if the data gives the
    splits) or if there are too few groups for every split to have one."""
    splits_of: dict[str, set[Split]] = defaultdict(set)
    for example in examples:
        if example.group is not None:
            splits_of[example.group].add(example.split)
    if shared := sorted(group for group, splits in splits_of.items() if len(splits) > 1):
        raise ValueError(
            f"group: {len(shared):,} of {len(splits_of):,} groups are in more than one split, such "
            f"as {shared[0]!r} in {' and '.join(sorted(splits_of[shared[0]]))}"
        )
    counts = Counter(split for splits in splits_of.values() for split in splits)
    if splits_of and len(counts) < len(SPLITS):
        counted = ", ".join(f"{counts[split]:,} in {split}" for split in SPLITS)
        raise ValueError(
            f"group: {len(splits_of):,} groups are too few to draw three splits ({counted})"
        )


def with_enough_rows(
    examples: list[Labelled], kind: Kind, source: Settings, min_rows: int
) -> list[Labelled]:
    """Leaves out the labels that fewer than ``min_rows`` examples have (``Kind.without_labels``).

    Raises ValueError for labels that can be read in two ways (``check_unclear``).
    """
    counts = Counter(label for e in examples for label in {*kind.labels_of(e.row)})
    if NO_LABEL_SIGNS in settings_of(kind):
        check_unclear(counts, source)
    rare = {label for label, number in counts.items() if number < min_rows}
    rows = ((e, kind.without_labels(e.row, rare) if rare else e.row) for e in examples)
    return [e._replace(row=row) for e, row in rows if row is not None]


def without_duplicates(
    examples: Iterable[Labelled], kind: Kind
) -> tuple[dict[Split, list[Labelled]], dict[str, int]]:
    """Returns the examples by split, and the number of rows that were removed.

    Rows of train whose input is in validation or test are removed, and rows of validation whose
    input is in test. Inputs with equal ``Kind.split_key`` count as the same.
    """
    by_split: dict[Split, list[Labelled]] = {split: [] for split in SPLITS}
    for example in examples:
        by_split[example.split].append(example)
    held_out: set[str] = set()
    removed = {}
    for split in reversed(SPLITS):  # test, validation, train
        remaining = [e for e in by_split[split] if kind.split_key(e.row) not in held_out]
        held_out.update(kind.split_key(e.row) for e in remaining)
        removed[split] = len(by_split[split]) - len(remaining)
        by_split[split] = remaining
    return by_split, {split: removed[split] for split in SPLITS if split != "test"}


def sharing(examples: dict[Split, list[Labelled]], kind: Kind) -> dict[str, int]:
    """Returns how many rows of train and of validation share a text (``Kind.group_key``) with a row
    of a later split, though the inputs differ. They are not removed, since the source gave the
    splits."""
    later: set[str] = set()
    num_sharing = {}
    for split in reversed(SPLITS):  # test, validation, train
        keys = [kind.group_key(e.row) for e in examples[split]]
        num_sharing[split] = sum(key in later for key in keys)
        later.update(keys)
    return {split: num_sharing[split] for split in SPLITS if split != "test"}


def times_of(examples: dict[Split, list[Labelled]]) -> dict[Split, tuple[str, str]]:
    """Returns the first and the last time of each split, as written in the data; empty if splits
    are not drawn by time."""
    times = {s: [e.time for e in examples[s] if e.time is not None] for s in SPLITS}
    return {s: (min(some).shown, max(some).shown) for s, some in times.items() if some}


def sampled(
    examples: dict[Split, list[Labelled]], task: Task, kind: Kind, *, where: str
) -> dict[Split, list[Labelled]]:
    """Returns a random sample of each split, in random order, of the size that the task requests.

    Raises ValueError if a split has too few examples.
    """
    numbers = {"train": task.num_train, "validation": task.num_validation, "test": task.num_test}
    chosen: dict[Split, list[Labelled]] = {}
    for split in SPLITS:
        available, number = examples[split], numbers[split]
        if not available or (number != "all" and int(number) > len(available)):
            raise ValueError(
                f"{where}.num_{split}: {number} requested, but {split} has "
                f"{len(available)} examples"
            )
        rng = stream(task.seed, "sample", split)
        if split == "train" and kind.stratified:
            order = stratified_order([kind.labels_of(e.row)[0] for e in available], rng)
        else:
            order = rng.permutation(len(available)).tolist()
        chosen[split] = [
            available[i] for i in order[: len(available) if number == "all" else int(number)]
        ]
    return chosen


def check_labels(examples: dict[Split, list[Labelled]], kind: Kind, *, where: str) -> None:
    """Raises ValueError if train lacks a label of validation or test, or if all of train has one
    label."""
    known = count_labels(examples["train"], kind).keys()
    if kind.stratified and len(known) < 2:
        raise ValueError(f"{where}.source: all examples of train have the label {min(known)!r}")
    held_out = [example for split in SPLITS[1:] for example in examples[split]]
    missing = {label for e in held_out for label in kind.labels_of(e.row)} - known
    if missing:
        label = min(missing)
        first = next(example for example in held_out if label in kind.labels_of(example.row))
        rows = [example.row for split in SPLITS for example in examples[split]]
        total = Counter(label for row in rows for label in {*kind.labels_of(row)})
        least = max(total[label] for label in missing) + 1
        rare = sorted((number, label) for label, number in total.items() if number < least)
        shown = ", ".join(f"{label!r} ({number:,})" for number, label in rare[:MOST_SHOWN])
        raise ValueError(
            f"{where}.source: no example of train has the label {label!r} of {first.split} row "
            f"{first.id}; `min_rows_per_class: {least}` (by --set in make new) leaves "
            f"out the {len(rare)} labels of fewer rows: {shown}"
        )


if __name__ == "__main__":
    run_stage(main, TaskPlan, "task")
