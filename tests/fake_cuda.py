"""A fake device "cuda" for a CPU build of torch: its tensors claim to be on CUDA, but their values
are computed on the CPU. Mixing devices raises as on CUDA, and waits for the device are counted.

    LD_PRELOAD=LIBRARY python -m tests.fake_cuda

trains two steps of every objective with every architecture that it fits, and prints JSON: losses
and waits by place, or an error; the number of kernels that a step starts, and of shapes that the
batches of an epoch have. LIBRARY is the compiled ``fake_cuda.cpp``. Real kernels are not covered:
their choice, speed and rounding.
"""

import json
import sys
import traceback
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _foreach_utils
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map_only

import tests.flash_reference  # noqa: F401 (registers its kernels)
from stages.objectives.distillation import Distillation
from stages.tasks._task import TASKS, Task
from stages.text.corpus import encode
from stages.text.packing import Packing
from stages.training import flops
from stages.training.device import Device
from stages.training.finetuning import FinetuningData
from stages.training.loop import mean_loss, train
from stages.training.pretraining import PretrainingData
from tests.small import documents, small_tokenizer
from tests.training.trained_by_ranks import LENGTH, SCHEDULE, built, cases, short_texts

CUDA = torch.device("cuda:0")
LONG = 160  # most tokens of a row when shapes are counted
SHAPES = [("span_corruption", "encoder_decoder"), ("multi_task", "decoder"), ("mlm", "encoder")]
STAGES = str(Path(__file__).parents[1] / "stages")
aten = torch.ops.aten
# Operations whose result has a size or a value that the host needs.
READING = {
    aten._local_scalar_dense,
    aten.nonzero,
    aten.masked_select,
    aten._unique2,
    aten.unique_dim,
    aten.unique_consecutive,
    aten.equal,
    aten.bincount,
    aten.repeat_interleave,
}
INDEXING = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}
COPYING = {aten._to_copy, aten.copy_}
# Operations, besides views, that compute nothing.
WITHOUT_KERNEL = ("empty", "new_empty", "_unsafe_view", "detach", "_local_scalar_dense", "lift")
waits = Counter[str]()
kernels = Counter[str]()  # by operation; a list of tensors counts once, though CUDA splits it


def place() -> str:
    """Returns the innermost running function of the project, except the counter of FLOPs."""
    frame = sys._getframe(1)
    while not frame.f_code.co_filename.startswith(STAGES) or frame.f_globals is vars(flops):
        if frame.f_back is None:
            return "elsewhere"
        frame = frame.f_back
    file = Path(frame.f_code.co_filename).relative_to(STAGES)
    return f"{file} {frame.f_code.co_qualname}"


class Fake(Tensor):
    """A tensor on "cuda:0" with its values on the CPU."""

    host: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> "Fake":
        fake = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            values.size(),
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            device=CUDA,
        )
        fake.host = values
        return fake

    def tolist(self) -> Any:  # torch does not implement it for subclasses
        waits[place()] += 1
        return self.host.tolist()

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return computed(func, args, kwargs or {})


def has_kernel(func: Any) -> bool:
    is_view = any(each.alias_info and not each.alias_info.is_write for each in func._schema.returns)
    return not is_view and not func._schema.name.partition("::")[2].startswith(WITHOUT_KERNEL)


def computed(func: Any, args: Any, kwargs: Any) -> Any:
    """Computes an operation on the CPU. Its result is on "cuda" if its arguments are, or if they
    name that device."""
    tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
    is_fake = any(isinstance(each, Fake) for each in tensors)
    device = kwargs.get("device")
    to = torch.device(device) if device is not None else None
    name = func.overloadpacket
    real = tree_map_only(Fake, lambda each: each.host, (args, kwargs))
    if name in COPYING:
        source = args[1] if name is aten.copy_ else args[0]
        target = args[0].device if name is aten.copy_ else to or source.device
        blocking = not (kwargs.get("non_blocking") and getattr(source, "is_fake_pinned", False))
        if source.device.type != target.type and (target.type == "cpu" or blocking):
            waits[place()] += 1
        is_fake = target.type == "cuda"
    elif is_fake:
        on_cpu = [each for each in tensors if not isinstance(each, Fake) and each.dim()]
        if on_cpu and name not in INDEXING:
            raise RuntimeError(f"Expected all tensors to be on the same device: {func}, {place()}")
        is_mask = name in INDEXING and any(
            isinstance(each, Tensor) and each.dtype == torch.bool for each in args[1]
        )
        if name in READING or is_mask or on_cpu:
            waits[place()] += 1
    if to is not None and to.type == "cuda":
        is_fake = True
        real[1]["device"] = torch.device("cpu")
    result = func(*real[0], **real[1])
    if not is_fake:
        return result
    if has_kernel(func):
        kernels[str(func)] += 1
    result = tree_map_only(Tensor, Fake, result)
    return return_and_correct_aliasing(func, args, kwargs, result) if tensors else result


