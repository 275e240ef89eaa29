"""The encoder-decoder: a causal decoder with cross-attention to an encoder's states (T5; Raffel et
al. 2020).

Encoder and decoder have ``num_layers`` blocks each: at equal dimensions the model has about twice
the parameters of ``encoder`` or ``decoder``, but about the same number of operations per token,
since each token passes through only one of the two stacks.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from stages.models._attention import Cache
from stages.models._backbone import Settings
from stages.models._blocks import Stack
from stages.models._costs import num_params
from stages.models._dimensions import Dimensions
from stages.models._generation import CachedReader, Decoding, write
from stages.models._transformer import TransformerBackbone
from stages.text.batch import Batch


class EncoderDecoder(TransformerBackbone):
    architecture = "encoder_decoder"

    def __init__(self, vocab_size: int, dims: Dimensions) -> None:
        super().__init__(vocab_size, dims)
        self.encoder = Stack(dims, causal=False)
        self.decoder: nn.Module = Stack(dims, causal=True, cross=True)

    @classmethod
    def matched_to_encoder(
        cls, settings: Settings, vocab_size: int, *, with_head: bool
    ) -> dict[str, int]:
        """Returns the ``num_layers`` with which the model's number of parameters is closest to that
        of an encoder with these dimensions. With a head it changes nothing: only the encoder is
        used, which already has that number of parameters."""
        if with_head:
            return {}
        dims = Dimensions(**settings)
        wanted = num_params("encoder", vocab_size, dims).total

        def excess(num_layers: int) -> int:
            changed = replace(dims, num_layers=num_layers)
            return abs(num_params("encoder_decoder", vocab_size, changed).total - wanted)

        return {"num_layers": min(range(1, dims.num_layers + 1), key=excess)}

    @property
    def reader(self) -> Stack:
        return self.encoder

    def decode(self, batch: Batch) -> Float[Tensor, "B U D"]:
        """The decoder's states, computed with attention to the encoder's states of the same
        document."""
        ids, documents = batch.decoder_input_ids, batch.decoder_document_ids
        assert ids is not None and documents is not None
        return self.decoder(
            self.embedding(ids, documents),
            documents,
            document_starts=batch.decoder_document_starts,
            memory=self(batch),
            memory_document_ids=batch.document_ids,
        )

    @property
    def used_architecture(self) -> str:
        return self.architecture if self.can_generate else "encoder"

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

    def drop_output_layers(self) -> None:
        """Keeps only the encoder, as in encoders taken from T5 (Ni et al. 2022): a decoder that was
        pretrained to fill in spans computes no states of the input tokens."""
        self.decoder = nn.Identity()
        super().drop_output_layers()
