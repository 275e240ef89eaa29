"""Several processes (ranks) that train one model together, each on a device of its own.

Each rank computes its own micro-batches of a step. With ``ddp`` every device has all weights, and
gradients are summed behind the last of them. torch's DistributedDataParallel, which sums while the
backward pass goes on, looks for weights without a gradient in each pass and warns of what it finds.
With ``fsdp`` torch's ``fully_shard`` (Zhao et al. 2023, PyTorch FSDP) shards weights, gradients and
the state of the optimizer over all devices.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from stages.core.params import Compute, Distributed, Training
from stages.core.rank import rank_of_process
from stages.core.sharded import local, whole
from stages.models._heads import ModelWithHead
from stages.training.device import Device

# A rank that loses the others waits as long before it fails, so that the one that failed first is
# heard first.
GRACE_S = 3.0
BUCKET_BYTES = 25 * 2**20  # of gradients that are summed at once: DistributedDataParallel's
N = TypeVar("N", int, float)


@torch.no_grad()
def put(values: Tensor, tensor: Tensor, ranks: "Ranks") -> None:
    """Set a tensor, of which this rank may hold a part, to the values of all of it."""
    held = local(tensor)
    if held is not tensor:
        # As fully_shard cuts: the last ranks hold less, or nothing.
        parts = values.chunk(ranks.number)
        values = parts[ranks.rank] if ranks.rank < len(parts) else values[:0]
    held.copy_(values)


@dataclass(frozen=True)
class Ranks:
    """The processes of one training, and which of them this one is."""

    rank: int = 0
    number: int = 1
    strategy: str = "ddp"

    @property
    def is_first(self) -> bool:
        """Whether this process writes what all have computed."""
        return self.rank == 0

    def total(self, values: Mapping[str, N]) -> dict[str, N]:
        """The sums over ranks of what each of them has under the same names."""
        if self.number == 1:
            return dict(values)
        names = sorted(values)
        is_whole = all(isinstance(value, int) for value in values.values())
        dtype = torch.int64 if is_whole else torch.float64
        summed = torch.tensor([values[name] for name in names], dtype=dtype)
        dist.all_reduce(summed)
        return dict(zip(names, summed.tolist(), strict=True))

    def from_first(self, value: float) -> float:
        """What the first rank has."""
        return self.total({"": value if self.is_first else 0.0})[""]

    def wait(self) -> None:
        """Until all ranks are here."""
        self.total({"": 0})

    @contextmanager
    def spread(self, model: ModelWithHead, device: Device) -> Iterator[ModelWithHead]:
        """The model to train, on the device. In the end the first rank has its weights in
        ``model``, on the device too."""
        if self.number == 1 or self.strategy == "ddp":
            yield model.to(device.torch)
            return
        sharded = self._sharded(model, device)
        yield sharded
        own = dict(model.named_parameters())
        with torch.no_grad():
            for name, weight in sharded.named_parameters():
                values = whole(weight)
                if self.is_first:
                    own[name].copy_(values)
        if self.is_first:
            model.to(device.torch)

    def _sharded(self, model: ModelWithHead, device: Device) -> ModelWithHead:
        """A copy of the model whose blocks are moved to the device part by part."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        copy = deepcopy(model)
        mesh = init_device_mesh(device.device, (self.number,))
        for block in copy.backbone.blocks:
            if type(block).forward is not nn.Module.forward:  # a list of modules is never called
                fully_shard(block, mesh=mesh)
        # It cannot shard single numbers. Ours mix layers for tasks, and no objective trains them.
        scalars = {weight for weight in copy.parameters() if weight.dim() == 0}
        for weight in scalars:
            weight.data = weight.data.to(device.torch)
        # Between calls all weights are sharded, so that each has one place to be changed in.
        fully_shard(copy, mesh=mesh, reshard_after_forward=True, ignored_params=scalars)
        return copy

    @torch.no_grad()
    def sum_gradients(self, weights: Sequence[nn.Parameter]) -> None:
        """Give each weight the sum of its gradients over ranks, where they are not shared by other
        means; none to a weight that has none on any rank."""
        if self.number == 1 or self.strategy == "fsdp":
            return
        has_one = torch.tensor([int(weight.grad is not None) for weight in weights])
        dist.all_reduce(has_one)
        gradients = list[Tensor]()
        for weight, number in zip(weights, has_one.tolist(), strict=True):
            if number:
                weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
                gradients.append(weight.grad)
        sums = [(bucket, _flat_sum(bucket)) for bucket in _buckets(gradients)]
        for bucket, (flat, pending) in sums:
            pending.wait()
            parts = flat.split([gradient.numel() for gradient in bucket])
            for gradient, part in zip(bucket, parts, strict=True):
                gradient.copy_(part.view_as(gradient))

    def scaled(self, loss: Tensor) -> Tensor:
        """A loss whose gradients sum up over ranks: ``fully_shard`` takes their mean."""
        return loss * self.number if self.strategy == "fsdp" else loss


