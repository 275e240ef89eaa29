"""Text generation with transformers' ``generate``, set up to decode as our own models do."""

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
    """Returns the continuation of each row of ``prompt``, without the final <eos>. A causal model
    continues the row itself, an encoder-decoder begins with ``decoding.start_id``."""
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
    prompt_length = prompt.input_ids.shape[1] if is_causal else 1
    rows = model.generate(
        input_ids=prompt.input_ids,
        attention_mask=(prompt.document_ids != PADDING).long(),
        logits_processor=[] if decoding.draws is None else [_Drawn(decoding.draws, prompt_length)],
    )
    return [before_end(row, decoding.eos_id) for row in rows[:, prompt_length:].tolist()]


class _Drawn(LogitsProcessor):
    """Samples one token for each row, as our own models do, and sets the logits of all other tokens
    to minus infinity."""

    def __init__(self, draws: Float[Tensor, "R U"], prompt_length: int) -> None:
        self._draws, self._prompt_length = draws, prompt_length

    def __call__(self, input_ids: Int[Tensor, "R T"], scores: Float[Tensor, "R V"]) -> Tensor:
        tokens = drawn(scores, self._draws[:, input_ids.shape[1] - self._prompt_length])
        return torch.full_like(scores, -torch.inf).scatter(1, tokens.unsqueeze(1), 0.0)
