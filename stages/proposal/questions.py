"""What is asked about data that can be read in several ways, and what is noted: the tables in
questions.yaml, filled in."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from ruamel.yaml import YAML

_TABLES = YAML(typ="safe").load(Path(__file__).with_suffix(".yaml"))
QUESTIONS: dict[str, str] = _TABLES["questions"]
NOTES: dict[str, str] = _TABLES["notes"]
LANGUAGES: dict[str, str] = _TABLES["languages"]  # by their codes
MOST_COUNTED = 8


def _filled(text: str, values: Iterable[object]) -> str:
    """Fills in values; a list is shown between commas, a mapping as its first keys and counts."""
    shown = list[object]()
    for value in values:
        if isinstance(value, Mapping):
            value = [f"{key!r} ({number:,})" for key, number in value.items()][:MOST_COUNTED]
        shown.append(", ".join(map(str, value)) if isinstance(value, list | set) else value)
    return text.format(*shown)


class Note(str):
    """What was found in the data, or decided: a row of NOTES, filled in."""

    key: str

    def __new__(cls, key: str, *values: object) -> "Note":
        note = super().__new__(cls, _filled(NOTES[key], values))
        note.key = key
        return note


def by_weight(notes: Iterable[Note]) -> list[Note]:
    """Returns the notes in the order of NOTES, the most important first."""
    order = [*NOTES]
    return sorted(notes, key=lambda note: order.index(note.key))


class Unclear(ValueError):
    """What the data do not show, and the flag that says it: a question, filled in."""

    def __init__(self, question: str, *values: object) -> None:
        super().__init__(_filled(QUESTIONS[question], values))