class Factories(TorchDispatchMode):
    """Handles operations that make tensors on "cuda" from no other tensors."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


def pinned(tensor: Tensor) -> Tensor:
    """Replaces the copy to memory that a GPU reads while the host goes on."""
    copy: Any = tensor.clone()
    copy.is_fake_pinned = True
    return copy


def moved(module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
    """Replaces ``nn.Module.to``, which requires that weights keep their class."""
    if not args or torch.device(args[0]).type != "cuda":
        return module
    fakes: dict[int, Any] = {}
    for part in module.modules():
        for name, weight in part._parameters.items():
            if weight is not None and not isinstance(weight.data, Fake):
                fake = fakes.get(id(weight)) or nn.Parameter(
                    Fake(weight.detach()), requires_grad=weight.requires_grad
                )
                part._parameters[name] = fakes[id(weight)] = fake
        for name, buffer in part._buffers.items():
            if buffer is not None and not isinstance(buffer, Fake):
                part._buffers[name] = Fake(buffer)
    return module


def attention(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    """Replaces torch's kernels of attention, and the choice between them."""
    scores = q @ k.mT * q.shape[-1] ** -0.5
    assert attn_mask is not None
    if attn_mask.dtype == torch.bool:
        zeros = torch.zeros_like(attn_mask, dtype=q.dtype)
        attn_mask = zeros.masked_fill(~attn_mask, -torch.inf)
    assert attn_mask.dtype == q.dtype  # as kernels require
    return (scores + attn_mask).softmax(-1) @ v


def lstm(self: nn.LSTM, packed: PackedSequence) -> tuple[PackedSequence, None]:
    """Replaces cuDNN's LSTM, which under autocast of any type computes in float16."""
    assert not packed.batch_sizes.is_cuda
    if torch.is_autocast_enabled("cuda"):
        raise RuntimeError(f"cuDNN's LSTM would compute in float16: {place()}")
    w, u, bias, recurrent_bias, *projection = self.all_weights[0]
    outputs, state, cell = [], None, None
    for x in packed.data.split(packed.batch_sizes.tolist()):
        gates = x @ w.T + bias + recurrent_bias
        if state is not None:
            gates = gates + state[: len(x)] @ u.T
        write, keep, candidate, read = gates.chunk(4, dim=-1)
        old = 0.0 if cell is None else keep.sigmoid() * cell[: len(x)]
        cell = old + write.sigmoid() * candidate.tanh()
        state = read.sigmoid() * cell.tanh()
        state = state @ projection[0].T if projection else state
        outputs.append(state)
    return PackedSequence(torch.cat(outputs), packed.batch_sizes), None


