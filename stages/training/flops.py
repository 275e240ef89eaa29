"""Floating-point operations (FLOPs), counted by the formulas of torch while torch computes.

A product of matrices [n, a] and [a, b] is 2 n a b operations forward, and as many backward for each
factor that needs a gradient. Only matrix products are counted, those inside attention and LSTMs
included. No model, objective, task or method counts operations itself.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import (
    flop_registry,
    sdpa_backward_flop_count,
    sdpa_flop_count,
    shape_wrapper,
)

from stages.models._heads import ModelWithHead
from stages.text.batch import Batch
from stages.training.device import Device

T = TypeVar("T")
Shape = Sequence[int]
aten = torch.ops.aten

_OF_PROCESS = dict[Any, int]()


def _lstm(inputs: Shape, weights: Sequence[Shape], *others: Any, **named: Any) -> int:
    return 2 * math.prod(inputs[:-1]) * sum(math.prod(each) for each in weights if len(each) == 2)


# torch has no formulas for LSTMs and for attention on a CPU.
OWN: dict[Any, Callable[..., int]] = {
    aten._scaled_dot_product_flash_attention_for_cpu: lambda *s, **_: sdpa_flop_count(*s[:3]),
    aten._scaled_dot_product_flash_attention_for_cpu_backward: (
        lambda *s, **_: sdpa_backward_flop_count(*s[:4])
    ),
    aten._cudnn_rnn: _lstm,
    aten._cudnn_rnn_backward: lambda *s, **_: 2 * _lstm(*s),
    aten.mkldnn_rnn_layer: lambda *s, **_: _lstm(s[0], s[1:3]),
    aten.mkldnn_rnn_layer_backward: lambda *s, **_: 2 * _lstm(s[0], s[1:3]),
}
FORMULAS = flop_registry | {packet: shape_wrapper(formula) for packet, formula in OWN.items()}


class counting(TorchDispatchMode):
    """A context that counts operations; ``flops`` is their number.

    It is torch's ``FlopCounterMode`` without its table by modules, which makes a counted step a
    third slower.
    """

    flops = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if formula := FORMULAS.get(func._overloadpacket):
            self.flops += formula(*args, **(kwargs or {}), out_val=result)
        return result


class StepFlops:
    """The operations of training steps, counted in the first step of each shape.

    A training that may resume has ``counts`` of its own, by the lengths of the rows alone; they are
    saved with its state, because a resumed process would count another step. All others of a
    process share their counts, by the shapes of all tensors of a batch.
    """

    def __init__(
        self, model: ModelWithHead, criterion: object, device: Device, *, resumes: bool
    ) -> None:
        self.counts: dict[Any, int] = {} if resumes else _OF_PROCESS
        self._model, self._compiles, self._resumes = model, device.compile, resumes
        weights = tuple((name, weight.shape) for name, weight in model.named_parameters())
        self._design = type(criterion), device.precision, weights

    def of(self, step: Callable[[], T], batches: Sequence[Batch]) -> tuple[T, int]:
        """Calls ``step``, which computes gradients on ``batches``; returns its result and its
        number of operations."""
        key = self._key(batches)
        if key in self.counts:
            return step(), self.counts[key]
        # torch does not compile while it counts.
        stance = torch.compiler.set_stance("force_eager") if self._compiles else nullcontext()
        with stance, counting() as counter:
            result = step()
        self.counts[key] = counter.flops
        return result, counter.flops

    def _key(self, batches: Sequence[Batch]) -> object:
        if self._resumes:
            lengths = [(b.input_ids, b.decoder_input_ids) for b in batches]
            return str(
                [[n for ids in pair if ids is not None for n in ids.shape] for pair in lengths]
            )
        tensors = [(n, v) for batch in batches for n, v in vars(batch).items()]
        shapes = tuple((name, v.shape) for name, v in tensors if isinstance(v, Tensor))
        return self._design, tuple(w.requires_grad for w in self._model.parameters()), shapes
