"""The decoder: a token attends to itself and the tokens before it (GPT; Radford et al. 2018)."""

from jaxtyping import Float
from torch import Tensor

from stages.models._backbone import TransformerBackbone, stack_flops
from stages.models._blocks import Dimensions, Stack
from stages.text.batch import Batch


class Decoder(TransformerBackbone):
    """Tokens that a batch says are ``visible`` are attended to by earlier ones too (a prefix)."""

    architecture = "decoder"
    pooling = "last"

    def __init__(self, vocab_size: int, dims: Dimensions) -> None:
        super().__init__(vocab_size, dims)
        self.stack = Stack(dims, causal=True)

    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        x = self.embedding(batch.input_ids, batch.document_ids, batch.segment_ids)
        return self.stack(x, batch.document_ids, visible=batch.visible)

    def flops(self, batch: Batch) -> int:
        return stack_flops(self.dims, *batch.input_ids.shape)
