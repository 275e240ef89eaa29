"""The published checkpoint among the candidates: whether it fits the data, is there, and what is
said of it."""

from math import ceil

from stages.proposal.corpus import LATIN
from stages.proposal.design import Design
from stages.proposal.examples import Examples
from stages.proposal.study import PROBED
from stages.text.packaged import PACKAGED, Packaged, damaged


def fitting(kind: str, examples: Examples, max_tokens: int) -> Packaged | None:
    """An encoder for texts in Latin script that are not too long for it; None if there is none."""
    letters = sum(examples.scripts.values())
    is_latin = not letters or examples.scripts["LATIN"] / letters >= LATIN
    if kind not in PROBED or not is_latin:
        return None
    return next((each for each in PACKAGED if max_tokens <= each.max_positions), None)


def is_whole(checkpoint: Packaged) -> bool:
    return not damaged(checkpoint, checkpoint.folder)


def about_published(checkpoint: Packaged, design: Design, least_s: float | None) -> str:
    """Whether it is among the candidates, and what would make it one.

    ``least_s`` are the seconds of the smallest study with it; None if it is not there.
    """
    name = f"{checkpoint.hub_name} ({checkpoint.size})"
    if design.published:
        return f"A published checkpoint is a candidate: {name}. {checkpoint.about}"
    if least_s is None:
        return (
            f"No published checkpoint is a candidate. {checkpoint.how_to_get()}; then this command "
            f"makes one of {name}. {checkpoint.about}"
        )
    return (
        f"{name} was fetched but left out: a study with it takes about {ceil(least_s / 60)} "
        f"minutes. `--minutes {ceil(least_s / 60)}` adds it."
    )
