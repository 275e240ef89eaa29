"""Reads a file of new rows as the source of a task reads its own files."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from stages.core import paths, plans
from stages.core.artifacts import Json, read_json
from stages.core.components import Settings
from stages.sources._columns import (
    EMPTY_CELLS,
    NONE,
    Cells,
    MissingColumnError,
    Name,
    cell,
    input_of,
    names_in_data,
    no_column,
)
from stages.sources._formats import DELIMITERS, FORMATS, Record, format_of, read, records
from stages.sources.files import PARALLEL
from stages.tasks._cells import EmptyCellError
from stages.tasks._task import TASKS, Task

# The column of the first input in formats whose columns have no names.
ONE_COLUMN = {"txt": "text", "conll": "1", "conllu": "FORM"}
MAX_FIRST = 100  # rows whose cells show the columns of a file; an object of JSON may lack a key
STUDY, OWN = 2, 1  # whose names the columns of a file have; 0: it lacks a column


class NewRow(NamedTuple):
    """A row of a file: its ``cells``, what identifies it (its id or its line), and the row as the
    task reads it, which is None if a cell is empty and the study leaves out such rows."""

    cells: Cells
    shown: Json
    row: Json | None


class Reading(NamedTuple):
    """A way to read a file: the ``arguments`` of ``read``, the ``columns`` of its first rows, the
    ``names`` of the columns that the task reads, and ``fit``: whether these are names of the
    study's data (STUDY) or of the task's rows (OWN)."""

    arguments: Json
    columns: Cells
    names: list[str]
    fit: int

    @property
    def delimiter(self) -> str | None:
        """The sign between the columns of csv and tsv files."""
        return DELIMITERS.get(self.arguments.get("delimiter", NONE))


@dataclass(frozen=True)
class NewFile:
    """A file of new rows, or the lines of the standard input."""

    path: Path | None
    lines: Sequence[bytes] = ()
    format: str | None = None  # by default that of the file's name and of the study

    def __str__(self) -> str:
        return str(self.path or "stdin")

    def records(self, format: str, arguments: Json) -> Iterator[Record]:
        if self.path is None:
            return records(self.lines, format, name="stdin", **arguments)
        return read(self.path, format, **arguments)


@dataclass(frozen=True)
class TaskInputs:
    """The inputs of a task: those that every row needs, those that it may have, the settings of the
    task's ``source``, and the columns that the user has named."""

    task: str
    kind: Task
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    source: Settings = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, task: str, renamed: Mapping[str, str]) -> "TaskInputs":
        """Returns the inputs of a task that `prepare_task` has written. An optional input that its
        train rows have (the second text of a pair) is required, and so is a ``renamed`` one.

        Raises ValueError for a name in ``renamed`` that is no input.
        """
        examples, plan = paths.examples(task), plans.path_of("prepare_task", task)
        kind = TASKS[read_json(examples / "task.json")["kind"]]
        with (examples / "train.jsonl").open(encoding="utf-8") as file:
            needed = {*json.loads(file.readline()), *renamed}
        if unknown := [key for key in renamed if key not in (*kind.inputs, *kind.optional)]:
            inputs = ", ".join((*kind.inputs, *kind.optional))
            raise ValueError(f"--column: {task} has no input {unknown[0]!r}; its inputs: {inputs}")
        required = (*kind.inputs, *(key for key in kind.optional if key in needed))
        rest = tuple(key for key in kind.optional if key not in needed)
        source = read_json(plan)["task"]["source"] if plan.is_file() else {}
        return cls(task, kind, required, rest, source, renamed)

    @property
    def study_names(self) -> list[Name]:
        """The columns of the required inputs in the data of the study."""
        return [names_in_data(self.source, key)[0] for key in self.required]

    def format_of(self, file: NewFile) -> str:
        """Returns the format of a file: the study's ``format``, if the file's name ends as those of
        the study do, or in no known format. Raises ValueError if it is unknown."""
        given, own = file.format, self.source.get("format", "auto")
        if given is None and file.path is not None:
            given, train = format_of(file.path), self.source.get("train", ())
            files = [self.source.get("path", ""), *([train] if isinstance(train, str) else train)]
            if own != "auto" and given not in {*FORMATS} - {format_of(Path(f)) for f in files}:
                given = "txt" if own == PARALLEL else own
        given = given or "txt"
        if given not in FORMATS or (file.path is None and given == "parquet"):
            raise ValueError(f"--format: {file} has none of the formats {', '.join(FORMATS)}")
        return given

    def reading(self, file: NewFile) -> Reading:
        """Returns how to read the file: as the study's files if that gives the columns of the task,
        else with the delimiter or the header that does. A file without a header may lack the column
        of the answers."""
        format = self.format_of(file)
        tried = [self._tried(file, format, arguments) for arguments in self._ways(format)]
        return max(tried, key=lambda way: (way.fit, len(way.columns)))  # the first of equal ones

    def _ways(self, format: str) -> Iterator[Json]:
        names, target = self.source.get("columns", NONE), self.source.get(self.kind.target)
        if names == NONE and format == "conll":
            names = [self.source.get(key, key) for key in ("words", "tags")]
        target = self.kind.target if target in (None, NONE) else target
        listed = [] if isinstance(names, str) else [names, [n for n in names if n != target]]
        if format in ("csv", "tsv"):
            usual = "comma" if format == "csv" else "tab"
            own = self.source.get("delimiter", "auto")
            for delimiter in dict.fromkeys([usual if own == "auto" else own, usual, *DELIMITERS]):
                yield from ({"columns": c, "delimiter": delimiter} for c in (None, *listed))
        elif format == "conll":
            yield from ({"columns": columns} for columns in (*listed, None))
        else:
            yield {}

    def _tried(self, file: NewFile, format: str, arguments: Json) -> Reading:
        columns: Json = {}
        with suppress(ValueError):  # of a row, which is raised again when the file is read
            for record in islice(file.records(format, arguments), MAX_FIRST):
                columns |= record.cells
        matches = [
            next((each for each in self._names(key, format) if _has(columns, each[0])), (key, 0))
            for key in self.required
        ]
        return Reading(
            arguments, columns, [shown(name) for name, _ in matches], min(fit for _, fit in matches)
        )

    def _names(self, key: str, format: str) -> Iterator[tuple[Name, int]]:
        """Yields the names that the column of an input may have, the study's first."""
        if key in self.renamed:
            yield self.renamed[key], STUDY
            return
        yield from zip(names_in_data(self.source, key), (STUDY, OWN), strict=False)
        if key == self.kind.inputs[0] and format in ONE_COLUMN:
            yield ONE_COLUMN[format], OWN

    def rows(self, file: NewFile, reading: Reading) -> Iterator[NewRow]:
        """Yields the rows of a file. Raises ValueError, with the file and the line, for a row
        without a required input; if the study leaves out rows with an empty cell, only for a file
        without the column."""
        format = self.format_of(file)
        for number, record in enumerate(file.records(format, reading.arguments)):
            cells, row = record.cells, None
            if format == "txt":
                cells["text"] = cells["text"].rstrip("\r\n")
            try:
                inputs = self._inputs(cells, f"{file} {record.place}", format, reading.columns)
                row = {"id": str(number)} | dict(inputs)
            except EmptyCellError:
                if self.source.get(EMPTY_CELLS) != "skip":
                    raise
            unit, _, count = record.place.partition(" ")  # such as "line 3"
            own_id = cells.get("id", record.key if unit == "question" else None)
            shown: Json = {unit: int(count)} if own_id is None else {"id": own_id}
            yield NewRow(cells, shown, row)

    def _inputs(
        self, cells: Cells, place: str, format: str, columns: Cells
    ) -> Iterator[tuple[str, Any]]:
        """Yields each input that a row has. ``columns`` are those of the file: a key that an object
        of JSON lacks is an empty cell if others have it."""
        for key in (*self.required, *self.optional):
            names = [name for name, _ in self._names(key, format)]
            name = next((name for name in names if _has(columns, name)), names[0])
            with suppress(*[EmptyCellError] * (key in self.optional)):
                if _has(cells, name):
                    at = f"{place}: {shown(name)}"
                    yield key, input_of(_value(cells, name), at, self.kind, key)
                elif key in self.required or _has(columns, name):
                    error = EmptyCellError if _has(columns, name) else ValueError
                    raise error(
                        f"{place}: {no_column(shown(name), cells)}; to name another: "
                        f'--column {key}=COLUMN (of make FLAGS="--column {key}=COLUMN")'
                    )


