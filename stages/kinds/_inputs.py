"""The inputs of new rows: which columns they must have, and what a cell holds."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.core.artifacts import read_json
from stages.kinds._cells import list_of
from stages.kinds._kind import KINDS, Kind

WORDS = "words"  # an input that may be one text, whose words are separated by blanks


@dataclass(frozen=True)
class Columns:
    """The columns that a task reads."""

    kind: str  # of its rows
    inputs: tuple[str, ...]  # which every row must have
    optional: tuple[str, ...]

    @classmethod
    def of(cls, examples: Path) -> "Columns":
        """Of the task that ``prepare_task`` wrote there. Optional inputs that its models are
        trained with (the second text of a pair) are inputs that every row must have."""
        name = read_json(examples / "task.json")["kind"]
        inputs, optional = KINDS[name].inputs, KINDS[name].optional
        with (examples / "train.jsonl").open(encoding="utf-8") as file:
            trained_with = json.loads(file.readline())
        required = tuple(key for key in optional if key in trained_with)
        rest = tuple(key for key in optional if key not in required)
        return cls(name, (*inputs, *required), rest)


def input_of(value: Any, place: str, kind: Kind, key: str) -> Any:
    """The text, the words or the list of texts that a cell holds for the input ``key``.

    Raises ValueError, which begins with ``place``, for what cannot be one.
    """
    if key == WORDS:
        found = value.split() if isinstance(value, str) else value
        if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
            raise ValueError(f"{place} must be words, not {value!r}")
        text = " ".join(found)
    elif key in kind.lists:
        found = list_of(value, place)
        text = " ".join(found)
    else:
        if not isinstance(value, str | int | float):
            raise ValueError(f"{place} must be text, not {value!r}")
        found = text = str(value)
    if not text.strip():
        raise ValueError(f"{place} is empty")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{place} is not valid Unicode: half a surrogate pair") from None
    return found
