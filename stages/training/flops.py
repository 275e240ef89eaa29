"""Floating-point operations (FLOPs), counted by torch's ``FlopCounterMode`` while torch computes.

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
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from stages.models._heads import ModelWithHead
from stages.text.batch import Batch

T = TypeVar("T")
Shape = Sequence[int]
aten = torch.ops.aten
_OF_PROCESS = dict[object, int]()


def _lstm(inputs: Shape, weights: Sequence[Shape], *others: Any, **named: Any) -> int:
    return 2 * math.prod(inputs[:-1]) * sum(math.prod(each) for each in weights if len(each) == 2)


def _lstm_on_cpu(inputs: Shape, *weights: Any, **named: Any) -> int:
    return _lstm(inputs, weights[:2])


# torch has no formulas for LSTMs and for attention on a CPU.
FORMULAS: dict[Any, Callable[..., int]] = {
    aten._scaled_dot_product_flash_attention_for_cpu: (
        lambda *shapes, **named: sdpa_flop_count(*shapes[:3])
    ),
    aten._scaled_dot_product_flash_attention_for_cpu_backward: (
        lambda *shapes, **named: sdpa_backward_flop_count(*shapes[:4])
    ),
    aten._cudnn_rnn: _lstm,
    aten._cudnn_rnn_backward: lambda *shapes, **named: 2 * _lstm(*shapes),
    aten.mkldnn_rnn_layer: _lstm_on_cpu,
    aten.mkldnn_rnn_layer_backward: lambda *shapes, **named: 2 * _lstm_on_cpu(*shapes),
}


def counting() -> FlopCounterMode:
    """Returns a context that counts operations: ``get_total_flops()`` of it is their number."""
    return FlopCounterMode(display=False, custom_mapping=FORMULAS)


class StepFlops:
    """The operations of training steps, counted in the first step of each shape.

    A training that may resume has counts of its own, by the lengths of the rows alone; they are
    saved with its state, because a resumed process would count another step. All others of a
    process share their counts, by the shapes of all tensors of a batch.
    """

    def __init__(
        self, model: ModelWithHead, criterion: object, *, shared: bool, compiles: bool = False
    ) -> None:
        self.counts = dict[str, int]()
        self._model, self._shared, self._compiles = model, shared, compiles
        weights = tuple((name, weight.shape) for name, weight in model.named_parameters())
        self._design = type(criterion), weights

    def of(self, step: Callable[[], T], batches: Sequence[Batch]) -> tuple[T, int]:
        """Calls ``step``, which computes gradients on ``batches``. Returns its result and its
        operations."""
        counts: dict[Any, int] = _OF_PROCESS if self._shared else self.counts
        key = self._exact_key(batches) if self._shared else str([_lengths(b) for b in batches])
        if key in counts:
            return step(), counts[key]
        # torch does not compile while it counts.
        stance = torch.compiler.set_stance("force_eager") if self._compiles else nullcontext()
        with stance, counting() as counter:
            result = step()
        counts[key] = counter.get_total_flops()
        return result, counts[key]

    def _exact_key(self, batches: Sequence[Batch]) -> object:
        trains = tuple(weight.requires_grad for weight in self._model.parameters())
        tensors = [(n, v) for batch in batches for n, v in vars(batch).items()]
        shapes = tuple((name, v.shape) for name, v in tensors if isinstance(v, Tensor))
        return self._design, trains, shapes


def _lengths(batch: Batch) -> list[int]:
    written = () if batch.decoder_input_ids is None else batch.decoder_input_ids.shape
    return [*batch.input_ids.shape, *written]
