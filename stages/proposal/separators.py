"""Finds the sign that separates the labels in a cell."""

from collections import Counter
from collections.abc import Sequence

from stages.proposal.column import TEXT_WORDS

SEPARATORS = ("|", ";", ",")  # between the labels of a cell; the last is the source's default
# Signs that always separate labels: line breaks, tabs, and the signs between tags (<a><b> of Stack
# Overflow) and between the parts of a path.
ALWAYS = ("\n", "\t", "><", ">>", "->", ">")
# Signs that separate labels (a#b of doccano) unless commas may do so (C#, Java; std::map, set).
UNLESS_COMMAS = ("::", "#")
# Other signs that may separate labels, each with a share. A sign does so if at least this share of
# the parts recurs in several cells; otherwise it is part of a label's name.
JOINTS = {"/": 0.5, "+": 0.5, "&": 0.5, " and ": 0.5, " ": 1.0}
JOINTS |= dict.fromkeys((":", "_", "-"), None)  # separate only labels that also occur alone
JOINTS = dict.fromkeys(ALWAYS, 0.0) | JOINTS | dict.fromkeys(UNLESS_COMMAS, 0.0)


def separator_of(values: Sequence[str], joint: str | None) -> str | None:
    """Returns the sign between the labels of a cell, or None: the first of SEPARATORS that occurs,
    otherwise ``joint``, the result of ``joint_of``. A comma in a path, as in ``Music > Pop, Rock``,
    is part of a name."""
    usual = next((sign for sign in SEPARATORS if any(sign in value for value in values)), None)
    return joint if usual is None or (usual == "," and joint in ALWAYS) else usual


def joint_of(values: Sequence[str]) -> str | None:
    """Returns a separator of labels that is not in SEPARATORS, such as the / in joy/fear, or None.

    ALWAYS and UNLESS_COMMAS separate labels wherever they occur. Any other sign does so if all
    labels of one cell also occur alone in other cells, or if labels recur in several combinations
    and in no fixed order, unlike ``very good`` and ``Home/Garden``.
    """
    for joint, least in JOINTS.items():
        cells = [parts_of(value, joint) for value in values]
        joined = [parts for parts in cells if len(parts) > 1]
        alone = {parts[0] for parts in cells if len(parts) == 1}
        if joined and joint in (*ALWAYS, *UNLESS_COMMAS):
            return joint
        if not joined or any(len({*parts}) < len(parts) for parts in joined):
            continue
        if joint == " " and all(part.isdecimal() for parts in joined for part in parts):
            return joint
        counts = Counter(part for parts in joined for part in parts)
        moves = {parts[0] for parts in joined} & {part for parts in joined for part in parts[1:]}
        recurring = sum(n > 1 for n in counts.values()) / len(counts)
        is_short = counts.total() <= TEXT_WORDS * len(joined)
        is_combined = least is not None and is_short and moves and recurring >= least
        if is_combined or any({*parts} <= alone for parts in joined):
            return joint
    return None


def parts_of(value: str, joint: str) -> list[str]:
    inner = value.strip("<>") if joint == "><" else value
    return [part.strip() for part in inner.split(joint) if part.strip()]
