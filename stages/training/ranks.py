"""Several processes (ranks) that train one model together, each on a device of its own.

Each rank computes its own micro-batches of a step. With ``ddp`` every device has all weights, and
gradients are summed after the last micro-batch. torch's DistributedDataParallel is not used: it
sums during the backward pass, looks for weights without a gradient in each pass, and warns of them.
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
from stages.models._backbone import is_linear
from stages.models._heads import ModelWithHead
from stages.training.device import Device

# Seconds that a rank waits after an error before it ends, so that the original error is reported
# and not that of a rank that lost contact. After a user's mistake the first rank does not wait.
GRACE_S = 3.0
BUCKET_BYTES = 25 * 2**20  # of gradients that are summed at once, as in DistributedDataParallel
N = TypeVar("N", int, float)


@torch.no_grad()
def put(values: Tensor, tensor: Tensor, ranks: "Ranks") -> None:
    """Copies the values of a whole tensor into ``tensor``, of which this rank may hold a part."""
    held = local(tensor)
    if held is not tensor:
        # Cut as fully_shard cuts: the last ranks hold less, or nothing.
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
        """Returns whether this process is the one that writes the results of all ranks."""
        return self.rank == 0

    def total(self, values: Mapping[str, N]) -> dict[str, N]:
        """Returns the sums of ``values`` over ranks by name. All ranks must give the same names."""
        if self.number == 1:
            return dict(values)
        names = sorted(values)
        is_whole = all(isinstance(value, int) for value in values.values())
        dtype = torch.int64 if is_whole else torch.float64
        summed = torch.tensor([values[name] for name in names], dtype=dtype)
        dist.all_reduce(summed)
        return dict(zip(names, summed.tolist(), strict=True))

    def from_first(self, value: float) -> float:
        """Returns the ``value`` of the first rank, on all ranks."""
        return self.total({"": value if self.is_first else 0.0})[""]

    def wait(self) -> None:
        """Waits until all ranks have called this."""
        self.total({"": 0})

    @contextmanager
    def spread(self, model: ModelWithHead, device: Device) -> Iterator[ModelWithHead]:
        """Yields the model to train, on the device. Afterwards the ``model`` of the first rank is
        on the device and has the trained weights."""
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
        """Returns a sharded copy of the model. Its blocks are moved to the device one by one.

        In a bfloat16 run the linear layers of a transformer's block are gathered in bfloat16.
        Otherwise autocast would keep a bfloat16 copy of their weights, in addition to the shards,
        until the backward pass. Their gradients are summed in float32. If the step is compiled,
        each block is sharded as a whole, because the graph breaks wherever weights are gathered.
        """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        copy = deepcopy(model)
        mesh = init_device_mesh(device.device, (self.number,))
        # Inputs are cast by autocast.
        precision = MixedPrecisionPolicy(device.dtype, torch.float32, cast_forward_inputs=False)
        for block in copy.backbone.blocks:
            layers = [layer for layer in block.modules() if is_linear(layer)]
            if copy.backbone.is_transformer and layers and not device.compile:
                fully_shard(layers, mesh=mesh, mp_policy=precision)
            elif type(block).forward is not nn.Module.forward:  # a list of modules is never called
                fully_shard(block, mesh=mesh)
        # fully_shard cannot shard scalars. In our models they mix layers; no objective trains them.
        scalars = {weight for weight in copy.parameters() if weight.dim() == 0}
        for weight in scalars:
            weight.data = weight.data.to(device.torch)
        # Between calls all weights are sharded, so that each is changed in one place only.
        fully_shard(copy, mesh=mesh, reshard_after_forward=True, ignored_params=scalars)
        return copy

    @torch.no_grad()
    def sum_gradients(self, weights: Sequence[nn.Parameter]) -> None:
        """Gives each weight the sum of its gradients over ranks, unless ``fully_shard`` does so. A
        weight that has a gradient on no rank gets none."""
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
        """Returns the loss to call ``backward`` on. With ``fsdp`` it is multiplied by the number of
        ranks, since ``fully_shard`` takes the mean of gradients and not their sum."""
        return loss * self.number if self.strategy == "fsdp" else loss


ALONE = Ranks()


def _buckets(gradients: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Yields consecutive gradients in buckets of at least BUCKET_BYTES; the last may be smaller."""
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
    """Returns the gradients of a bucket as one tensor, and the pending work that sums it over
    ranks in place."""
    flat = torch.cat([gradient.flatten() for gradient in bucket])
    pending = dist.all_reduce(flat, async_op=True)
    assert pending is not None
    return flat, pending


@contextmanager
def joined(distributed: Distributed, device: Device) -> Iterator[Ranks]:
    """Joins the ranks that ``launch.py``, torchrun or srun started; yields them."""
    place = rank_of_process()
    if place is None or place.num_ranks == 1:
        yield ALONE
        return
    if device.device == "cuda":
        # If the system shows each process only its own GPU, the remainder is 0: that GPU.
        torch.cuda.set_device(place.local_rank % torch.cuda.device_count())
    # Losses and numbers of targets are in CPU memory.
    backend = "cpu:gloo,cuda:nccl" if device.device == "cuda" else "gloo"
    dist.init_process_group(backend, rank=place.rank, world_size=place.num_ranks)
    ranks = Ranks(place.rank, place.num_ranks, distributed.strategy)
    try:
        yield ranks
    except Exception as error:
        # A mistake of the user raises ValueError on all ranks; the first rank reports it at once.
        if not (ranks.is_first and isinstance(error, ValueError)):
            time.sleep(GRACE_S)
        raise
    dist.destroy_process_group()


def too_few_threads(compute: Compute, distributed: Distributed) -> str | None:
    """Returns why a CPU has too few threads for its devices (processes with a thread or more), as
    words that follow ``distributed.devices``; None if it has enough."""
    if distributed.devices <= compute.threads:
        return None
    return (
        f"on a CPU {distributed.devices} processes share compute.threads, which is "
        f"{compute.threads}; valid: 1 to {compute.threads}"
    )


def uneven(training: Training, distributed: Distributed) -> str | None:
    """Returns why the ranks cannot share the micro-batches of a step equally, as words that follow
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
