"""Checkpoints: the weights of a model, and the state of an unfinished training.

Weights are stored as safetensors, next to the configuration as JSON. Nothing is pickled.
"""

import hashlib
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from stages.core import paths
from stages.core.artifacts import remove, replacing, sha256_of_tree
from stages.core.components import Settings
from stages.optimizers._optimizer import Optimizer, trained_weights
from stages.training.ranks import ALONE, Ranks, put, whole

WEIGHTS = "model.safetensors"
Record = dict[str, Any]  # of a saved state, as JSON


def fingerprint(settings: Settings, inputs: Iterable[Path]) -> str:
    """Returns a hash of the settings of a result (with the hashes of its code) and of its input
    files and folders."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for path in inputs:
        digest.update(sha256_of_tree(path).encode())
    return digest.hexdigest()[:32]


def save_weights(model: nn.Module, path: Path, metadata: dict[str, str] | None = None) -> None:
    """Writes the weights that require a gradient; tied weights are written once."""
    weights = {n: w.detach().contiguous().cpu() for n, w in trained_weights(model).items()}
    save_file(weights, path, metadata)


def load_weights(model: nn.Module, path: Path) -> None:
    """Loads the weights that ``save_weights`` wrote.

    Raises ValueError unless all names and shapes agree.
    """
    weights = trained_weights(model)
    stored = load_file(path)
    shapes, expected = ({n: w.shape for n, w in each.items()} for each in (stored, weights))
    if wrong := dict(shapes.items() ^ expected.items()):
        raise ValueError(f"{path} does not fit this model: {', '.join(sorted(wrong))}")
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(stored[name])


@dataclass
class Resumable:
    """The saved state of an unfinished training: a file outside DVC's outs.

    With several ``ranks`` the first writes and all read, so all have to call the same methods.
    Tensors are written whole, even if they are sharded, so that a training can resume with a
    different number of ranks. Only weights that train are saved: frozen ones do not change.
    """

    name: str
    fingerprint: str
    scratch: Path = paths.SCRATCH
    ranks: Ranks = ALONE
    part: str = ""  # number of the learning rate that is tried; each has a file of its own
    began: float = field(default_factory=time.monotonic)

    @property
    def _path(self) -> Path:
        return self.scratch / self.name / self.part / f"{self.fingerprint}.safetensors"

    def seconds(self) -> float:
        """Returns the time of the training: of this process, and of earlier ones up to their last
        save."""
        return time.monotonic() - self.began

    def save(self, record: Record, model: nn.Module, optimizer: Optimizer | None) -> None:
        """Saves a record of JSON values, and the weights and the optimizer's memory of them."""
        tensors = dict[str, Tensor]()
        for name, tensor in _state(model, optimizer).items():
            values = whole(tensor.detach())
            if self.ranks.is_first:
                tensors[name] = values.contiguous().cpu()
        if self.ranks.is_first:
            text = json.dumps(record | {"wall_time_s": self.seconds()})
            with replacing(self._path) as temporary:
                save_file(tensors, temporary, metadata={"record": text})
        self.ranks.total({"written": 1})  # waits until the file can be read

    def load(self, model: nn.Module, optimizer: Optimizer | None) -> Record | None:
        """Puts what ``save`` wrote into the model and the optimizer; returns the record, or None if
        there is no saved state. Only the first rank looks, because another node may see a file
        later."""
        if not self.ranks.from_first(self._path.exists()):
            return None
        state = _state(model, optimizer)
        with safe_open(self._path, framework="pt") as file:
            for name in {*file.keys()} & state.keys():
                put(file.get_tensor(name), state[name])
            record = json.loads(file.metadata()["record"])
        self.began = min(self.began, time.monotonic() - record["wall_time_s"])
        return record

    def clear(self) -> None:
        remove(self.scratch / self.name)


def _state(model: nn.Module, optimizer: Optimizer | None) -> dict[str, Tensor]:
    """Returns the tensors that change in training, by their names in the file."""
    tensors: dict[str, Tensor] = {f"weight:{n}": w for n, w in trained_weights(model).items()}
    for name, memory in optimizer.state.items() if optimizer else ():
        tensors |= {f"{kind}:{name}": value for kind, value in memory.items()}
    return tensors
