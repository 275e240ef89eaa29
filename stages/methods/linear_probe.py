"""The linear probe: the head alone trains, on frozen features (Alain and Bengio 2017)."""

from collections.abc import Iterable
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from stages.methods._additions import freeze_backbone
from stages.methods._method import Method
from stages.models._backbone import Backbone, ScalarMix
from stages.models._heads import ModelWithHead
from stages.text.batch import PADDING, Batch


class LinearProbe(Method):
    """The backbone's states are computed once and looked up by example in every epoch and trial.

    ``layers: last`` are the states as the backbone gives them. With ``mix`` a state is a mixture of
    what goes into each block and what comes out of the last, learnt with the head (Peters et al.
    2018, eq. 1), each layer normalised first (section 3.2), since those of a transformer differ in
    scale. An ELMo's states are such a mixture in any case, not normalised, and its weights are
    learnt here, too.
    """

    freezes_backbone = True
    states_only = True

    def __init__(self, *, layers: Literal["last", "mix"] = "last") -> None:
        self.layers = layers
        self._states: dict[str, Tensor] = {}

    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        freeze_backbone(model)
        backbone: Backbone = model.backbone
        adds_mix = self.layers == "mix" and backbone.mix is None
        mix = ScalarMix(backbone.num_layers + 1) if adds_mix else None
        model.backbone = _Remembered(backbone, mix, self._states)

    def before_training(self, model: ModelWithHead, batches: Iterable[Batch]) -> None:
        assert isinstance(model.backbone, _Remembered)
        for batch in batches:
            model.backbone.remember(batch)


class _Remembered(nn.Module):
    """A frozen backbone whose states of known examples are looked up, those of others computed (of
    new text, which a kept trial predicts); and a mixture of layers, if there is one, that trains.
    """

    def __init__(
        self, backbone: Backbone, mix: ScalarMix | None, states: dict[str, Tensor]
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.mix = mix  # None if the backbone has its own
        self._states = states  # example id -> [its tokens, J, D], or [its tokens, D] without a mix

    @torch.no_grad()
    def remember(self, batch: Batch) -> None:
        if all(example in self._states for example in batch.example_ids):
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
        """States, or with a mix those of each layer: [B T D] or [B T J D]. In float32 whatever the
        precision is, so that those of new text are what those remembered would have been."""
        self.backbone.eval()
        with torch.autocast(batch.input_ids.device.type, enabled=False):
            if self.mix is None and self.backbone.mix is None:
                return self.backbone(batch)
            layers = self.backbone.layers(batch)
        if self.mix is not None:
            layers = F.layer_norm(layers, layers.shape[-1:])
        return layers.movedim(0, 2)

    def flops(self, batch: Batch) -> int:
        """Looking up is free; what computing the states took is counted where it is done."""
        return 0
