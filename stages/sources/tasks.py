"""Tasks of the study as a corpus: their labelled examples as pairs of texts, for ``multi_task``, or
their texts alone."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import compress
from operator import not_
from pathlib import Path
from typing import Any, Literal

from stages.core.artifacts import read_json, read_jsonl
from stages.core.components import unknown
from stages.sources._source import Document, Labelled, Source, split_of
from stages.tasks._task import SPLITS, TASKS, Split, Task
from stages.tasks._text_form import TextForm

Row = dict[str, Any]


class Tasks(Source):
    """The train and the validation rows of ``tasks``, each a document of two sentences: the text to
    read and the text to write.

    Rows whose input another task validates (only train rows) or tests on are left out.

    A task's share of the documents is proportional to min(rows, ``limit``) ** (1 / ``temperature``)
    (Raffel et al. 2020, section 3.5.2: at 1 the mixture is proportional; higher values make it more
    equal). There are as many documents as rows: the rows of a small task are repeated, and some of
    a large task are left out. Each validation row is one document.

    All train rows are mixed, whatever the label budgets are, so a comparison with other models is
    fair only at the label budget ``all``.

    Without ``answers`` a document is the text of a train row, without its label (task-adaptive
    pretraining; Gururangan et al. 2020, section 4), and the documents for validation are a tenth of
    the train rows, drawn by a hash of the text.
    """

    running_text = False  # one sentence is read, the other is written

    def __init__(
        self,
        *,
        path: Literal["data/tasks"],  # the output of ``prepare_task``
        tasks: list[str],
        limit: int | Literal["all"] = "all",
        temperature: float = 1.0,
        answers: bool = True,
    ) -> None:
        if not tasks or len({*tasks}) < len(tasks):
            raise ValueError(f"tasks: must name some, none twice, not {tasks}")
        if limit != "all" and limit < 1:
            raise ValueError(f"limit: must be at least 1 or 'all', not {limit}")
        if temperature < 1:
            raise ValueError(f"temperature: must be at least 1, not {temperature}")
        self.tasks, self.folder = tasks, Path(path)
        self.limit, self.temperature, self.answers = limit, temperature, answers

    def check(self, kind: Task | None) -> None:
        if kind is not None:
            raise ValueError("name: tasks gives text for a corpus, not examples of another task")

    def corpus_faults(self, tasks: Mapping[str, Task], *, decontaminated: bool) -> Iterator[str]:
        for task in self.tasks:
            if task not in tasks:
                yield f"source.tasks: {unknown(task, tasks)}"
            elif self.answers and not tasks[task].has_text_form:
                yield f"source.tasks: {task} is {tasks[task].name}, which has no text form"
        if decontaminated:
            yield (
                "decontaminate_against: must be none for a corpus of tasks, which leaves out the "
                "rows that are tested on"
            )

    def documents(self) -> Iterator[Document]:
        texts = dict[str, Callable[[Row], list[str]]]()
        rows = dict[str, dict[Split, list[tuple[str, Row]]]]()  # each with the key of its split
        for task in self.tasks:
            folder = self.folder / task / "examples"
            record = read_json(folder / "task.json")
            kind = TASKS[record["kind"]]
            texts[task] = partial(_pair, kind.as_text(task, record)) if self.answers else kind.texts
            rows[task] = {
                split: [(kind.split_key(row), row) for row in read_jsonl(folder / f"{split}.jsonl")]
                for split in SPLITS
            }
        keys = {s: {key for each in rows.values() for key, _ in each[s]} for s in SPLITS}
        removed = dict[str, int]()
        for task, of_task in rows.items():
            held_out, num_train = keys["test"] | keys["validation"], len(of_task["train"])
            train = [(key, row) for key, row in of_task["train"] if key not in held_out]
            validation = [(k, row) for k, row in of_task["validation"] if k not in keys["test"]]
            removed[task] = num_train - len(train)
            if not self.answers:
                # Salted, since the source may have drawn the row's own split from the same key.
                is_drawn = [split_of(f"text {key}") == "validation" for key, _ in train]
                validation = [*compress(train, is_drawn)]
                train = [*compress(train, map(not_, is_drawn))]
            of_task |= {"train": train, "validation": validation}
        numbers = self.mixed({task: len(rows[task]["train"]) for task in self.tasks})
        for task, number in numbers.items():
            train = rows[task]["train"]
            print(
                f"{task}: {number} documents of {len(train)} rows; {removed[task]} more are left "
                "out, since another task tests on them"
            )
            for i in range(number):
                turn, at = divmod(i, len(train))
                _, row = train[at]
                yield Document(f"{task} {row['id']} {turn}", "train", texts[task](row))
            for _, row in rows[task]["validation"]:
                yield Document(f"{task} {row['id']}", "validation", texts[task](row))

    def mixed(self, rows: dict[str, int]) -> dict[str, int]:
        """Returns the number of documents of each task, given its number of ``rows``.

        Raises ValueError for a task without rows.
        """
        for task, number in rows.items():
            if not number:
                raise ValueError(f"tasks: {task} has no row that no other task tests on")
        most = max(rows.values()) if self.limit == "all" else int(self.limit)
        weights = {t: min(number, most) ** (1 / self.temperature) for t, number in rows.items()}
        total, whole = sum(rows.values()), sum(weights.values())
        return {task: max(round(total * w / whole), 1) for task, w in weights.items()}

    def examples(self, kind: Task) -> Iterator[Labelled]:
        raise AssertionError("check has refused it")


def _pair(form: TextForm, row: Row) -> list[str]:
    """Returns the text to read and the text to write."""
    return [form.input(row), form.kind.written(row, form)]
