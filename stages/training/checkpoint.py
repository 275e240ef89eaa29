"""Checkpoints: the weights of a model, and the state of an unfinished run.

Weights are safetensors beside a JSON of the configuration. Nothing is pickled.
"""

import hashlib
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from stages.core import paths
from stages.core.artifacts import remove, replacing, sha256
from stages.core.components import Settings
from stages.training.optimizer import AdamW

WEIGHTS = "model.safetensors"
MODEL = "model:"
Row = dict[str, Any]  # what is known after a step, as JSON has it


def fingerprint(settings: Settings, inputs: Iterable[Path]) -> str:
    """A hash of the settings of a result, the hashes of its code among them, and of the files and
    folders that it reads."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for path in inputs:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                digest.update(file.relative_to(path).as_posix().encode())
                digest.update(sha256(file).encode())
    return digest.hexdigest()[:32]


def save_weights(
    model: nn.Module,
    path: Path,
    *,
    trained_only: bool = False,
    metadata: dict[str, str] | None = None,
) -> None:
    """Write all weights, or those that require a gradient; tied weights are written once."""
    weights = {
        name: weight.detach().contiguous().cpu()
        for name, weight in _weights(model, trained_only=trained_only).items()
    }
    save_file(weights, path, metadata)


def load_weights(model: nn.Module, path: Path, *, trained_only: bool = False) -> None:
    """Load what ``save_weights`` wrote.

    Raises ValueError unless names and shapes agree.
    """
    weights, own = load_file(path), _weights(model, trained_only=trained_only)
    for name in sorted(weights.keys() | own.keys()):
        here, there = (tuple(w[name].shape) if name in w else None for w in (own, weights))
        if here != there:
            raise ValueError(f"{path} does not fit this model: {name} is {there}, not {here}")
    with torch.no_grad():
        for name, weight in own.items():
            weight.copy_(weights[name])


def _weights(model: nn.Module, *, trained_only: bool) -> dict[str, nn.Parameter]:
    return {
        name: weight
        for name, weight in model.named_parameters()
        if weight.requires_grad or not trained_only
    }


class Resumable:
    """The state of an unfinished run, under its fingerprint and outside DVC's outs.

    The file is ``.scratch/<name>/<fingerprint>.safetensors``. A run with another fingerprint does
    not load it. It removes it: the run that it belongs to will not go on.
    """

    def __init__(self, name: str, fingerprint: str, *, scratch: Path = paths.SCRATCH) -> None:
        self._folder = scratch / name
        self._path = self._folder / f"{fingerprint}.safetensors"
        self._began, self._earlier_s = time.monotonic(), 0.0

    def wall_time_s(self) -> float:
        """The time since the start, with that of interrupted processes up to their last state."""
        return self._earlier_s + time.monotonic() - self._began

    def save(self, step: int, model: nn.Module, optimizer: AdamW, history: list[Row]) -> None:
        """``history`` is one row per step, of numbers that JSON can hold."""
        tensors = {f"{MODEL}{name}": weight for name, weight in model.named_parameters()}
        for name, state in optimizer.state.items():
            tensors |= {f"{key}:{name}": value for key, value in state.items()}
        record = json.dumps({"step": step, "history": history, "wall_time_s": self.wall_time_s()})
        with replacing(self._path) as temporary:
            cpu = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
            save_file(cpu, temporary, metadata={"record": record})

    def load(self, model: nn.Module, optimizer: AdamW) -> tuple[int, list[Row]]:
        """(number of steps done, history of them); (0, []) if there is nothing to resume."""
        if not self._path.exists():
            self.clear()
            return 0, []
        weights = dict(model.named_parameters())
        state: dict[str, dict[str, Tensor]] = {}
        with safe_open(self._path, framework="pt") as file, torch.no_grad():
            record = json.loads(file.metadata()["record"])
            for key in file.keys():  # noqa: SIM118 (not a mapping)
                kind, _, name = key.partition(":")
                if f"{kind}:" == MODEL:
                    weights[name].copy_(file.get_tensor(key))
                else:
                    state.setdefault(name, {})[kind] = file.get_tensor(key)
        optimizer.load(state)
        self._earlier_s = record["wall_time_s"]
        return record["step"], record["history"]

    def clear(self) -> None:
        remove(self._folder)
