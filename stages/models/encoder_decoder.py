"""The encoder-decoder: a causal decoder that attends to an encoder's states (T5; Raffel 2020).

``num_layers`` blocks in each half: at equal dimensions it has about twice the parameters of
``encoder`` or ``decoder`` and about their operations per token, since a token passes one half.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from stages.models._attention import Cache
from stages.models._backbone import TransformerBackbone, stack_flops
from stages.models._blocks import Stack
from stages.models._dimensions import Dimensions
from stages.models._generation import CachedReader, Decoding, write
from stages.text.batch import Batch


class EncoderDecoder(TransformerBackbone):
    architecture = "encoder_decoder"
    pooling = "mean"

    def __init__(self, vocab_size: int, dims: Dimensions) -> None:
        super().__init__(vocab_size, dims)
        self.encoder = Stack(dims, causal=False)
        self.decoder: nn.Module = Stack(dims, causal=True, cross=True)

    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        """The encoder's states."""
        x = self.embedding(batch.input_ids, batch.document_ids, batch.segment_ids)
        return self.encoder(x, batch.document_ids)

    def decode(self, batch: Batch) -> Float[Tensor, "B U D"]:
        """The decoder's states, from the encoder's of the same document."""
        ids, documents = batch.decoder_input_ids, batch.decoder_document_ids
        assert ids is not None and documents is not None
        return self.decoder(
            self.embedding(ids, documents),
            documents,
            memory=self(batch),
            memory_document_ids=batch.document_ids,
        )

    @property
    def can_generate(self) -> bool:
        return isinstance(self.decoder, Stack)

    def logits(self, batch: Batch) -> Float[Tensor, "B U V"]:
        return self.unembed(self.decode(batch))

    @torch.no_grad()
    def generate(self, batch: Batch, decoding: Decoding) -> list[list[int]]:
        assert isinstance(self.decoder, Stack)
        cache = Cache(
            self.num_layers,
            capacity=decoding.max_new_tokens,
            memory_length=batch.input_ids.shape[1],
        )
        reader = CachedReader(
            self.embedding,
            self.decoder,
            self.unembed,
            cache,
            memory_document_ids=batch.document_ids,
        )
        start = torch.full_like(batch.input_ids[:, :1], decoding.start_id)
        logits = reader.begin(start, torch.ones_like(start), memory=self(batch))
        return write(reader, logits, decoding)

    def flops(self, batch: Batch) -> int:
        rows, length = batch.input_ids.shape
        total = stack_flops(self.dims, rows, length)
        if batch.decoder_input_ids is not None:
            decoded = batch.decoder_input_ids.shape[1]
            total += stack_flops(self.dims, rows, decoded, memory_length=length)
        return total

    def for_tokens(self) -> "EncoderDecoder":
        """The encoder alone, as in encoders cut from T5 (Ni et al. 2022): a decoder that has only
        ever filled in spans has nothing to say about the tokens of its input."""
        self.decoder = nn.Identity()
        super().for_tokens()
        return self
