"""The encoder: every token attends to every token of its document (BERT; Devlin et al. 2019)."""

from stages.models._blocks import Stack
from stages.models._dimensions import Dimensions
from stages.models._transformer import TransformerBackbone


class Encoder(TransformerBackbone):
    architecture = "encoder"
    starts_from = ("decoder",)

    def __init__(self, vocab_size: int, dims: Dimensions) -> None:
        super().__init__(vocab_size, dims)
        self.stack = Stack(dims, causal=False)

    @property
    def reader(self) -> Stack:
        return self.stack