def fitting(file: NewFile, tasks: Collection[TaskInputs]) -> tuple[TaskInputs, Reading]:
    """Returns the only task whose inputs are columns of the file, by the names in the data of the
    study or else by the names of the inputs, and how the file is read.

    Raises ValueError if no task fits or if several do.
    """
    read = [(task, task.reading(file)) for task in tasks]
    best = max(reading.fit for _, reading in read)
    matches = [(task, reading) for task, reading in read if reading.fit == best]
    if len(matches) == 1:
        return matches[0]
    say = f"name the task: TASK={matches[0][0].task} (--task {matches[0][0].task})"
    if best:
        names = " and ".join(task.task for task, _ in matches)
        raise ValueError(f"{file} has the columns of the tasks {names}; {say}")
    columns = max((reading.columns for _, reading in read), key=len)
    needed = "; ".join(f"{t.task} reads {', '.join(map(shown, t.study_names))}" for t in tasks)
    raise ValueError(f"{file} has the columns {', '.join(columns)}; {needed}; {say}")


def _has(cells: Cells, name: Name) -> bool:
    try:
        _value(cells, name)
    except MissingColumnError:
        return False
    return True


def _value(cells: Cells, name: Name) -> Any:
    if isinstance(name, str):
        return cell(cells, name, "")
    return {each: cell(cells, each, "") for each in name}


def shown(name: Name) -> str:
    return name if isinstance(name, str) else ", ".join(name)
