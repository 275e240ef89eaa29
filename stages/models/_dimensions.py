"""The shape of a transformer and the options of its blocks."""

from dataclasses import dataclass
from typing import Any, Literal

Norm = Literal["layernorm", "rmsnorm"]
NormPosition = Literal["pre", "post"]
Activation = Literal["gelu", "relu", "swiglu"]
Positions = Literal["rotary", "learned", "sinusoidal", "relative", "none"]

HEAD_WIDTH, ASPECT_RATIO = 64, 64  # d_model per head, d_model per layer
MAX_LAYERS = 1000  # more are a mistake and would take minutes to build, even without weights


@dataclass(frozen=True, kw_only=True)
class Dimensions:
    """The sizes and options of a transformer. The fields and the parameters of ``from_settings``
    are the settings of every transformer architecture.

    Raises ValueError for incompatible widths.
    """

    d_model: int
    num_layers: int
    num_heads: int
    d_ff: int
    norm: Norm = "layernorm"
    norm_position: NormPosition = "pre"
    activation: Activation = "gelu"
    bias: bool = True  # of linear layers and norms; T5 has none
    positions: Positions = "rotary"
    max_positions: int = 512  # rows of a learned position embedding
    num_segments: int = 0  # embeddings of the segments that mark the texts of a pair (BERT: 2)
    embedding_norm: bool = False  # a norm after the sum of embeddings (BERT, BART)
    output_transform: bool = False  # a layer, activation and norm before the vocabulary (BERT)
    tied: bool = True  # the output embedding is the input embedding
    output_bias: bool = True  # of the vocabulary's logits (BERT, BART); GPT and T5 have none
    dropout: float = 0.0
    locality: float = 11.0  # how much rotary self-attention prefers near tokens before training

    def __post_init__(self) -> None:
        for name in ("d_model", "num_layers", "num_heads", "d_ff", "max_positions"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.num_layers > MAX_LAYERS:
            raise ValueError(f"num_layers must be at most {MAX_LAYERS}, not {self.num_layers}")
        if self.num_segments < 0:
            raise ValueError(f"num_segments must be at least 0, not {self.num_segments}")
        if self.d_model % self.num_heads:
            raise ValueError(f"num_heads {self.num_heads} must divide d_model {self.d_model}")
        if self.positions == "rotary" and self.d_model // self.num_heads % 2:
            raise ValueError(
                f"rotary positions need an even d_model / num_heads, not "
                f"{self.d_model} / {self.num_heads}"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), not {self.dropout}")
        if self.locality < 0:
            raise ValueError(f"locality must be at least 0, not {self.locality}")

    @classmethod
    def from_settings(
        cls,
        *,
        d_model: int,
        aspect_ratio: int | None = None,
        num_layers: int | None = None,
        num_heads: int | None = None,
        d_ff: int | None = None,
        **others: Any,
    ) -> "Dimensions":
        """Returns dimensions whose omitted sizes follow from d_model: d_model / ``aspect_ratio``
        layers (Kaplan et al. 2020, section 3.1), d_model / 64 heads, and a d_ff of 4 d_model.

        At an aspect ratio of 64, a d_model of 128, 256, 512 or 768 is BERT-tiny (2 layers), -mini
        (4), -medium (8; Turc et al. 2019) or -base (12; Devlin et al. 2019, section 3). BERT-large
        is deeper: 24 layers with a d_model of 1024. ``others`` are further fields of the class.

        Raises ValueError if an omitted number of layers or heads would not be a whole number, or if
        ``num_layers`` and ``aspect_ratio`` are both given.
        """
        if num_layers is not None and aspect_ratio is not None:
            raise ValueError("num_layers and aspect_ratio say the same; leave one of them out")
        ratio = ASPECT_RATIO if aspect_ratio is None else aspect_ratio
        if ratio < 1:
            raise ValueError(f"aspect_ratio must be at least 1, not {ratio}")
        if num_layers is None:
            num_layers = _quotient("num_layers", d_model, ratio)
        if num_heads is None:
            num_heads = _quotient("num_heads", d_model, HEAD_WIDTH)
        if d_ff is None:
            d_ff = 4 * d_model
        return cls(d_model=d_model, num_layers=num_layers, num_heads=num_heads, d_ff=d_ff, **others)


def _quotient(name: str, d_model: int, ratio: int) -> int:
    if d_model % ratio:
        raise ValueError(
            f"{name} is d_model / {ratio} if it is left out, and {d_model} is no multiple of "
            f"{ratio}; give {name} a value"
        )
    return d_model // ratio
