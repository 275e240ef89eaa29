"""Several processes (ranks) that train one model together, each on a device of its own.

``torchrun`` starts them. With ``ddp`` every device has all weights (torch's
DistributedDataParallel). With ``fsdp`` weights, gradients and the state of the optimizer are
sharded over the devices (torch's ``fully_shard``; Zhao et al. 2023, PyTorch FSDP).
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from stages.core.params import Distributed, Training
from stages.models._heads import ModelWithHead
from stages.training.device import Device


@dataclass(frozen=True)
class Ranks:
    """The processes of one training, and which of them this one is."""

    rank: int = 0
    number: int = 1
    strategy: str = "ddp"

    @property
    def is_first(self) -> bool:
        """Returns whether this process is the one that writes the results of all ranks."""
        return self.rank == 0

    def total(self, values: Mapping[str, float]) -> dict[str, float]:
        """Returns the sums of ``values`` over ranks by name. All ranks must give the same names."""
        if self.number == 1:
            return dict(values)
        names = sorted(values)
        summed = torch.tensor([values[name] for name in names], dtype=torch.float64)
        dist.all_reduce(summed)
        return dict(zip(names, summed.tolist(), strict=True))

    def from_first(self, value: float) -> float:
        """Returns the ``value`` of the first rank, on all ranks."""
        return self.total({"": value if self.is_first else 0.0})[""]

    @contextmanager
    def spread(self, model: ModelWithHead, device: Device) -> Iterator[ModelWithHead]:
        """Yields the model to train, on the device. Afterwards the ``model`` of the first rank is
        on the device and has the trained weights."""
        if self.number == 1 or self.strategy == "ddp":
            yield model.to(device.torch)
            return
        from torch.distributed.fsdp import fully_shard

        sharded = deepcopy(model).to(device.torch)
        for block in sharded.backbone.blocks:
            if type(block).forward is not nn.Module.forward:  # a list of modules is never called
                fully_shard(block)
        # Scalars cannot be sharded: those that mix layers, which no objective trains.
        scalars = {weight for weight in sharded.parameters() if weight.dim() == 0}
        fully_shard(sharded, reshard_after_forward=True, ignored_params=scalars)
        yield sharded
        weights = {name: whole(weight.detach()) for name, weight in sharded.named_parameters()}
        model.load_state_dict(weights, strict=False)
        model.to(device.torch)

    def synchronised(self, model: ModelWithHead) -> nn.Module:
        """Returns the module to call instead of ``model``. Its backward pass gives each weight the
        mean of its gradients over the ranks."""
        if self.number == 1 or self.strategy == "fsdp":
            return model
        return nn.parallel.DistributedDataParallel(
            model, find_unused_parameters=True, forward_sync_buffers=False
        )


ALONE = Ranks()


def whole(tensor: Tensor) -> Tensor:
    """Returns all of a tensor that may be sharded; every rank has to call it."""
    # A DTensor; importing its class takes half a second.
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


@torch.no_grad()
def put(values: Tensor, tensor: Any) -> None:
    """Copies the values of a whole tensor into ``tensor``, of which this rank may hold a part."""
    if hasattr(tensor, "device_mesh"):
        from torch.distributed.tensor import distribute_tensor

        values = distribute_tensor(
            values.to(tensor.device), tensor.device_mesh, tensor.placements, src_data_rank=None
        )
    tensor.copy_(values)


def start_ranks(distributed: Distributed) -> None:
    """Replaces this process by torchrun, which starts it again once for each device; does nothing
    if there is one device or torchrun has started this process.

    Raises ValueError for several nodes, on each of which the user has to start torchrun.
    """
    if distributed.num_ranks == 1 or dist.is_torchelastic_launched():
        return
    command = sys.orig_argv[1:]
    if distributed.num_nodes > 1:
        raise ValueError(
            f"distributed.num_nodes: run on each node `torchrun --nnodes {distributed.num_nodes} "
            f"--nproc-per-node {distributed.devices} {' '.join(command)}`, with a rendezvous"
        )
    # The ranks have sessions of their own, in which they would take DVC for dead.
    environment = {key: value for key, value in os.environ.items() if key != "DVC_STAGE"}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    os.execve(
        sys.executable,
        [*launcher, f"--nproc-per-node={distributed.devices}", *command],
        environment,
    )


@contextmanager
def joined(distributed: Distributed, device: Device) -> Iterator[Ranks]:
    """Joins the ranks that torchrun started; yields them."""
    if not dist.is_torchelastic_launched():
        yield ALONE
        return
    if device.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    # Losses and numbers of targets are in CPU memory.
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.device == "cuda" else "gloo")
    yield Ranks(dist.get_rank(), dist.get_world_size(), distributed.strategy)
    dist.destroy_process_group()


def uneven(training: Training, distributed: Distributed) -> str | None:
    """Returns why the ranks cannot share the micro-batches of a step equally, as words that follow
    ``micro_batch_rows``; None if they can."""
    rows, number = training.batch_rows, distributed.num_ranks
    if rows // training.micro_batch_rows % number == 0:
        return None
    multiple = number * training.micro_batch_rows
    return f"{number} processes share the rows of a step: {rows} is no multiple of {multiple}"
