"""The model of transformers that computes the same as a backbone of given dimensions.

Options without an exact counterpart are refused by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch

from stages.exporting.correspondence import Counterpart, Goal, Weights, same
from stages.exporting.decoder_families import gpt2, gpt_neox, llama
from stages.exporting.encoder_decoder_families import bart, t5
from stages.exporting.encoder_families import bert, esm
from stages.models._dimensions import Dimensions


def counterpart(
    architecture: str, dims: Dimensions, *, vocab_size: int, max_tokens: int, goal: Goal
) -> Counterpart:
    """The class for a pretrained model, or for one fine-tuned with a head.

    ``max_tokens`` is the maximum length in the configuration where positions set none. Raises
    ValueError that names the options without a counterpart.
    """
    check_architecture(architecture)
    if goal != "pretrained":
        dims = replace(dims, output_bias=False)  # only the logits over the vocabulary have it
    families = [family for family in FAMILIES if family.architecture == architecture]
    nearest = min(families, key=lambda family: len(family.faults(dims)))
    if faults := nearest.faults(dims):
        here = ", ".join(f"{name}: {_yaml(getattr(dims, name))}" for name in faults)
        there = ", ".join(f"{n}: {' or '.join(map(_yaml, nearest.options[n]))}" for n in faults)
        raise ValueError(
            f"transformers has no {architecture} with {here}; the nearest, {nearest.name}, has "
            f"{there}"
        )
    found = nearest.make(dims, vocab_size, max_tokens, goal)
    if found is None:
        raise ValueError(NO_HEAD[goal].format(family=nearest.name))
    if found.head is None:
        return found
    kinds = ("weight",) if goal == "classification" else ("weight", "bias")
    head = [same(f"head.linear.{kind}", f"{found.head}.{kind}") for kind in kinds]
    return replace(found, pairs=[*found.pairs, *head])


def check_architecture(name: str) -> None:
    """Raises ValueError for an architecture that transformers lacks, whatever the options."""
    known = dict.fromkeys(family.architecture for family in FAMILIES)
    if name not in known:
        raise ValueError(
            f"{name} models have no counterpart in transformers; {', '.join(known)} have"
        )


NO_HEAD = {
    "tagging": "transformers has no class for tagging on top of {family}",
    "classification": (
        "transformers has no class that is one linear layer on a state of {family} (its own has a "
        "layer and tanh before that one)"
    ),
}


def without_head_bias(weights: Weights) -> Weights:
    """The same logits from a head without a bias, which decoders of transformers have.

    The final norm's bias b becomes b + W^+ c, so that W b includes the head's bias c. Raises
    ValueError where there is no such b.
    """
    weights = dict(weights)
    head, bias = weights["head.linear.weight"].double(), weights.pop("head.linear.bias").double()
    if not bias.any():
        return weights
    if "stack.norm.bias" not in weights:
        raise ValueError(
            "the classifier has a bias; that of transformers has none, and norm: rmsnorm has no "
            "bias that could include it"
        )
    change = torch.linalg.pinv(head) @ bias
    if not torch.allclose(head @ change, bias, rtol=1e-5, atol=1e-7):
        raise ValueError(
            "the classifier has a bias; that of transformers has none, and no bias of the final "
            "norm replaces it"
        )
    weights["stack.norm.bias"] = (weights["stack.norm.bias"].double() + change).float()
    return weights


@dataclass(frozen=True, kw_only=True)
class Family:
    """A family of transformers, and the options of the backbones that belong to it."""

    name: str
    architecture: str
    options: Mapping[str, tuple[object, ...]]
    make: Callable[[Dimensions, int, int, Goal], Counterpart | None]

    def faults(self, dims: Dimensions) -> list[str]:
        """The options of the dimensions that this family does not have."""
        return [n for n, values in self.options.items() if getattr(dims, n) not in values]


def _yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _options(**own: object) -> dict[str, tuple[object, ...]]:
    """Options of a family; those not named must have the values of plain blocks."""
    plain = {
        "num_segments": 0,
        "embedding_norm": False,
        "output_transform": False,
        "output_bias": False,
    }
    return {
        name: value if isinstance(value, tuple) else (value,)
        for name, value in {**plain, **own}.items()
        if value is not ...
    }


PRE_NORM = {"norm": "layernorm", "norm_position": "pre", "bias": True}
POST_NORM = {"norm": "layernorm", "norm_position": "post", "bias": True, "embedding_norm": True}
FAMILIES = (
    Family(
        name="BERT",
        architecture="encoder",
        options=_options(
            **POST_NORM,
            positions="learned",
            activation=("gelu", "relu"),
            num_segments=...,
            output_transform=...,
            output_bias=...,
        ),
        make=bert,
    ),
    Family(
        name="ESM",
        architecture="encoder",
        options=_options(
            **PRE_NORM,
            positions="rotary",
            activation="gelu",
            embedding_norm=...,
            output_transform=...,
            output_bias=...,
        ),
        make=esm,
    ),
    Family(
        name="GPT-2",
        architecture="decoder",
        options=_options(
            **PRE_NORM, positions="learned", activation=("gelu", "relu"), output_bias=...
        ),
        make=gpt2,
    ),
    Family(
        name="GPT-NeoX",
        architecture="decoder",
        options=_options(
            **PRE_NORM, positions="rotary", activation=("gelu", "relu"), output_bias=...
        ),
        make=gpt_neox,
    ),
    Family(
        name="Llama",
        architecture="decoder",
        options=_options(
            norm="rmsnorm", norm_position="pre", positions="rotary", activation="swiglu"
        ),
        make=llama,
    ),
    Family(
        name="T5",
        architecture="encoder_decoder",
        options=_options(norm="rmsnorm", norm_position="pre", bias=False, positions="relative"),
        make=t5,
    ),
    Family(
        name="BART",
        architecture="encoder_decoder",
        options=_options(
            **POST_NORM, positions="learned", activation=("gelu", "relu"), output_bias=...
        ),
        make=bart,
    ),
)
