"""The inputs of new rows: which columns are required, and what a cell may hold."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.core.artifacts import read_json
from stages.tasks._task import TASKS, Task

WORDS = "words"  # an input that may be one text with blanks between words


@dataclass(frozen=True)
class Columns:
    """The columns that a task reads."""

    kind: str  # name of the rows' kind
    inputs: tuple[str, ...]  # required in every row
    optional: tuple[str, ...]

    @classmethod
    def of(cls, examples: Path) -> "Columns":
        """Returns the columns of the task that ``prepare_task`` wrote to ``examples``. An optional
        input that the train rows have (the second text of a pair) is required."""
        name = read_json(examples / "task.json")["kind"]
        inputs, optional = TASKS[name].inputs, TASKS[name].optional
        with (examples / "train.jsonl").open(encoding="utf-8") as file:
            trained_with = json.loads(file.readline())
        required = tuple(key for key in optional if key in trained_with)
        rest = tuple(key for key in optional if key not in required)
        return cls(name, (*inputs, *required), rest)


def input_of(value: Any, place: str, kind: Task, key: str) -> Any:
    """Returns the text, the words or the list of texts in a cell of the input ``key``.

    Raises ValueError for an invalid cell; the message begins with ``place``.
    """
    content = kind.read(key, value, {}, place)
    try:
        "".join(content).encode()
    except UnicodeEncodeError:
        raise ValueError(f"{place} is not valid Unicode: half a surrogate pair") from None
    return content
