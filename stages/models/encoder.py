"""The encoder: every token attends to every token of its document (BERT; Devlin et al. 2019)."""

from jaxtyping import Float
from torch import Tensor, nn

from stages.models._backbone import Backbone, stack_flops
from stages.models._blocks import Block, Dimensions, attention_mask, final_norm
from stages.text.batch import Batch


class Encoder(Backbone):
    architecture = "encoder"
    pooling = "mean"

    def __init__(self, vocab_size: int, dims: Dimensions) -> None:
        super().__init__(vocab_size, dims)
        self.blocks = nn.ModuleList(Block(dims) for _ in range(dims.num_layers))
        self.norm = final_norm(dims)

    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        x = self.embedding(batch.input_ids, batch.document_ids)
        mask = attention_mask(batch.document_ids, batch.document_ids)
        for block in self.blocks:
            x = block(x, mask)
        return self.norm(x)

    def flops(self, batch: Batch) -> int:
        return stack_flops(self.dims, *batch.input_ids.shape)
