"""The mapping between our weights and those of a transformers model."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from stages.core.artifacts import Json
from stages.models._dimensions import Dimensions
from stages.models._norm import NORM_EPS
from stages.text.tokenizer import BOS_ID, EOS_ID, PAD_ID

Weights = dict[str, Tensor]
Goal = Literal["pretrained", "tagging", "classification"]

SPECIAL_IDS: Json = {
    "bos_token_id": BOS_ID,
    "eos_token_id": EOS_ID,
    "pad_token_id": PAD_ID,
}
LAYER_EPS, RMS_EPS = NORM_EPS["layernorm"], NORM_EPS["rmsnorm"]
ROTARY_BASE = 10_000.0  # of stages.models._embedding.sinusoids


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Weights of our model and of theirs that hold the same numbers.

    The concatenated rows of ``ours`` equal the concatenated rows of ``theirs``, except for what the
    other fields say. ``to_ours(to_theirs(weights))`` returns the weights.
    """

    ours: tuple[str, ...]
    theirs: tuple[str, ...]  # all of one shape
    order: Tensor | None = None  # row i of theirs is row order[i] of ours
    factor: float = 1.0  # theirs = factor x ours
    unused: int = 0  # number of leading rows of theirs that are never used
    transposed: bool = False  # theirs is the transpose

    def to_theirs(self, weights: Mapping[str, Tensor]) -> Weights:
        """Transformers' weights from ours."""
        rows = torch.cat([weights[name] for name in self.ours]) * self.factor
        if self.order is not None:
            rows = rows[self.order]
        if self.unused:
            rows = torch.cat([rows.new_zeros(self.unused, *rows.shape[1:]), rows])
        parts = (rows.T if self.transposed else rows).chunk(len(self.theirs))
        return {name: part.contiguous() for name, part in zip(self.theirs, parts, strict=True)}

    def to_ours(self, weights: Mapping[str, Tensor], shapes: Mapping[str, torch.Size]) -> Weights:
        """Our weights, whose shapes are given, from theirs."""
        parts = [weights[name] for name in self.theirs]
        rows = torch.cat([part.T for part in parts] if self.transposed else parts)[self.unused :]
        if self.order is not None:
            rows = rows[self.order.argsort()]
        split = (rows / self.factor).split([shapes[name][0] for name in self.ours])
        return dict(zip(self.ours, split, strict=True))


@dataclass(frozen=True, kw_only=True)
class Counterpart:
    """A class of transformers with its configuration, and the correspondence of weights.

    ``head`` is the name of its linear layer on states, for fine-tuned models.
    """

    model_class: str
    auto_class: str  # the class that a user loads it by
    config: Any
    pairs: list[Pair]
    prepare: Callable[[Mapping[str, Tensor]], Weights] = dict  # applied to ours first
    constants: Weights = field(default_factory=dict)  # weights that only theirs has
    head: str | None = None
    note: str = ""  # what a user should know
    load_options: Json = field(default_factory=dict)

    def to_theirs(self, weights: Mapping[str, Tensor]) -> Weights:
        """Their weights from ours, by name."""
        found, prepared = dict(self.constants), self.prepare(weights)
        for pair in self.pairs:
            found |= pair.to_theirs(prepared)
        return found

    def to_ours(self, weights: Mapping[str, Tensor], shapes: Mapping[str, torch.Size]) -> Weights:
        """Our weights, whose shapes are given, from theirs.

        Raises ValueError where two different weights of theirs correspond to one of ours.
        """
        found: Weights = {}
        for pair in self.pairs:
            for name, weight in pair.to_ours(weights, shapes).items():
                if name in found and not torch.equal(found[name], weight):
                    raise ValueError(f"{name} has two counterparts that are not equal")
                found[name] = weight
        return found


def same(ours: str, theirs: str) -> Pair:
    """The same weight under two names."""
    return Pair(ours=(ours,), theirs=(theirs,))


def modules(
    table: Mapping[str, str],
    dims: Dimensions,
    *,
    ours: str = "",
    theirs: str = "",
    transposed: bool = False,
) -> Iterator[Pair]:
    """The weights of modules and, where the dimensions have biases, their biases.

    ``table`` maps our names to theirs, without prefixes; several names on one side mean that one
    module on the other side has the rows of all. ``transposed`` applies to linear layers.
    """
    for our_names, their_names in table.items():
        is_norm = "norm" in our_names
        has_bias = dims.bias and not (is_norm and dims.norm == "rmsnorm")
        for kind in ("weight", "bias") if has_bias else ("weight",):
            yield Pair(
                ours=tuple(f"{ours}{name}.{kind}" for name in our_names.split()),
                theirs=tuple(f"{theirs}{name}.{kind}" for name in their_names.split()),
                transposed=transposed and kind == "weight" and not is_norm,
            )


def blocks(
    table: Mapping[str, str],
    dims: Dimensions,
    *,
    ours: str = "stack.blocks.",
    theirs: str,
    transposed: bool = False,
) -> list[Pair]:
    """The weights of all blocks, from the table of one."""
    return [
        pair
        for i in range(dims.num_layers)
        for pair in modules(
            table, dims, ours=f"{ours}{i}.", theirs=f"{theirs}{i}.", transposed=transposed
        )
    ]


def within(ours: str, theirs: str, table: Mapping[str, str]) -> dict[str, str]:
    """The table of the modules inside a module."""
    return {
        f"{ours}{a}": " ".join(f"{theirs}{name}" for name in b.split()) for a, b in table.items()
    }
