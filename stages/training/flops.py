"""Floating-point operations (FLOPs), counted by torch's formulas while torch computes.

A product of matrices [n, a] and [a, b] is 2 n a b operations forward, and as many backward for each
factor that needs a gradient. Only matrix products are counted, those inside attention and LSTMs
included. No model, objective, task or method counts operations itself.
"""

import math
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry, sdpa_flop_count, shape_wrapper

from stages.models._documents import document_lengths, groups_of_like_length
from stages.text.batch import Batch
from stages.training.ranks import ALONE, Ranks

CHECKED = 3  # lengths on which the interpolation of operations is checked before it is used
T = TypeVar("T")
Shape = Sequence[int]
aten = torch.ops.aten


def _attention(query: Shape, key: Shape, value: Shape, *others: Any, **named: Any) -> int:
    return sdpa_flop_count(query, key, value)


def _attention_backward(
    gradient: Shape, query: Shape, key: Shape, value: Shape, *others: Any, **named: Any
) -> int:
    """Operations for the gradients of attention's two matrix products. Fused kernels recompute the
    scores to save memory; this is not counted, so that the number is the same on every device."""
    return 2 * sdpa_flop_count(query, key, value)


def _attention_within_documents(
    query: Shape,
    key: Shape,
    value: Shape,
    starts: Shape,
    others: Shape,
    longest: int,
    *rest: Any,
    **named: Any,
) -> int:
    """Returns the operations for all pairs of tokens of a row, even of different documents, as for
    masked attention: the number is the same on every device. ``longest`` is the row length."""
    tokens, heads, width = query
    rows = (tokens // longest, heads, longest, width)
    return sdpa_flop_count(rows, rows, rows)


def _attention_within_documents_backward(
    gradient: Shape,
    query: Shape,
    key: Shape,
    value: Shape,
    mixed: Shape,
    sums: Shape,
    *others: Any,
    **named: Any,
) -> int:
    return 2 * _attention_within_documents(query, key, value, *others)


def _lstm(states: Shape, weights: Sequence[Shape], *others: Any, **named: Any) -> int:
    return 2 * math.prod(states[:-1]) * sum(math.prod(each) for each in weights if len(each) == 2)


def _lstm_backward(states: Shape, weights: Sequence[Shape], *others: Any, **named: Any) -> int:
    """Operations for the gradients of the states and, if the last entry of cuDNN's output mask asks
    for them, of the weights."""
    return (1 + others[-1][3]) * _lstm(states, weights)


def _cpu_lstm(states: Shape, inputs: Shape, recurrent: Shape, *others: Any, **named: Any) -> int:
    return _lstm(states, [inputs, recurrent])


def _cpu_lstm_backward(
    states: Shape, inputs: Shape, recurrent: Shape, *others: Any, **named: Any
) -> int:
    return 2 * _lstm(states, [inputs, recurrent])


# torch has no formulas for attention on a CPU or for LSTMs. Its formulas for the backward pass of
# other attention count the recomputed scores.
OWN_FORMULAS: Mapping[Any, Callable[..., int]] = {
    aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    aten._scaled_dot_product_flash_attention_backward: _attention_backward,
    aten._scaled_dot_product_efficient_attention_backward: _attention_backward,
    aten._scaled_dot_product_cudnn_attention_backward: _attention_backward,
    aten._cudnn_rnn: _lstm,
    aten._cudnn_rnn_backward: _lstm_backward,
    aten.mkldnn_rnn_layer: _cpu_lstm,
    aten.mkldnn_rnn_layer_backward: _cpu_lstm_backward,
}
# Operations by name, because importing their module would load torch's compiler. These formulas
# replace torch's own, which count only pairs of tokens within a document.
FORMULAS_BY_NAME = {
    "torch_attn._varlen_attn": shape_wrapper(_attention_within_documents),
    "torch_attn._varlen_attn_backward": shape_wrapper(_attention_within_documents_backward),
}
FORMULAS = flop_registry | {name: shape_wrapper(own) for name, own in OWN_FORMULAS.items()}


class Counter(TorchDispatchMode):
    """Counts the operations that torch computes inside this context (``total``), without
    changing results.

    The formulas are those of torch's ``FlopCounterMode``. The mode itself is not used, because it
    loads torch's compiler: 1 s in each of a study's dozens of processes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # in order to skip this mode, torch would load its compiler

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        packet = func.overloadpacket
        formula = FORMULAS_BY_NAME.get(str(packet)) or FORMULAS.get(packet)
        if formula is None:
            with self:  # an operation that consists of others
                if (result := func.decompose(*args, **kwargs)) is not NotImplemented:
                    return result
        result = func(*args, **kwargs)
        if formula is not None:
            self.total += formula(*args, **kwargs, out_val=result)
        return result


class OnMeta(TorchDispatchMode):
    """Moves an operation to torch's device "meta", which computes nothing, if one of its tensors is
    on "meta", such as the weights of an outline (``models/_backbone.py``). Operations on token ids
    alone are computed, because a model's work depends on the number of documents that it finds.

    Reading a number from "meta" gives 1. transformers does this to see whether it can leave out a
    mask, which does not change the number of operations.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # as for Counter

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # The indices of these operations may stay on a CPU, and must if they are a mask.
        takes_indices = func.overloadpacket in (aten.index, aten.index_put, aten._index_put_impl_)
        tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        if not takes_indices and len({tensor.is_meta for tensor in tensors}) > 1:
            args, kwargs = tree_map_only(Tensor, lambda each: each.to("meta"), (args, kwargs))
        elif tensors and tensors[0].is_meta and func.overloadpacket is aten._to_copy:
            kwargs = kwargs | {"device": "meta"}
        elif tensors and tensors[0].is_meta and func.overloadpacket is aten._local_scalar_dense:
            return 1
        return func(*args, **kwargs)


def of_outline(loss: Callable[[], Tensor]) -> int:
    """Returns the operations of a loss computed on an outline, and of its backward pass if the loss
    depends on weights that train. Neither weights nor states take memory."""
    with Counter() as counter, OnMeta():
        value = loss()
        if value.requires_grad:
            value.backward()
    return counter.total


class StepFlops:
    """The operations of training steps, counted in the first steps and then interpolated,
    separately for each set of weights that train."""

    def __init__(self, *, compiles: bool = False, ranks: Ranks = ALONE) -> None:
        self._compiles, self._ranks = compiles, ranks
        self._functions = defaultdict[object, FlopsByBatch](FlopsByBatch)

    def of(
        self, step: Callable[[], T], weights: Sequence[nn.Parameter], batches: Sequence[Batch]
    ) -> tuple[T, int]:
        """Calls ``step``, which computes the gradients of ``weights`` on ``batches``. Returns its
        result and its operations."""
        function = self._functions[tuple(weight.requires_grad for weight in weights)]
        flops = function.known(batches)
        if self._compiles and self._ranks.total({"unknown": int(flops is None)})["unknown"]:
            # torch does not compile code while it counts, and compiled code rounds differently. So
            # an extra pass counts the operations, on all ranks if one of them needs it.
            with torch.compiler.set_stance("force_eager"), Counter() as counter:
                step()
            for weight in weights:
                weight.grad = None
            function.add(batches, flops := counter.total)
        if flops is not None:
            return step(), flops
        with Counter() as counter:
            result = step()
        function.add(batches, counter.total)
        return result, counter.total


class FlopsByBatch:
    """The operations of a model on batches: a linear function of the sizes that
    ``_lengths_and_sizes`` returns, so that few counted batches determine all others exactly.

    The operations of some public checkpoints grow in steps, because attention pads rows to blocks
    (Longformer, BigBird). So the function is checked on CHECKED further lengths, and on each length
    that is longer than all counted ones. If a check fails, each combination of lengths gets a
    function of its own.
    """

    def __init__(self) -> None:
        self._functions = defaultdict[object, _LinearFunction](_LinearFunction)
        self._counted = set[object]()  # lengths of batches
        self._longest = list[int]()
        self._num_checked = 0
        self._has_steps = False

    def known(self, batches: Sequence[Batch], *, extrapolates: bool = False) -> int | None:
        """Returns the operations of all batches together, or None if they have to be counted. With
        ``extrapolates`` a batch may be longer than all that were counted, which is right only if
        the operations do not grow in steps."""
        function, sizes, lengths = self._of(batches)
        value = function.value(sizes)
        if value is None or extrapolates or self._has_steps or lengths in self._counted:
            return value
        is_longer = any(map(operator.gt, _longest(lengths), self._longest or _longest(lengths)))
        return None if is_longer or self._num_checked < CHECKED else value

    def add(self, batches: Sequence[Batch], flops: int) -> None:
        """Adds the counted operations of all batches together."""
        function, sizes, lengths = self._of(batches)
        value = function.value(sizes)
        if value is not None and value != flops:
            self._has_steps = True
            self._functions.clear()
            function, *_ = self._of(batches)
        self._num_checked += value == flops
        self._counted.add(lengths)
        self._longest = [*map(max, _longest(lengths), self._longest or _longest(lengths))]
        function.add(sizes, flops)

    def _of(
        self, batches: Sequence[Batch]
    ) -> "tuple[_LinearFunction, list[int], tuple[Lengths, ...]]":
        measured = sorted(map(_lengths_and_sizes, batches))
        lengths, sizes = zip(*measured, strict=True)
        # The number of possible answer spans is not polynomial in the length of a row.
        spans = tuple(b.input_ids.shape[1] for b in batches if b.candidates is not None)
        function = self._functions[spans, lengths if self._has_steps else ()]
        return function, [sum(each) for each in zip(*sizes, strict=True)], lengths


# A batch's lengths: (row, longest document, decoder row, longest decoder document); and, if
# documents are packed, for each group (number of documents, longest, longest in the decoder).
Lengths = tuple[tuple[int, int, int, int], tuple[tuple[int, ...], ...]]


def _longest(lengths: Iterable[Lengths]) -> list[int]:
    return [max(each) for each in zip(*(of_batch for of_batch, _ in lengths), strict=True)]


def _lengths_and_sizes(batch: Batch) -> tuple[Lengths, list[int]]:
    """Returns the lengths of rows and documents, and the sizes on which the operations of a model
    and its loss depend linearly: rows, tokens, pairs of tokens that attention compares, and
    targets. Documents have sizes of their own, both unpadded and padded to the longest of their
    group, for models that read each document of a row separately."""
    rows, length = batch.input_ids.shape
    written = 0 if batch.decoder_input_ids is None else batch.decoder_input_ids.shape[1]
    sides = [batch.document_ids]
    if batch.decoder_document_ids is not None:
        sides.append(batch.decoder_document_ids)
    lengths = document_lengths(*sides)
    # A document without a target is left out.
    used = np.pad(lengths[lengths.all(axis=2)], ((0, 0), (0, 2 - len(sides))))
    groups = tuple(
        (len(group), *used[group].max(axis=0, initial=0).tolist())
        for group in groups_of_like_length(used)
    )
    padded = [sum(each) for each in zip(*(_padded(*group) for group in groups), strict=True)]
    longest, longest_target = (max(each) for each in list(zip(*groups, strict=True))[1:])
    is_packed = lengths.shape[1] > 1
    places = (batch.labels, batch.target_positions, batch.boundary_positions, batch.pair_positions)
    sizes = [
        *(1, len(groups), rows, *_tokens_and_pairs(rows, length, written)),
        *(int(lengths[:, :, 0].sum()), *padded),
        *(0 if each is None else each.numel() for each in places),
        sum(batch.num_targets.values()),
    ]
    return ((length, longest, written, longest_target), groups if is_packed else ()), sizes


def _padded(number: int, longest: int, longest_target: int) -> list[int]:
    return [number, *_tokens_and_pairs(number, longest, longest_target)]


def _tokens_and_pairs(rows: int, length: int, written: int) -> list[int]:
    per_row = (length, length**2, written, written**2, length * written)
    return [rows * each for each in per_row]


@dataclass
class _LinearFunction:
    """A linear function of integers that is known for all linear combinations of the arguments
    added so far. It computes in integers, so a value is the same whichever arguments were added."""

    # Arguments in echelon form: (the index of the first nonzero number, the numbers, value).
    _basis: list[tuple[int, list[int], int]] = field(default_factory=list)

    def value(self, argument: Sequence[int]) -> int | None:
        rest, value, scale = self._reduced(argument)
        return None if any(rest) else round(Fraction(value, scale))

    def add(self, argument: Sequence[int], value: int) -> None:
        rest, known, scale = self._reduced(argument)
        if any(rest):
            place = next(i for i, number in enumerate(rest) if number)
            self._basis.append((place, rest, scale * value - known))

    def _reduced(self, argument: Sequence[int]) -> tuple[list[int], int, int]:
        """Returns (rest, value, scale): the rest is scale * argument minus a combination of the
        basis, whose value is ``value``. A rest of 0 means that the argument is a combination."""
        rest, value, scale = [*argument], 0, 1
        for place, numbers, of_numbers in self._basis:
            factor, unit = rest[place], numbers[place]
            if factor:
                rest = [unit * a - factor * b for a, b in zip(rest, numbers, strict=True)]
                value, scale = unit * value + factor * of_numbers, unit * scale
        return rest, value, scale
