"""The linear probe: the head alone is fitted, to frozen features (Alain and Bengio 2017)."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from stages.methods._additions import freeze_backbone
from stages.methods._method import SolvedMethod
from stages.models._backbone import Backbone, ScalarMix
from stages.models._heads import ModelWithHead
from stages.text.batch import PADDING, Batch

WIDE = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)


class LinearProbe(SolvedMethod):
    """Minimises the task's own loss with an L2 penalty over the head's weights, on standardised
    states. ``C`` are the inverse strengths of the penalty that are tried, as in scikit-learn: the
    sum of the losses plus ``|W|^2 / (2 C)`` is minimised. The C with the best metric on validation
    is kept; ties go to the lowest loss. (The loss alone would choose penalties so strong that rare
    labels are never predicted.)

    With ``layers: last`` the states are those that the backbone returns. With ``mix`` they are a
    weighted mean of the inputs of all blocks and the output of the last block; the weights of the
    mean are fitted together with the head (Peters et al. 2018, eq. 1), with the same penalty. Each
    layer is normalised first (section 3.2), since the layers of a transformer differ in scale. The
    states of an ELMo are always such a mean, not normalised, and its weights are fitted, too.

    The loss of a linear head on states without a mix has one minimum, which is found. With a mix or
    a head with a hidden layer (``span``) the loss is not convex, and a stationary point is found.

    Raises ValueError for no ``C``, a repeated one, or one that is not above 0.
    """

    tried: ClassVar[tuple[str, ...]] = ("layers",)

    def __init__(
        self, *, layers: Literal["last", "mix"] = "last", C: Sequence[float] = WIDE
    ) -> None:
        if not C or min(C) <= 0 or len(set(C)) < len(C):
            raise ValueError("C must be one or more different numbers above 0")
        self.layers, self.C = layers, C
        self._states: dict[str, Tensor] = {}
        self._states_of = ""  # the fingerprint of the backbone that computed the states

    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        freeze_backbone(model)
        backbone = model.backbone
        adds_mix = self.layers == "mix" and backbone.mix is None
        mix = ScalarMix(backbone.num_layers + 1) if adds_mix else backbone.mix
        if mix is not None:
            mix.gamma.requires_grad_(False)  # the head has a scale of its own
        model.backbone = _Remembered(backbone, mix if adds_mix else None, self._states)

    def remember(
        self, model: ModelWithHead, batches: Iterable[Batch], *, anew: bool = False
    ) -> None:
        assert isinstance(model.backbone, _Remembered)
        if (weights := _fingerprint(model.backbone.uncached)) != self._states_of:
            self._states.clear()
            self._states_of = weights
        for batch in batches:
            model.backbone.remember(batch, anew=anew)


def _fingerprint(backbone: Backbone) -> str:
    """Returns a hash of the frozen weights, which compute the states. The fitted weights of a mix,
    which are applied to known states, are left out."""
    digest = hashlib.blake2b()
    for name, weight in backbone.named_parameters():
        if not weight.requires_grad:
            digest.update(name.encode() + weight.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


class _Remembered(Backbone):
    """A frozen backbone that looks up the states of known examples and computes the states of
    others (new text, which a kept trial predicts). Only its mix of layers, if any, trains."""

    def __init__(
        self, backbone: Backbone, mix: ScalarMix | None, states: dict[str, Tensor]
    ) -> None:
        super().__init__()
        self.architecture, self.trained_like = backbone.architecture, backbone.trained_like
        self.vocab_size = backbone.vocab_size
        self.num_layers = backbone.num_layers
        self.backbone = backbone
        self.mix = mix  # None unless this method adds a mix
        self._states = states  # example id -> [its tokens, J, D], or [its tokens, D] without a mix

    @property
    def uncached(self) -> Backbone:
        return self.backbone

    @property
    def d_model(self) -> int:
        return self.backbone.d_model

    @property
    def blocks(self) -> list[nn.Module]:
        return self.backbone.blocks

    @property
    def token_embedding(self) -> nn.Module:
        return self.backbone.token_embedding

    def unembed(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        return self.backbone.unembed(states)

    def initialise(self, *, generator: torch.Generator) -> None:
        self.backbone.initialise(generator=generator)

    @torch.no_grad()
    def remember(self, batch: Batch, *, anew: bool) -> None:
        if not anew and all(example in self._states for example in batch.example_ids):
            return
        states = self._features(batch)
        lengths = (batch.document_ids != PADDING).sum(dim=1).tolist()
        for example, state, length in zip(batch.example_ids, states, lengths, strict=True):
            self._states[example] = state[:length].clone()

    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        if self._states.keys() >= {*batch.example_ids}:
            known = [self._states[example] for example in batch.example_ids]
            states = nn.utils.rnn.pad_sequence(known, batch_first=True)
        else:
            states = self._features(batch)
        mix = self.backbone.mix if self.mix is None else self.mix
        return states if mix is None else mix(states.movedim(2, 0))

    @torch.no_grad()
    def _features(self, batch: Batch) -> Float[Tensor, "B T ..."]:
        """Returns the states [B T D] or, with a mix, the states of each layer [B T J D]. They are
        float32 at any training precision, so that states of new text equal remembered ones."""
        self.backbone.eval()
        with torch.autocast(batch.input_ids.device.type, enabled=False):
            if self.mix is None and self.backbone.mix is None:
                return self.backbone(batch)
            layers = self.backbone.layers(batch)
        if self.mix is not None:
            layers = F.layer_norm(layers, layers.shape[-1:])
        return layers.movedim(0, 2)
