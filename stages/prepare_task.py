"""Read a task: its examples for training, validation and test, and the test labels separately."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from stages.core import paths
from stages.core.artifacts import Json, replacing, write_json, write_jsonl
from stages.core.code import code_hash
from stages.core.components import Settings, below
from stages.core.params import TaskEntry
from stages.core.plans import TaskPlan
from stages.core.process import run_stage
from stages.core.seeding import stream
from stages.sources._columns import SPLIT_SEED
from stages.sources._source import SOURCES, Labelled, Source
from stages.tasks._cells import Row
from stages.tasks._labelled_rows import stratified_order
from stages.tasks._labels import NO_LABEL_SIGNS, check_unclear
from stages.tasks._task import SPLITS, TASKS, Split, Task

BySplit = dict[Split, list[Labelled]]


class Draw(NamedTuple):
    """The examples of one draw of the splits."""

    examples: BySplit
    removed: dict[str, int]  # by split, the number of rows whose input is in a later split
    repeated: int  # number of train rows that repeat the input of another
    versions: Json


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
    task, where = plan.task, f"tasks.{key}"
    name = str(task.task.get("name", ""))
    kind = TASKS.find(name, where=f"{where}.task").for_rows()
    draws = draws_of(task, kind, where=where)
    first, examples = draws[0], draws[0].examples
    if task.split_seeds:
        examples = _united([draw.examples for draw in draws], task.split_seeds)
    labels = sorted(count_labels(examples["train"], kind))
    with below(f"{where}.task"):
        kind.check_labels(labels, task.task)
    metric, other_metric = kind.compared_by(task.task)
    train = (example.row for example in examples["train"])
    with below(f"{where}.source"):
        facts = kind.facts([row for row in train if len(row.get("draws", draws)) == len(draws)])
    numbers = {split: min(len(each.examples[split]) for each in draws) for split in SPLITS}
    shared = _repeated_later(first.examples, kind.group_key)
    # Test is left out: trials depend on this file, and their predictions must depend on no test
    # label.
    in_sight = [split for split in SPLITS if split != "test"]
    about = {
        "task": task.task,
        "kind": kind.name,
        "labels": labels,
        "metric": metric,
        "other_metric": other_metric,
        "code": code_hash(f"tasks/{name}"),
        "split_seeds": task.split_seeds or [],
        "num_examples": numbers,
        "num_labels": {split: count_labels(first.examples[split], kind) for split in in_sight},
        "duplicates_removed": first.removed,
        "duplicates_within_train": first.repeated,
        # Rows whose text is in a later split, though the inputs differ. They are not removed, since
        # the source gave the splits.
        "share_a_text": {split: sum(shared[split]) for split in in_sight},
        "versions": first.versions,
        **facts,
    }
    if times := times_of(examples):
        about["times"] = times
    hidden, originals, test = "" if kind.is_own_answer else kind.target, list[Json](), list[Json]()
    for example in examples["test"]:
        row = {"id": example.id, **{k: v for k, v in example.row.items() if k != hidden}}
        # Rows of a group resemble each other, which widens the intervals of scores.
        group = example.group if example.cluster is None else example.cluster
        test.append(row if group is None else row | {"group": group})
        unchanged = example.original or {}
        if any(example.row.get(column) != text for column, text in unchanged.items()):
            originals.append({"id": example.id, **unchanged})
    answers = ({"id": e.id, kind.target: e.row[kind.target]} for e in examples["test"])
    with (
        replacing(paths.examples(key)) as folder,
        replacing(paths.test_labels(key)) as labels_file,
        replacing(paths.test_originals(key)) as originals_file,
    ):
        folder.mkdir()
        write_json(folder / "task.json", about)
        for split in in_sight:
            write_jsonl(folder / f"{split}.jsonl", ({"id": e.id, **e.row} for e in examples[split]))
        write_jsonl(folder / "test.jsonl", test)
        write_jsonl(labels_file, answers)
        write_jsonl(originals_file, originals)
    parts = ", ".join(f"{numbers[split]:,} rows of {split}" for split in SPLITS)
    of_draws = f" in the smallest of {len(draws)} draws" if task.split_seeds else ""
    return f"{parts}{of_draws}; {len(labels)} labels"


def draws_of(task: TaskEntry, kind: Task, *, where: str) -> list[Draw]:
    """Returns the one draw of the splits, or a draw for each seed of ``task.split_seeds``. Raises
    the errors of ``main``."""
    draws = list[Draw]()
    for seed in task.split_seeds or [None]:
        seeded = {} if seed is None else {SPLIT_SEED: seed}
        source: Source = SOURCES.build({**task.source, **seeded}, where=f"{where}.source")
        try:
            labelled = list(source.examples(kind))
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
        draws.append(Draw(examples, removed, repeated, source.versions()))
    return draws


def _united(draws: Sequence[BySplit], seeds: Sequence[int]) -> BySplit:
    """Returns the rows of each split over all draws, with a column ``draws``: the seeds that drew
    the row into the split, in order."""
    united: BySplit = {}
    for split in SPLITS:
        by_id, seeds_of = dict[str, Labelled](), defaultdict[str, list[int]](list)
        for seed, draw in zip(seeds, draws, strict=True):
            for example in draw[split]:
                by_id[example.id] = example
                seeds_of[example.id].append(seed)
        # Sorted by id, so that a seed's rows have the same order whatever the other seeds are:
        # trials draw rows by position.
        rows = ((by_id[id], {"draws": seeds_of[id]}) for id in sorted(by_id))
        united[split] = [e._replace(row={**e.row, **column}) for e, column in rows]
    return united


def times_of(examples: BySplit) -> dict[Split, tuple[str, str]]:
    """Returns the first and the last time of each split, as written in the data; empty if splits
    are not drawn by time."""
    times = {s: [e.time for e in examples[s] if e.time is not None] for s in SPLITS}
    return {s: (min(some).shown, max(some).shown) for s, some in times.items() if some}


def count_labels(examples: Iterable[Labelled], kind: Task) -> Counter[str]:
    return Counter(sorted(label for example in examples for label in kind.labels_of(example.row)))


def check_kind(examples: Sequence[Labelled], kind: Task, *, where: str) -> None:
    """Raises ValueError unless the source's examples have unique ids and the columns of the task's
    kind."""
    if not examples:
        raise ValueError(f"{where}.source: no labelled example was found")
    id, number = Counter(example.id for example in examples).most_common(1)[0]
    if number > 1:
        raise ValueError(f"{where}.source: two examples have the id {id}")
    if lacking := set(kind.columns) - examples[0].row.keys():
        raise ValueError(f"{where}.task: the source gives {kind.name} no {min(lacking)}")


def check_groups(examples: Iterable[Labelled]) -> None:
    """Raises ValueError if a group is in several splits (possible only if the data gives the
    splits) or if there are too few groups for every split to have one."""
    splits_of = defaultdict[str, set[Split]](set)
    for example in examples:
        if example.group is not None:
            splits_of[example.group].add(example.split)
    if shared := sorted(group for group, splits in splits_of.items() if len(splits) > 1):
        raise ValueError(
            f"group: {len(shared):,} of {len(splits_of):,} groups are in more than one split, such "
            f"as {shared[0]!r} in {' and '.join(sorted(splits_of[shared[0]]))}"
        )
    if splits_of and len(set.union(*splits_of.values())) < len(SPLITS):
        raise ValueError(f"group: {len(splits_of):,} groups are too few to draw three splits")


def with_enough_rows(
    examples: list[Labelled], kind: Task, source: Settings, min_rows: int
) -> list[Labelled]:
    """Leaves out the labels that fewer than ``min_rows`` examples have (``Task.without_labels``).

    Raises ValueError for labels that can be read in two ways (``check_unclear``).
    """
    counts = Counter(label for e in examples for label in {*kind.labels_of(e.row)})
    if NO_LABEL_SIGNS in kind.cell_settings:
        check_unclear(counts, source)
    rare = {label for label, number in counts.items() if number < min_rows}
    rows = ((e, kind.without_labels(e.row, rare) if rare else e.row) for e in examples)
    return [e._replace(row=row) for e, row in rows if row is not None]


def without_duplicates(examples: Iterable[Labelled], kind: Task) -> tuple[BySplit, dict[str, int]]:
    """Returns the examples by split, and the number of rows that were removed from train and
    validation: those whose input is in a later split. Inputs with equal ``Task.split_key`` count as
    the same."""
    by_split: BySplit = {split: [] for split in SPLITS}
    for example in examples:
        by_split[example.split].append(example)
    is_removed = _repeated_later(by_split, kind.split_key)
    remaining = {
        split: [e for e, gone in zip(by_split[split], is_removed[split], strict=True) if not gone]
        for split in SPLITS
    }
    return remaining, {split: sum(is_removed[split]) for split in SPLITS if split != "test"}


def _repeated_later(examples: BySplit, key: Callable[[Row], str]) -> dict[Split, list[bool]]:
    """Returns, for each row of a split, whether a row of a later split has the same ``key``."""
    later, repeated = set[str](), dict[Split, list[bool]]()
    for split in reversed(SPLITS):  # test, validation, train
        keys = [key(example.row) for example in examples[split]]
        repeated[split] = [each in later for each in keys]
        later.update(keys)
    return repeated


def sampled(examples: BySplit, task: TaskEntry, kind: Task, *, where: str) -> BySplit:
    """Returns a random sample of each split, in random order, of the size that the task requests.

    Raises ValueError if a split has too few examples.
    """
    numbers = {"train": task.num_train, "validation": task.num_validation, "test": task.num_test}
    chosen: BySplit = {}
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
        size = len(available) if number == "all" else int(number)
        chosen[split] = [available[i] for i in order[:size]]
    return chosen


def check_labels(examples: BySplit, kind: Task, *, where: str) -> None:
    """Raises ValueError if train lacks a label of validation or test, or if all of train has one
    label."""
    known = count_labels(examples["train"], kind).keys()
    if kind.stratified and len(known) < 2:
        raise ValueError(f"{where}.source: all examples of train have the label {min(known)!r}")
    held_out = [example for split in SPLITS[1:] for example in examples[split]]
    total = Counter(label for e in held_out for label in {*kind.labels_of(e.row)})
    if missing := total.keys() - known:
        raise ValueError(
            f"{where}.source: no example of train has the label {min(missing)!r}; "
            f"`min_rows_per_class: {max(total[label] for label in missing) + 1}` (by --set in make "
            f"new) leaves out rows of rare labels"
        )


if __name__ == "__main__":
    run_stage(main, TaskPlan, "task")
