"""Read a task: labelled examples for training, validation and test, the test labels apart."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable

import numpy as np

from stages.core import paths
from stages.core.artifacts import replacing, sha256, write_json, write_jsonl
from stages.core.code import code_of
from stages.core.components import unknown
from stages.core.params import Params, Task, entry
from stages.core.process import run_stage
from stages.core.seeding import stream
from stages.kinds._kind import KINDS, SPLITS, Kind, Split, metrics_of, plain_text, rows_in_budget
from stages.kinds._text_form import label_words
from stages.sources._source import SOURCES, Labelled, Source, same_input, split_key


def main(params: Params, key: str) -> None:
    """Writes ``examples/{train,validation,test}.jsonl``, of which test has no labels,
    ``examples/task.json``, and ``test_labels.jsonl``.

    The order of train is random, and every prefix of it is a sample: n labels are its first n
    rows. Raises ValueError where examples do not fit the task, are fewer than asked for or than a
    label budget, or have a label in validation or test that train lacks.
    """
    task = entry(params.tasks, key, where="tasks")
    where = f"tasks.{key}"
    name = str(task.task.get("name", ""))
    if name not in KINDS:
        raise ValueError(f"{where}.task.name: {unknown(name, KINDS)}")
    kind = KINDS[name]
    source: Source = SOURCES.build(task.source, where=f"{where}.source")
    try:
        found = list(source.examples(kind))
    except ValueError as error:
        raise ValueError(f"{where}.source: {error}") from None
    check_kind(found, name, where=where)
    if kind.target == "answers" and not task.task.get("no_answer", False):
        check_answered(found, where=where)
    if kind.is_own_answer:
        found = [e._replace(row={"text": plain_text(e.row["text"])}) for e in found]
    examples, removed = without_duplicates(found)
    repeated = len(examples["train"]) - len({same_input(e.row) for e in examples["train"]})
    examples = sampled(examples, task, kind, where=where)
    for budget in params.finetune.label_budgets:
        rows_in_budget(budget, len(examples["train"]), task=key)
    if kind.has_classes:
        check_labels(examples, kind, where=where)
    labels, metrics = sorted(count_labels(examples["train"])), metrics_of(task.task)
    if metrics[0] == "entity_f1":
        check_spans(labels, where=where)
    if verbalisers := task.task.get("verbalisers"):
        try:
            label_words(labels, verbalisers)
        except ValueError as error:
            raise ValueError(f"{where}.task.{error}") from None

    target = kind.target
    about = {
        "task": task.task,
        "kind": name,
        "labels": labels,
        "metric": metrics[0],
        "other_metric": metrics[1],
        "code": sha256(*code_of(f"tasks/{name}")),
        "num_examples": {split: len(examples[split]) for split in SPLITS},
        "num_labels": {split: count_labels(examples[split]) for split in SPLITS},
        "duplicates_removed": removed,
        "duplicates_within_train": repeated,
        "versions": source.versions(),
    }
    with (
        replacing(paths.examples(key)) as folder,
        replacing(paths.test_labels(key)) as test_labels,
    ):
        folder.mkdir()
        for split in SPLITS:
            hidden = target if split == "test" and not kind.is_own_answer else ""
            rows = (
                {"id": e.id, **{k: v for k, v in e.row.items() if k != hidden}}
                for e in examples[split]
            )
            write_jsonl(folder / f"{split}.jsonl", rows)
        write_json(folder / "task.json", about)
        write_jsonl(test_labels, ({"id": e.id, target: e.row[target]} for e in examples["test"]))


def labels_of(example: Labelled) -> list[str]:
    """The classes that a row is an example of; none if its answer is free text."""
    row = example.row
    return row["tags"] if "tags" in row else [row["label"]] if "label" in row else []


def count_labels(examples: Iterable[Labelled]) -> dict[str, int]:
    return dict(sorted(Counter(label for e in examples for label in labels_of(e)).items()))


def check_kind(examples: list[Labelled], name: str, *, where: str) -> None:
    """Raises ValueError unless the source's examples are of the task's kind, each with an id of
    its own."""
    if not examples:
        raise ValueError(f"{where}.source: no labelled example was found")
    needed = [column for column in (*KINDS[name].inputs, KINDS[name].target) if column]
    seen: set[str] = set()
    for example in examples:
        if example.id in seen:
            raise ValueError(f"{where}.source: two examples have the id {example.id}")
        seen.add(example.id)
        if not set(needed) <= example.row.keys():
            given = ", ".join(example.row)
            raise ValueError(
                f"{where}.task: {name} needs {' and '.join(needed)}, but {example.id} has {given}"
            )


def check_answered(examples: Iterable[Labelled], *, where: str) -> None:
    """Raises ValueError for a question without an answer."""
    for example in examples:
        if not example.row["answers"]:
            raise ValueError(
                f"{where}.task.no_answer: is false, but the question of row {example.id} has none; "
                "true lets a prediction be that there is no answer, and unanswerable: drop in the "
                "source leaves such questions out"
            )


def without_duplicates(
    examples: Iterable[Labelled],
) -> tuple[dict[Split, list[Labelled]], dict[str, int]]:
    """Examples by split; train without the inputs of validation or test, validation without those
    of test, and how many were removed for that. Case and blanks make no difference; of questions
    all about one context count as one input."""
    by_split: dict[Split, list[Labelled]] = {split: [] for split in SPLITS}
    for example in examples:
        by_split[example.split].append(example)
    held_out: set[str] = set()
    removed = {}
    for split in reversed(SPLITS):  # test, validation, train
        kept = [e for e in by_split[split] if split_key(e.row) not in held_out]
        held_out.update(split_key(e.row) for e in kept)
        removed[split] = len(by_split[split]) - len(kept)
        by_split[split] = kept
    return by_split, {split: removed[split] for split in SPLITS if split != "test"}


def sampled(
    examples: dict[Split, list[Labelled]], task: Task, kind: Kind, *, where: str
) -> dict[Split, list[Labelled]]:
    """As many examples of each split as the task asks for."""
    numbers = {"train": task.num_train, "validation": task.num_validation, "test": task.num_test}
    chosen: dict[Split, list[Labelled]] = {}
    for split in SPLITS:
        there, asked = examples[split], numbers[split]
        if not there or (asked != "all" and int(asked) > len(there)):
            raise ValueError(
                f"{where}.num_{split}: {asked} asked for, but {split} has {len(there)} examples"
            )
        rng = stream(task.seed, "sample", split)
        stratified = split == "train" and kind.target == "label"
        order = stratified_order(there, rng) if stratified else rng.permutation(len(there))
        chosen[split] = [there[i] for i in order[: len(there) if asked == "all" else int(asked)]]
    return chosen


def stratified_order(examples: list[Labelled], rng: np.random.Generator) -> list[int]:
    """A random order in which each class's share of every prefix is its share of the whole, to
    within one example, and the first rows are one of each class.

    The i-th of the n examples of a class stands at the place i / n; ties are broken at random.
    """
    seen: dict[str, int] = defaultdict(int)
    totals = Counter(e.row["label"] for e in examples)
    places = []
    for tie, index in enumerate(rng.permutation(len(examples)).tolist()):
        label = examples[index].row["label"]
        places.append((seen[label] / totals[label], tie, index))
        seen[label] += 1
    return [index for _, _, index in sorted(places)]


def check_labels(examples: dict[Split, list[Labelled]], kind: Kind, *, where: str) -> None:
    """Raises ValueError for a label in validation or test that no example of train has."""
    known = {label for e in examples["train"] for label in labels_of(e)}
    if kind.target == "label" and len(known) < 2:
        raise ValueError(f"{where}.source: all examples of train have the label {min(known)!r}")
    for split in SPLITS[1:]:
        for example in examples[split]:
            for label in labels_of(example):
                if label not in known:
                    raise ValueError(
                        f"{where}.source: no example of train has the label {label!r}"
                        f" of {split} row {example.id}"
                    )


def check_spans(tags: Iterable[str], *, where: str) -> None:
    """Raises ValueError for a tag that is no part of a span, as parts of speech are."""
    for tag in tags:
        if tag != "O" and not re.fullmatch(r"[BI]-.+", tag):
            raise ValueError(
                f"{where}.task.metric: entity_f1 is of spans in O, B-TYPE and I-TYPE, and train "
                f"has the tag {tag!r}; word_accuracy is of single tags, and tag_scheme in the "
                "source reads spans that are written otherwise"
            )


if __name__ == "__main__":
    run_stage(main, "task", repeats=lambda raw, key: [raw["tasks"][key]])
