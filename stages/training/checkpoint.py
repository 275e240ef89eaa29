"""Checkpoints: the weights of a model, and the state of an unfinished run.

Weights are stored as safetensors, next to the configuration as JSON. Nothing is pickled.
"""

import hashlib
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from stages.core import paths
from stages.core.artifacts import remove, replacing, sha256_of_tree
from stages.core.components import Settings
from stages.core.sharded import whole
from stages.optimizers._optimizer import Optimizer
from stages.training.ranks import ALONE, Ranks, put

WEIGHTS = "model.safetensors"
MODEL, BESIDE = "model:", "beside"
Row = dict[str, Any]  # the numbers of a step, as JSON


def fingerprint(settings: Settings, inputs: Iterable[Path]) -> str:
    """Returns a hash of the settings of a result (with the hashes of its code) and of its input
    files and folders."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for path in inputs:
        digest.update(sha256_of_tree(path).encode())
    return digest.hexdigest()[:32]


def save_weights(
    model: nn.Module,
    path: Path,
    *,
    trained_only: bool = False,
    metadata: dict[str, str] | None = None,
) -> None:
    """Writes all weights, or with ``trained_only`` those that require a gradient; tied weights are
    written once."""
    weights = {
        name: weight.detach().contiguous().cpu()
        for name, weight in _weights(model, trained_only=trained_only).items()
    }
    save_file(weights, path, metadata)


def load_weights(
    model: nn.Module, path: Path, *, trained_only: bool = False, own_parts: Iterable[str] = ()
) -> None:
    """Loads the weights that ``save_weights`` wrote. Modules in ``own_parts`` may differ: weights
    that only the model has keep their values, and weights that only the file has are ignored.

    Raises ValueError unless all other names, and all shapes, agree.
    """
    weights, own = load_file(path), _weights(model, trained_only=trained_only)
    for name in weights.keys() ^ own.keys():
        if name.partition(".")[0] in own_parts:
            weights.pop(name, None)
            own.pop(name, None)
    for name in sorted(weights.keys() | own.keys()):
        shape, stored = (tuple(w[name].shape) if name in w else None for w in (own, weights))
        if shape != stored:
            raise ValueError(f"{path} does not fit this model: {name} is {stored}, not {shape}")
    with torch.no_grad():
        for name, weight in own.items():
            weight.copy_(weights[name])


def _weights(model: nn.Module, *, trained_only: bool) -> dict[str, nn.Parameter]:
    return {
        name: weight
        for name, weight in model.named_parameters()
        if weight.requires_grad or not trained_only
    }


class Clock:
    """Measures the time of a run: of this process, and of interrupted processes up to their last
    save."""

    def __init__(self) -> None:
        self._began, self._earlier_s = time.monotonic(), 0.0

    def seconds(self) -> float:
        return self._earlier_s + time.monotonic() - self._began

    def resume(self, seconds: float) -> None:
        """Sets the time that earlier processes took."""
        self._earlier_s = seconds


@runtime_checkable
class Beside(Protocol):
    """A caller of a training whose own state is saved together with the training's."""

    def state(self) -> tuple[Row, dict[str, Tensor]]: ...

    def restore(self, record: Row, tensors: dict[str, Tensor]) -> None: ...


