"""Limits on the size of YAML files, which may come from strangers."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Far above the largest study, and far below what a machine can hold.
MOST_BYTES = 2**25
MOST_DEPTH = 40
MOST_VALUES = 300_000


def refuse_large(events: Iterable[Any], path: Path) -> None:
    """Raises ValueError for YAML that is nested too deeply or whose aliases expand to too many
    values. Only the ``events`` of a parser (ruamel's or PyYAML's) are read, since constructing such
    values could exhaust the stack or the memory."""
    known: dict[str, _Part] = {}
    parts = [_Part()]
    for event in events:
        place = f"{path}: line {event.start_mark.line + 1}"
        kind = type(event).__name__
        if kind in ("MappingStartEvent", "SequenceStartEvent"):
            parts.append(_Part(event.anchor))
            done = _Part()
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            done = parts.pop()
            if done.anchor:
                known[done.anchor] = done
        elif kind == "AliasEvent":
            done = known.get(event.anchor, _Part())
        else:
            done = _Part()
            if kind == "ScalarEvent" and event.anchor:
                known[event.anchor] = done
        if len(parts) + done.depth > MOST_DEPTH:
            raise ValueError(f"{place}: is nested more than {MOST_DEPTH} deep; make it flatter")
        if kind.endswith("StartEvent"):
            continue
        outer = parts[-1]
        outer.size += done.size
        outer.depth = max(outer.depth, done.depth + 1)
        if sum(part.size for part in parts) > MOST_VALUES:
            raise ValueError(
                f"{place}: the file has more than {MOST_VALUES:,} values, those of aliases "
                "counted each time; make it smaller"
            )


@dataclass
class _Part:
    """A part of a YAML file: its anchor, the number of its values and how deep they are nested."""

    anchor: str | None = None
    size: int = 1
    depth: int = 0
