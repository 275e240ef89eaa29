"""Writing text: how a text is chosen, and the rows that a causal model continues."""

from dataclasses import dataclass, replace

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


def drawn(logits: Float[Tensor, "R V"], draws: Float[Tensor, " R"]) -> Int[Tensor, " R"]:
    """Samples a token for each row by inverse transform sampling with the numbers ``draws``."""
    reached = logits.double().softmax(dim=-1).cumsum(dim=-1)
    numbers = draws.double().unsqueeze(1).contiguous()
    tokens = torch.searchsorted(reached, numbers, right=True)[:, 0]
    return tokens.clamp(max=logits.shape[1] - 1)  # where rounding leaves the sum below 1


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