def install() -> None:
    """Installs the device in this process, which must have loaded the library."""
    torch.autograd.set_multithreading_enabled(False)  # a dispatch mode holds in one thread
    _foreach_utils._foreach_supported_types.append(Fake)  # type: ignore[arg-type]
    replaced: list[tuple[Any, str, Any]] = [
        (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
        (torch.cuda, "_lazy_init", lambda: None),
        (torch.cuda, "is_bf16_supported", lambda **_: True),
        (torch.cuda, "is_available", lambda: True),
        (torch.cuda, "get_device_capability", lambda *_: (9, 0)),
        (torch.backends.cuda, "is_flash_attention_available", lambda: True),
        (torch.cuda, "manual_seed", lambda seed: None),
        (nn.Module, "to", moved),
        (Tensor, "pin_memory", pinned),
        (nn.LSTM, "forward", lstm),
        (F, "scaled_dot_product_attention", attention),
    ]
    for owner, name, value in replaced:
        setattr(owner, name, value)


def trained(name: str, architecture: str) -> dict[str, Any]:
    """The losses of an objective, and its waits."""
    objective, model, data = built(name, architecture)
    if isinstance(objective, Distillation):
        objective.teacher.to(CUDA)
    model.to(CUDA)
    single = Device("cuda", "float32", compile=False, threads=1)
    half = replace(single, precision="bfloat16")
    validation = data.micro_batches(9)
    with Factories():
        at_first = mean_loss(model, objective, validation, single)
        in_half = mean_loss(model, objective, validation, half)
        steps = train(model, objective, data, SCHEDULE, num_steps=2, seed=1, device=half)
        next(steps)
        waits.clear()  # ignores tables that are made once
        last = next(steps)
        of_step = dict(waits)
        steps.close()
        waits.clear()
        mean_loss(model, objective, validation, half)
    return {
        "at first": at_first,
        "in half": in_half,
        "last": last.loss,
        "step": of_step,
        "validation": dict(waits),
    }


def loss_without_targets() -> float:
    """The loss of an encoder-decoder that writes nothing: each document is a single sentence."""
    objective, model, _ = built("multi_task", "encoder_decoder")
    sentences = [[line] for lines in documents()[:3] for line in lines]
    packing = Packing(encode(sentences, small_tokenizer()), LENGTH, seed=1)
    data = PretrainingData(packing, objective, batch_rows=2, micro_batch_rows=2, seed=1)
    model.to(CUDA)
    half = Device("cuda", "bfloat16", compile=False, threads=1)
    with Factories():
        (step,) = train(model, objective, data, SCHEDULE, num_steps=1, seed=1, device=half)
    return step.loss


def kernels_of_step(num_layers: int, **settings: Any) -> dict[str, int]:
    """The kernels of a step of a decoder, without dropout, by operation."""
    sizes = settings | {"num_layers": num_layers}
    objective, model, data = built("causal", "decoder", dropout=0.0, **sizes)
    data = PretrainingData(
        Packing(short_texts(), LENGTH, seed=1), objective, batch_rows=2, micro_batch_rows=2, seed=1
    )
    model.to(CUDA)
    half = Device("cuda", "bfloat16", compile=False, threads=1)
    with Factories():
        steps = train(model, objective, data, SCHEDULE, num_steps=2, seed=1, device=half)
        next(steps)
        kernels.clear()  # ignores tables that are made once
        next(steps)
        of_step = dict(kernels)
        steps.close()
    return of_step


def shapes_of_epoch(name: str, architecture: str, *, few_widths: bool) -> list[int]:
    """Returns how many shapes the batches of an epoch have on CUDA, in pretraining and in
    fine-tuning on texts of 2 to 60 words, which an encoder-decoder writes and other models tag."""
    objective, model, _ = built(name, architecture, max_tokens=LONG)
    packing = Packing(short_texts(), LONG, seed=1)
    rows: Any = {"batch_rows": 4, "micro_batch_rows": 2}
    pretraining = PretrainingData(packing, objective, **rows, seed=1, few_widths=few_widths)
    writes = architecture == "encoder_decoder"
    entry = {"name": "seq2seq", "max_target_tokens": LONG} if writes else {"name": "tagging"}
    task: Task = TASKS.build(entry, ["O"], small_tokenizer(), LONG, where="task")
    task.read_by(model.backbone, has_prefix=False)
    words = [word for lines in documents()[:3] for line in lines for word in line.split()]
    texts = [words[place : place + 2 + place % 59] for place in range(0, 400, 2)]
    examples = task.encode(
        [
            {"id": str(i), "words": text, "tags": ["O"] * len(text)}
            | {"text": " ".join(text), "target": " ".join(text[::2])}
            for i, text in enumerate(texts)
        ]
    )
    finetuning = FinetuningData(examples, task, batch_examples=8, seed=1, few_widths=few_widths)
    return [
        len(
            {
                tuple(
                    value.shape
                    for value in vars(batch.to(CUDA)).values()
                    if isinstance(value, Fake)
                )
                for step in range(number)
                for batch in data.micro_batches(step)
            }
        )
        for data, number in (
            (pretraining, packing.rows_per_epoch // 4),
            (finetuning, finetuning.steps_per_epoch),
        )
    ]


def main() -> None:
    install()
    results: dict[str, Any] = {
        "kernels": [kernels_of_step(number) for number in (1, 2, 3)],
        "relative": [kernels_of_step(number, positions="relative") for number in (1, 2)],
    }
    try:
        results["without targets"] = loss_without_targets()
    except Exception:
        results["without targets"] = traceback.format_exc()
    for name, architecture in cases():
        try:
            results[f"{name} {architecture}"] = trained(name, architecture)
        except Exception:
            results[f"{name} {architecture}"] = {"error": traceback.format_exc()}
    with Factories():
        results["shapes"] = {
            f"{name} {architecture}": [
                shapes_of_epoch(name, architecture, few_widths=few_widths)
                for few_widths in (False, True)
            ]
            for name, architecture in SHAPES
        }
    try:
        with Factories():
            torch.ones(2, device=CUDA) + torch.ones(2)
    except RuntimeError as error:
        results["two devices"] = str(error)
    sys.stdout.write(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
