"""The linear probe: the head alone trains, on frozen features (Alain and Bengio 2017)."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from stages.methods._method import Method
from stages.models._heads import Headed
from stages.text.batch import PADDING, Batch


class LinearProbe(Method):
    """The backbone's states are computed once and looked up by example in every epoch and trial."""

    freezes_backbone = True

    def __init__(self) -> None:
        self._states: dict[str, Tensor] = {}

    def apply(self, model: Headed, *, generator: torch.Generator) -> None:
        model.backbone.requires_grad_(False)
        model.backbone = _Remembered(model.backbone, self._states)
        model.head.requires_grad_(True)

    def before_training(self, model: Headed, batches: Iterable[Batch]) -> None:
        assert isinstance(model.backbone, _Remembered)
        for batch in batches:
            model.backbone.remember(batch)


class _Remembered(nn.Module):
    """A frozen backbone whose states of known examples are looked up; those of a batch with
    another, as when a kept trial predicts new text, are computed."""

    def __init__(self, backbone: nn.Module, states: dict[str, Tensor]) -> None:
        super().__init__()
        self.backbone = backbone
        self._states = states  # example id -> [its tokens, D]

    @torch.no_grad()
    def remember(self, batch: Batch) -> None:
        if all(example in self._states for example in batch.example_ids):
            return
        self.backbone.eval()
        states = self.backbone(batch)
        lengths = (batch.document_ids != PADDING).sum(dim=1).tolist()
        for example, state, length in zip(batch.example_ids, states, lengths, strict=True):
            self._states[example] = state[:length].clone()

    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        if not self._states.keys() >= set(batch.example_ids):
            with torch.no_grad():
                return self.backbone(batch)
        states = [self._states[example] for example in batch.example_ids]
        return nn.utils.rnn.pad_sequence(states, batch_first=True)

    def flops(self, batch: Batch) -> int:
        """Looking up is free; what computing the states took is counted where it is done."""
        return 0