ALONE = Ranks()


def _buckets(gradients: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Side by side, so many that each bucket has BUCKET_BYTES."""
    bucket, size = list[Tensor](), 0
    for gradient in gradients:
        bucket.append(gradient)
        size += gradient.nbytes
        if size >= BUCKET_BYTES:
            yield bucket
            bucket, size = [], 0
    if bucket:
        yield bucket


def _flat_sum(bucket: Sequence[Tensor]) -> tuple[Tensor, dist.Work]:
    """The gradients of a bucket in one tensor, which is being summed over ranks."""
    flat = torch.cat([gradient.flatten() for gradient in bucket])
    pending = dist.all_reduce(flat, async_op=True)
    assert pending is not None
    return flat, pending


@contextmanager
def joined(distributed: Distributed, device: Device) -> Iterator[Ranks]:
    """The ranks that this process was started with (``launch.py``, torchrun or srun)."""
    place = rank_of_process()
    if place is None or place.num_ranks == 1:
        yield ALONE
        return
    if device.device == "cuda":
        # Where the system shows each process its own GPU alone, that one.
        torch.cuda.set_device(place.local_rank % torch.cuda.device_count())
    # Losses and numbers of targets are in CPU memory.
    backend = "cpu:gloo,cuda:nccl" if device.device == "cuda" else "gloo"
    dist.init_process_group(backend, rank=place.rank, world_size=place.num_ranks)
    ranks = Ranks(place.rank, place.num_ranks, distributed.strategy)
    try:
        yield ranks
    except Exception as error:
        # A mistake that all ranks meet is reported by the first.
        if not (ranks.is_first and isinstance(error, ValueError)):
            time.sleep(GRACE_S)
        raise
    dist.destroy_process_group()


def too_few_threads(compute: Compute, distributed: Distributed) -> str | None:
    """Why a CPU has fewer devices, to stand behind ``distributed.devices``; None if it has enough:
    each is a process of one thread or more."""
    if distributed.devices <= compute.threads:
        return None
    return (
        f"on a CPU {distributed.devices} processes share compute.threads, which is "
        f"{compute.threads}; valid: 1 to {compute.threads}"
    )


def uneven(training: Training, distributed: Distributed) -> str | None:
    """Why the micro-batches of a step cannot be shared equally by the ranks, to stand behind
    ``micro_batch_rows``; None if they can."""
    rows, number = training.batch_rows, distributed.num_ranks
    if rows // training.micro_batch_rows % number == 0:
        return None
    ranks = f"{number} processes (distributed: devices x num_nodes)"
    if rows % number:
        return f"{ranks} need a multiple of {number} as batch_rows, not {rows}"
    rows_of_rank = rows // number
    valid = ", ".join(str(size) for size in range(1, rows_of_rank + 1) if rows_of_rank % size == 0)
    return (
        f"{ranks} share batch_rows {rows} equally; valid: {valid}, not {training.micro_batch_rows}"
    )
