"""The decoder: a token attends to itself and the tokens before it (GPT; Radford et al. 2018)."""

import torch
from jaxtyping import Float
from torch import Tensor

from stages.models._attention import Cache
from stages.models._blocks import Stack
from stages.models._dimensions import Dimensions
from stages.models._generation import CachedReader, Decoding, continued, prompts, write
from stages.models._transformer import TransformerBackbone
from stages.text.batch import Batch


class Decoder(TransformerBackbone):
    """A causal transformer. A target follows its input in the same row.

    Earlier tokens attend, too, to the tokens that a batch marks as ``visible`` (a prefix).
    """

    architecture = "decoder"
    starts_from = ("encoder",)

    def __init__(self, vocab_size: int, dims: Dimensions) -> None:
        super().__init__(vocab_size, dims)
        self.stack = Stack(dims, causal=True)

    @property
    def reader(self) -> Stack:
        return self.stack

    @property
    def can_generate(self) -> bool:
        return True

    def logits(self, batch: Batch) -> Float[Tensor, "B U V"]:
        row, num_inputs = continued(batch), batch.input_ids.shape[1]
        return self.unembed(self(row)[:, num_inputs - 1 :])

    @torch.no_grad()
    def generate(self, batch: Batch, decoding: Decoding) -> list[list[int]]:
        prompt = prompts(batch)
        capacity = prompt.input_ids.shape[1] + decoding.max_new_tokens - 1
        cache = Cache(self.num_layers, capacity=capacity)
        reader = CachedReader(self.embedding, self.stack, self.unembed, cache)
        logits = reader.begin(prompt.input_ids, prompt.document_ids, visible=prompt.visible)
        return write(reader, logits, decoding)
