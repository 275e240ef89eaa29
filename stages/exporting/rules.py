"""The types of the tables in ``families``: families, and rules that convert our weights."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from stages.core.artifacts import Json
from stages.models._dimensions import Dimensions
from stages.text.tokenizer import BOS_ID, EOS_ID, PAD_ID

Weights = dict[str, Tensor]

SIZES = {  # settings of every configuration
    "vocab_size": "vocab_size",
    "hidden_size": "d_model",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
}


class Rule(NamedTuple):
    """Modules or parameters of our model (``ours``), whose weights go to modules or parameters of
    the ``transformers`` model (``theirs``).

    ``*`` stands for the number of a block. Several modules, separated by blanks, are concatenated
    by rows. A rule applies if both models have the modules or parameters that it names.
    """

    ours: str
    theirs: str
    transposed: bool = False  # their matrix is the transpose of ours
    scale: Callable[[Dimensions], float] | None = None  # theirs = scale x ours

    def parameters(self, num_blocks: int) -> Iterator[tuple[list[str], list[str]]]:
        """Yields the names of our parameters and of theirs that correspond, block by block."""
        for block in range(num_blocks if "*" in self.ours else 1):
            for kind in (".weight", ".bias", ""):
                ours, theirs = (
                    [name.replace("*", str(block)) + kind for name in side.split()]
                    for side in (self.ours, self.theirs)
                )
                yield ours, theirs


def within(ours: str, theirs: str, *rules: Rule) -> tuple[Rule, ...]:
    """Returns the rules with ``ours`` put before our names, and ``theirs`` before their names."""
    return tuple(
        rule._replace(
            ours=" ".join(ours + name for name in rule.ours.split()),
            theirs=" ".join(theirs + name for name in rule.theirs.split()),
        )
        for rule in rules
    )


@dataclass(frozen=True, kw_only=True)
class Family:
    """A family of ``transformers``: the settings it accepts, its configuration and its weights.

    Weights are named as in the family's model without a head, and the weights of a head as in the
    model with that head.
    """

    name: str
    architecture: str  # of our model
    accepts: Mapping[str, tuple[object, ...]]  # the values that our settings may have
    config: Any  # the class of the configuration
    settings: Mapping[str, str]  # their setting -> our setting, or a name in ``configuration``
    constants: Json  # their other settings
    rules: tuple[Rule, ...]
    zeros: tuple[str, ...] = ()  # modules and parameters that are 0 unless a rule fills them
    classifies_texts: bool = False  # whether it can: one linear layer on the last token's state

    def refused(self, dims: Dimensions) -> list[str]:
        """Returns the names of the settings whose values the family does not accept."""
        return [name for name, values in self.accepts.items() if getattr(dims, name) not in values]

    def configuration(
        self, dims: Dimensions, *, vocab_size: int, max_tokens: int, tied: bool, labels: list[str]
    ) -> Any:
        """Returns the configuration of their model. Unless positions are learned,
        its maximum length is ``max_tokens``; ``tied`` may differ from ``dims.tied``."""
        activation = "silu" if dims.activation == "swiglu" else dims.activation
        values = asdict(dims) | {
            "vocab_size": vocab_size,
            "max_length": dims.max_positions if dims.positions == "learned" else max_tokens,
            "head_width": dims.d_model // dims.num_heads,
            "num_segments": max(dims.num_segments, 1),
            "tied": tied,
            "activation": activation,
            "feed_forward": "gated-silu" if dims.activation == "swiglu" else activation,
        }
        config = self.config(
            **{theirs: values[ours] for theirs, ours in {**SIZES, **self.settings}.items()},
            **self.constants,
            tie_word_embeddings=tied,
            bos_token_id=BOS_ID,
            eos_token_id=EOS_ID,
            pad_token_id=PAD_ID,
        )
        config.tie_word_embeddings = tied  # T5's constructor reads the value, then sets it to True
        if labels:
            config.id2label = dict(enumerate(labels))
            config.label2id = {label: i for i, label in enumerate(labels)}
        return config

    def weights(self, ours: Mapping[str, Tensor], theirs: nn.Module, dims: Dimensions) -> Weights:
        """Returns the weights of ``theirs`` by name, converted from ``ours`` by differentiable
        operations."""
        names, base = theirs.state_dict().keys(), f"{theirs.base_model_prefix}."
        converted: Weights = {}
        used: set[str] = set()
        for rule in self.rules:
            for sources, unprefixed in rule.parameters(dims.num_layers):
                targets = [base + name if base + name in names else name for name in unprefixed]
                if not (ours.keys() >= set(sources) and names >= set(targets)):
                    continue
                rows = torch.cat([ours[name] for name in sources])
                if rule.scale is not None:
                    rows = rows * rule.scale(dims)
                parts = rows.chunk(len(targets))
                for name, part in zip(targets, parts, strict=True):
                    converted[name] = part.t() if rule.transposed else part
                used |= set(sources)
        assert used == ours.keys(), f"no rule for {sorted(ours.keys() - used)}"
        return converted

    def fill(self, theirs: nn.Module, ours: Mapping[str, Tensor], dims: Dimensions) -> None:
        """Sets the weights of the model ``theirs`` to those of ``ours``."""
        base = f"{theirs.base_model_prefix}."
        with torch.no_grad():
            for name, weight in theirs.named_parameters():
                if name.removeprefix(base).startswith(self.zeros):
                    weight.zero_()
        theirs.load_state_dict(self.weights(ours, theirs, dims), strict=False)
