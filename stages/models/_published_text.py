"""Text written by ``generate`` of transformers, as our own models write it."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor

from stages.models._generation import Decoding, before_end, drawn
from stages.models._published_checkpoint import PublishedModel
from stages.text.batch import PADDING, Batch


def generated(
    model: PublishedModel, prompt: Batch, decoding: Decoding, *, is_causal: bool
) -> list[list[int]]:
    """The continuation of each row of ``prompt``, without the final <eos>. A causal model continues
    the row itself, an encoder-decoder begins with ``decoding.start_id``."""
    beams: dict[str, float | str] = {}
    if decoding.num_beams > 1:
        beams = {"length_penalty": decoding.length_penalty, "early_stopping": "never"}
    model.generation_config = GenerationConfig(
        max_new_tokens=decoding.max_new_tokens,
        num_beams=decoding.num_beams,
        do_sample=False,
        use_cache=True,
        decoder_start_token_id=None if is_causal else decoding.start_id,
        eos_token_id=decoding.eos_id,
        pad_token_id=decoding.eos_id,
        **beams,
    )
    given = prompt.input_ids.shape[1] if is_causal else 1
    found = model.generate(
        input_ids=prompt.input_ids,
        attention_mask=(prompt.document_ids != PADDING).long(),
        logits_processor=[] if decoding.draws is None else [_Drawn(decoding.draws, given)],
    )
    return [before_end(row, decoding.eos_id) for row in found[:, given:].tolist()]


class _Drawn(LogitsProcessor):
    """Keeps of each row's logits only the token that is drawn, as our own models draw it."""

    def __init__(self, draws: Float[Tensor, "R U"], given: int) -> None:
        self._draws, self._given = draws, given

    def __call__(self, input_ids: Int[Tensor, "R T"], scores: Float[Tensor, "R V"]) -> Tensor:
        tokens = drawn(scores, self._draws[:, input_ids.shape[1] - self._given])
        return torch.full_like(scores, -torch.inf).scatter(1, tokens.unsqueeze(1), 0.0)
