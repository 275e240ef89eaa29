"""Writing text: greedily, at random or by beam search, with ``generate`` of transformers."""

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from stages.text.batch import PADDING, Batch


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """Settings of text generation.

    ``max_new_tokens`` includes <eos>; a longer text is cut. One beam is greedy decoding. With more
    beams, the score of a text is the sum of the log-probabilities of its tokens, <eos> included,
    divided by its number of tokens to the power of ``length_penalty``: 0 means the plain sum, and a
    larger penalty favours longer texts.

    With ``draws``, numbers uniform in [0, 1), each token is sampled instead (temperature 1): it is
    the first token of the vocabulary at which the cumulative probability exceeds the row's next
    number.
    """

    max_new_tokens: int
    num_beams: int = 1
    length_penalty: float = 1.0
    start_id: int  # first input of the decoder in an encoder-decoder; a causal model ignores it
    eos_id: int
    draws: Float[Tensor, "B U"] | None = None  # only with one beam; U is max_new_tokens


def generated(model: Any, batch: Batch, decoding: Decoding, *, is_causal: bool) -> list[list[int]]:
    """Returns the continuation of each row, without the final <eos>. A causal model continues the
    row itself, an encoder-decoder begins with ``decoding.start_id``."""
    from transformers import GenerationConfig  # the import takes seconds

    from stages.models._attention import document_mask, reading_prefix

    prompt = prompts(batch) if is_causal else batch
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
    length = prompt.input_ids.shape[1] if is_causal else 1
    documents, prefix = prompt.document_ids, None
    if prompt.visible is not None:
        prefix = document_mask(documents, documents, causal=True, visible=prompt.visible)
    with reading_prefix(prefix):
        rows = model.generate(
            input_ids=prompt.input_ids,
            attention_mask=(documents != PADDING).long(),
            logits_processor=[] if decoding.draws is None else [_Drawn(decoding.draws, length)],
        )
    return [before_end(row, decoding.eos_id) for row in rows[:, length:].tolist()]


class _Drawn:
    """Samples one token for each row and sets the logits of all others to minus infinity."""

    def __init__(self, draws: Float[Tensor, "R U"], prompt_length: int) -> None:
        self._draws, self._prompt_length = draws, prompt_length

    def __call__(self, input_ids: Int[Tensor, "R T"], scores: Float[Tensor, "R V"]) -> Tensor:
        tokens = drawn(scores, self._draws[:, input_ids.shape[1] - self._prompt_length])
        return torch.full_like(scores, -torch.inf).scatter(1, tokens.unsqueeze(1), 0.0)


def drawn(logits: Float[Tensor, "R V"], draws: Float[Tensor, " R"]) -> Int[Tensor, " R"]:
    """Samples a token for each row by inverse transform sampling with the numbers ``draws``."""
    reached = logits.double().softmax(dim=-1).cumsum(dim=-1)
    numbers = draws.double().unsqueeze(1).contiguous()
    tokens = torch.searchsorted(reached, numbers, right=True)[:, 0]
    return tokens.clamp(max=logits.shape[1] - 1)  # where rounding leaves the sum below 1


def before_end(tokens: list[int], eos_id: int) -> list[int]:
    """Returns the tokens before the first <eos>, or all tokens if there is no <eos>."""
    return tokens[: tokens.index(eos_id)] if eos_id in tokens else tokens


def prompts(batch: Batch) -> Batch:
    """Returns the input's rows with padding on the left, so that generated text directly follows
    each row. A row must hold one document."""
    real = batch.document_ids != PADDING
    order = real.int().argsort(dim=1, stable=True)
    visible = batch.visible
    return Batch(
        input_ids=batch.input_ids.gather(1, order),
        document_ids=batch.document_ids.gather(1, order),
        visible=None if visible is None else visible.gather(1, order),
        num_targets={},
    )


def continued(batch: Batch) -> Batch:
    """Returns the input's rows, each followed by its target, as a decoder is trained on them.

        input     <bos> text <eos>
        decoder                <bos> target
        row       <bos> text <eos> target

    The decoder's first token is left out: the input's last token predicts the target's first.
    """
    ids, documents = batch.decoder_input_ids, batch.decoder_document_ids
    assert ids is not None and documents is not None
    prompt, length = prompts(batch), ids.shape[1] - 1
    visible = None if prompt.visible is None else F.pad(prompt.visible, (0, length), value=False)
    return replace(
        prompt,
        input_ids=torch.cat([prompt.input_ids, ids[:, 1:]], dim=1),
        document_ids=torch.cat([prompt.document_ids, documents[:, 1:]], dim=1),
        visible=visible,
    )
