"""Finds the names of classes and tags that are numbers, in or beside the files of data."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from stages.core.artifacts import Json
from stages.proposal.files import NAMES, files_of

# Of a column in the card of a dataset (README.md), in YAML: {0: negative, 1: positive}.
_CARD = r"- name: {0}\n\s+(?:dtype|sequence):\n\s+class_label:\n\s+names:\n((?:\s+'?\d+'?: .*\n)+)"


def names_of_numbers(source: Json, column: str, values: Iterable[str]) -> tuple[list[str], str]:
    """Returns the names of a column's numbers from 0, and the file that has them; nothing if a
    value is no number, or no file has a name for each."""
    labels = {value for value in values if value != "-1"}
    numbers = {int(value) for value in labels if value.isdecimal()}
    for file, names in _listed(source, column) if len(numbers) == len(labels) else ():
        if file in NAMES and numbers == {*range(1, len(names) + 1)}:  # as in AG News
            names = ["0", *names]
        if max(numbers, default=len(names)) < len(names) and len(names) == len({*names}):
            return names, file
    return [], ""


def _listed(source: Json, column: str) -> Iterator[tuple[str, list[str]]]:
    """Yields the files with names of the numbers of a column, and these names."""
    import pyarrow.parquet

    for data in files_of(source):
        if data.format == "parquet":
            metadata = pyarrow.parquet.read_schema(data.path).metadata or {}
            info = json.loads(metadata.get(b"huggingface", b"{}")).get("info", {})
            feature = info.get("features", {}).get(column, {})
            yield data.name, feature.get("feature", feature).get("names", [])
    path = Path(source["path"])
    folder = path if path.is_dir() else path.parent
    for name in ("README.md", *NAMES):
        file = folder / name
        text = file.read_text("utf-8", errors="replace") if file.is_file() else ""
        card = re.search(_CARD.format(re.escape(column)), text)
        if name in NAMES:
            yield name, [line.strip() for line in text.splitlines() if line.strip()]
        elif card:
            yield name, [line.split(": ")[1].strip("'\" ") for line in card[1].splitlines()]