class Resumable:
    """The saved state of an unfinished run and of its caller (``beside``), in a file outside DVC's
    outs. Only weights that train are saved: frozen ones do not change.

    The file is ``.scratch/<name>/<fingerprint>.safetensors``; next to it is a file for each further
    training of the same run (``another``). A run with another fingerprint removes these files,
    because the run that wrote them will not be resumed.

    With several ``ranks`` the first writes and all read, so all have to call the same methods.
    Tensors are written whole, even if they are sharded, so that a run can resume with a different
    number of ranks.
    """

    def __init__(
        self,
        name: str,
        fingerprint: str,
        *,
        scratch: Path = paths.SCRATCH,
        training: str = "",
        clock: Clock | None = None,
        ranks: Ranks = ALONE,
        beside: Beside | None = None,
    ) -> None:
        self._folder, self._fingerprint, self._beside = scratch / name, fingerprint, beside
        self._training = training
        self._path = self._folder / f"{fingerprint}{training}.safetensors"
        self._clock = clock or Clock()
        self._ranks = ranks

    def another(self, training: str, *, beside: Beside | None = None) -> "Resumable":
        """Returns the state of a further training of the same run, on the same clock. ``finish`` of
        this state removes the file of the new one."""
        name, scratch = self._folder.name, self._folder.parent
        return Resumable(
            name,
            self._fingerprint,
            scratch=scratch,
            training=f"{self._training}.{training}",
            clock=self._clock,
            ranks=self._ranks,
            beside=beside,
        )

    def exists(self) -> bool:
        """Returns whether there is a state to resume from. Only the first rank looks, because
        another node may see a file later."""
        return bool(self._ranks.from_first(float(self._path.exists())))

    def wall_time_s(self) -> float:
        """The wall time of the run so far, in seconds."""
        return self._clock.seconds()

    def save(self, step: int, model: nn.Module, optimizer: Optimizer, history: list[Row]) -> None:
        """Saves the state after ``step`` steps. ``history`` has a row of JSON numbers per step."""
        tensors = _named(model)
        for name, state in optimizer.state.items():
            tensors |= {f"{key}:{name}": value for key, value in state.items()}
        record: Row = {"step": step, "history": history}
        if self._beside:
            record[BESIDE], kept = self._beside.state()
            tensors |= {f"{BESIDE}:{name}": value for name, value in kept.items()}
        self._write(record, tensors)

    def load(self, model: nn.Module, optimizer: Optimizer) -> tuple[int, list[Row]]:
        """Loads the saved state; returns (number of steps done, their history), or (0, []) if there
        is no state."""
        if not self.exists():
            if self._ranks.is_first:
                self._clear_others()
            return 0, []
        with safe_open(self._path, framework="pt") as file:
            others = [key.partition(":") for key in _restore(file, model, self._ranks)]
            saved = {(name, kind) for kind, _, name in others if kind != BESIDE}
            assert saved == {
                (n, kind) for n, of_name in optimizer.state.items() for kind in of_name
            }
            for name, kind in saved:
                put(file.get_tensor(f"{kind}:{name}"), optimizer.state[name][kind], self._ranks)
        record = self._record()
        return record["step"], record["history"]

    def restore_beside(self) -> None:
        """Gives the caller (``beside``) its saved state back."""
        assert self._beside
        with safe_open(self._path, framework="pt") as file:
            keys = (key.partition(":") for key in file.keys())  # noqa: SIM118 (not a mapping)
            names = [name for kind, _, name in keys if kind == BESIDE]
            tensors = {name: file.get_tensor(f"{BESIDE}:{name}") for name in names}
        self._beside.restore(self._record()[BESIDE], tensors)

    def finish(self, model: nn.Module | None, history: list[Row]) -> None:
        """Replaces the state with the result of a training that has ended: its history and, with
        ``model``, its weights. Removes the files of the states that ``another`` returned."""
        self._write({"ended": True, "history": history}, _named(model) if model else {})
        if self._ranks.is_first:
            for path in sorted(self._folder.glob(f"{self._path.stem}.*{self._path.suffix}")):
                remove(path)

    def finished(self) -> list[Row] | None:
        """Returns the history that ``finish`` kept, or None if the training has not ended."""
        if not self.exists():
            return None
        record = self._record()
        return record["history"] if record.get("ended") else None

    def restore(self, model: nn.Module) -> None:
        """Puts the weights that ``finish`` kept into ``model``."""
        with safe_open(self._path, framework="pt") as file:
            _restore(file, model, self._ranks)

    def clear(self) -> None:
        remove(self._folder)

    def _write(self, record: Row, tensors: dict[str, Tensor]) -> None:
        written = json.dumps(record | {"wall_time_s": self.wall_time_s()})
        cpu = dict[str, Tensor]()
        for name, tensor in tensors.items():
            values = whole(tensor.detach())
            if self._ranks.is_first:
                cpu[name] = values.contiguous().cpu()
        if self._ranks.is_first:
            with replacing(self._path) as temporary:
                save_file(cpu, temporary, metadata={"record": written})
        self._ranks.wait()  # until the file can be read

    def _record(self) -> Row:
        with safe_open(self._path, framework="pt") as file:
            record = json.loads(file.metadata()["record"])
        self._clock.resume(record["wall_time_s"])
        return record

    def _clear_others(self) -> None:
        for path in sorted(self._folder.glob("*")):
            if not path.name.startswith(self._fingerprint):
                remove(path)


def _named(model: nn.Module) -> dict[str, Tensor]:
    """Returns the weights that train, by their names in the file. Frozen weights are left out: a
    resumed process already has them."""
    trained = _weights(model, trained_only=True)
    return {f"{MODEL}{name}": weight for name, weight in trained.items()}


@torch.no_grad()
def _restore(file: Any, model: nn.Module, ranks: Ranks) -> list[str]:
    """Puts the weights of a safetensors file into ``model``; returns the keys of the file's other
    tensors."""
    weights = dict(model.named_parameters())
    others = []
    for key in file.keys():  # noqa: SIM118 (not a mapping)
        if key.startswith(MODEL):
            put(file.get_tensor(key), weights[key.removeprefix(MODEL)], ranks)
        else:
            others.append(key)
    return others
