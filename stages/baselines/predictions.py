import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from stages.baselines._baseline import Baseline, Row, Score
from stages.core.components import unknown
from stages.sources._columns import input_of
from stages.sources._formats import format_of, read
from stages.tasks._cells import EmptyCellError, short, structure_of
from stages.tasks._task import TASKS, Task
from stages.tasks._text_form import NO_LABEL

FOLDER = Path("predictions")  # dvc.yaml makes the root stage depend on it
FORMATS = ("csv", "tsv", "jsonl", "json", "parquet")
COLUMN = "prediction"


class Predictions(Baseline):
    """The predictions of an external system (a prompted language model, a rule, the system in
    production), read from files below `predictions/`.

    `path` is a file if the study has one task, else a folder with a file for each task, named
    `TASK.csv` (or tsv, jsonl, json, parquet). A file has the columns of the task's inputs, which
    `python -m stages.commands.inputs TASK` writes, and `prediction`, in the form in which the
    task's data has its answers. Rows are matched by their inputs, up to white space. `about`
    describes the system in the report.
    """

    fits = tuple(kind.name for kind in TASKS.values() if not kind.is_own_answer)
    num_tries = 0

    def __init__(self, *, path: str = str(FOLDER), about: str = "") -> None:
        self.path, self.about = Path(os.path.normpath(path)), about

    def files(self, tasks: Sequence[str]) -> dict[str, Path]:
        path, files = self.path, dict[str, Path]()
        if not path.is_relative_to(FOLDER):
            raise ValueError(f"path: {path} is not below {FOLDER}/, the folder that DVC watches")
        if path.is_file() and len(tasks) == 1:
            return {tasks[0]: path}
        for file in sorted(path.iterdir() if path.is_dir() else ()):
            if format_of(file) in FORMATS:
                task = file.name.partition(".")[0]
                if task not in tasks:
                    raise ValueError(f"path: {file} is named after no task: {unknown(task, tasks)}")
                if files.setdefault(task, file) != file:
                    raise ValueError(f"path: {files[task]} and {file} are of one task; remove one")
        if not files:
            named = ", ".join(f"{task}.csv" for task in tasks)
            raise ValueError(f"path: {path} must be a folder with a file for each task: {named}")
        return files

    def check_file(self, file: Path, kind: Task) -> None:
        _read(file, kind)

    def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
        """Stores the names of the labels, with which predictions are compared. No row is used."""
        self.kind, self.labels = score.kind, score.labels

    def predict(self, rows: Sequence[Row]) -> list[str]:
        """Returns the system's prediction for each row.

        Raises ValueError for rows without a prediction, and for labels that train does not have.
        """
        columns = tuple(self.kind.inputs_of(rows[0]))
        predicted = _read(self.path, self.kind, columns)
        keys = [_key(row, columns) for row in rows]
        if missing := [row for row, key in zip(rows, keys, strict=True) if key not in predicted]:
            raise ValueError(
                f"path: {self.path}: no prediction for {len(missing):,} of {len(rows):,} test "
                f"inputs, the first of which is {short(self.kind.texts(missing[0])[0])}; `python "
                "-m stages.commands.inputs TASK` writes all inputs"
            )
        for prediction in map(predicted.__getitem__, keys):
            if wrong := [label for label in prediction.labels if label not in self.labels]:
                place = f"path: {prediction.place}: {COLUMN}"
                raise ValueError(f"{place}: {unknown(wrong[0], [*self.labels, NO_LABEL])}")
        if ignored := len(predicted) - len({*keys}):
            note = f"ignored, since test does not have these inputs: {ignored:,}"
            print(f"note: {self.path}: {note}", file=sys.stderr)
        return [predicted[key].answer for key in keys]


Key = tuple[str, ...]  # the inputs of a row, up to white space


class _Predicted(NamedTuple):
    """A prediction, from one row of a file."""

    place: str  # for messages
    answer: str  # written as `Task.answer` writes it
    labels: list[str]


def _read(file: Path, kind: Task, columns: tuple[str, ...] | None = None) -> dict[Key, _Predicted]:
    """Returns the predictions in a file by their inputs in ``columns``, which are by default all
    input columns of the kind that the file has.

    Raises ValueError for a file that cannot be read, lacks a column or has no rows, for a
    prediction that does not fit its input, and for an input with two predictions.
    """
    predicted: dict[Key, _Predicted] = {}
    try:
        for record in read(file, format_of(file)):
            cells, place = record.cells, f"{file} {record.place}"
            if columns is None:
                columns = (*kind.inputs, *(name for name in kind.optional if name in cells))
            if missing := [name for name in (*columns, COLUMN) if name not in cells]:
                raise ValueError(
                    f"{place}: no column {missing[0]!r}; there are: {', '.join(cells)}"
                )
            row = {name: input_of(cells[name], f"{place}: {name}", kind, name) for name in columns}
            new = _predicted(cells[COLUMN], row, kind, place)
            first = predicted.setdefault(_key(row, columns), new)
            if first.answer != new.answer:
                raise ValueError(f"{place}: {COLUMN} differs from that of the equal {first.place}")
        if not predicted:
            raise ValueError(f"{file} has no rows")
    except ValueError as error:
        raise ValueError(f"path: {error}") from None
    return predicted


def _predicted(cell: Any, row: dict[str, Any], kind: Task, place: str) -> _Predicted:
    """Returns the prediction in a cell, read as the kind reads answers in the task's data."""
    if kind.name == "span_qa":  # a text, not places as in the data; empty: no answer
        return _Predicted(place, "" if cell is None else str(cell).strip(), [])
    if cell == NO_LABEL and kind.target == "label":  # the system's answer was no label
        return _Predicted(place, NO_LABEL, [])
    if kind.target in kind.lists and isinstance(cell, str):
        cell = structure_of(cell) or cell.split()
    at = f"{place}: {COLUMN}"
    with suppress(EmptyCellError):
        answered = kind.checked(row | {kind.target: kind.read(kind.target, cell, row, at)}, at)
        if answered is not None:
            return _Predicted(place, kind.answer(answered), kind.labels_of(answered))
    raise ValueError(f"{at} is empty, or the sign of no label; every input needs one")


def _key(row: Row, columns: Sequence[str]) -> Key:
    cells = ([row[name]] if isinstance(row[name], str) else row[name] for name in columns)
    return tuple("\0".join(" ".join(text.split()) for text in cell) for cell in cells)
