"""Writing text token by token: greedily, at random or by beam search (Sutskever et al. 2014,
section 3.2)."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from stages.models._attention import Cache
from stages.models._blocks import Stack
from stages.models._embedding import Embedding
from stages.text.batch import PADDING, Batch


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """Settings of text generation.

    ``max_new_tokens`` includes <eos>; a longer text is cut. One beam is greedy decoding. With more
    beams, the score of a text is the sum of the log-probabilities of its tokens, <eos> included,
    divided by its number of tokens to the power of ``length_penalty``: 0 means the plain sum, and a
    larger penalty favours longer texts (as in transformers; Wu et al. 2016, eq. 14, add 5 to the
    number of tokens).

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


class Reader(ABC):
    """A decoder with a cache of the tokens that it has read, the same number in every row.

    A row may have several beams: alternative continuations of its input.
    """

    @abstractmethod
    def read(self, tokens: Int[Tensor, " N"]) -> Float[Tensor, "N V"]:
        """Reads one more token of each beam of each row; returns the logits of the next token."""

    @abstractmethod
    def keep(self, rows: Int[Tensor, " R"], beams: Int[Tensor, "R K"]) -> None:
        """Keeps only ``rows`` of the current rows and, in each of these, only its ``beams``."""


class CachedReader(Reader):
    """A causal stack that reads each token once and appends it to the cache."""

    def __init__(
        self,
        embedding: Embedding,
        stack: Stack,
        unembed: Callable[[Tensor], Tensor],
        cache: Cache,
        *,
        memory_document_ids: Int[Tensor, "B S"] | None = None,
    ) -> None:
        self._embedding, self._stack, self._unembed = embedding, stack, unembed
        self._cache, self._memory_document_ids = cache, memory_document_ids
        self._num_beams = 1

    def begin(
        self,
        ids: Int[Tensor, "B T"],
        document_ids: Int[Tensor, "B T"],
        *,
        visible: Bool[Tensor, "B T"] | None = None,
        memory: Float[Tensor, "B S D"] | None = None,
    ) -> Float[Tensor, "B V"]:
        """Reads the beginning of each row; returns the logits of the next token."""
        earlier = self._cache.document_ids
        states = self._stack(
            self._embedding(ids, document_ids, earlier_document_ids=earlier),
            document_ids,
            visible=visible,
            memory=memory,
            memory_document_ids=self._memory_document_ids,
            cache=self._cache,
        )
        return self._unembed(states[:, -1])

    def read(self, tokens: Int[Tensor, " N"]) -> Float[Tensor, "N V"]:
        ids = tokens.unsqueeze(1)
        return self.begin(ids, torch.ones_like(ids))

    def keep(self, rows: Int[Tensor, " R"], beams: Int[Tensor, "R K"]) -> None:
        assert self._cache.document_ids is not None
        num_rows = len(self._cache.document_ids) // self._num_beams
        fewer = rows if len(rows) < num_rows else None
        self._cache.keep((rows.unsqueeze(1) * self._num_beams + beams).flatten(), fewer)
        if fewer is not None and self._memory_document_ids is not None:
            self._memory_document_ids = self._memory_document_ids[rows]
        self._num_beams = beams.shape[1]


def write(reader: Reader, logits: Float[Tensor, "R V"], decoding: Decoding) -> list[list[int]]:
    """Returns the continuation of each row that ``reader`` has read, without <eos>; ``logits`` are
    those of the first new token."""
    search = one_by_one if decoding.num_beams == 1 else beam_search
    return search(reader, logits, decoding)


def one_by_one(reader: Reader, logits: Float[Tensor, "R V"], decoding: Decoding) -> list[list[int]]:
    """Returns the text of each row by greedy decoding, or by sampling."""
    texts: list[list[int]] = [[] for _ in logits]
    live = torch.arange(len(logits), device=logits.device)  # rows that have no <eos> yet
    for length in range(1, decoding.max_new_tokens + 1):
        if decoding.draws is None:
            tokens = logits.argmax(dim=-1)
        else:
            tokens = drawn(logits, decoding.draws[live, length - 1])
        going = (tokens != decoding.eos_id).nonzero()[:, 0]
        if len(going) < len(live):
            live, tokens = live[going], tokens[going]
        for row, token in zip(live.tolist(), tokens.tolist(), strict=True):
            texts[row].append(token)
        if length == decoding.max_new_tokens or not len(live):
            break
        if len(going) < len(logits):
            reader.keep(going, torch.zeros_like(going)[:, None])
        logits = reader.read(tokens)
    return texts


def drawn(logits: Float[Tensor, "R V"], draws: Float[Tensor, " R"]) -> Int[Tensor, " R"]:
    """Samples a token for each row by inverse transform sampling with the numbers ``draws``."""
    reached = logits.double().softmax(dim=-1).cumsum(dim=-1)
    numbers = draws.double().unsqueeze(1).contiguous()
    tokens = torch.searchsorted(reached, numbers, right=True)[:, 0]
    return tokens.clamp(max=logits.shape[1] - 1)  # where rounding leaves the sum below 1


def beam_search(
    reader: Reader, logits: Float[Tensor, "R V"], decoding: Decoding
) -> list[list[int]]:
    """Returns each row's text with the best score. Each step continues the ``num_beams`` likeliest
    unfinished texts of a row.

    A row is finished when no unfinished text can get a better score than the row's best finished
    text, as in transformers with ``early_stopping="never"``.
    """
    num_beams, eos_id = decoding.num_beams, decoding.eos_id
    max_new_tokens, length_penalty = decoding.max_new_tokens, decoding.length_penalty
    (num_rows, vocab_size), device = logits.shape, logits.device
    best = torch.full((num_rows,), -torch.inf, device=device)
    texts: list[list[int]] = [[] for _ in range(num_rows)]

    # R rows are unfinished and have K beams each. At first only one beam of a row has a text.
    live = torch.arange(num_rows, device=device)
    reader.keep(live, torch.zeros(num_rows, num_beams, dtype=torch.long, device=device))
    totals = torch.full((num_rows, num_beams), -torch.inf, device=device)
    totals[:, 0] = 0.0
    prefixes = torch.empty(num_rows, num_beams, 0, dtype=torch.long, device=device)
    logits = logits.repeat_interleave(num_beams, dim=0)
    for length in range(1, max_new_tokens + 1):
        continued_totals = totals.unsqueeze(-1) + logits.float().log_softmax(dim=-1).view(
            *totals.shape, -1
        )
        # Each beam has one continuation that ends (<eos>), so at least K of the best 2 K do not.
        number = min(2 * num_beams, num_beams * vocab_size)
        totals, chosen = continued_totals.flatten(1).topk(number, dim=1)  # [R V * K] -> [R 2K]
        beams, tokens = chosen // vocab_size, chosen % vocab_size
        prefixes = torch.cat([_of_beams(prefixes, beams), tokens.unsqueeze(-1)], dim=2)

        ends = (tokens == eos_id) | (length == max_new_tokens)
        scores = (totals / length**length_penalty).masked_fill(~ends, -torch.inf)
        score, place = scores[:, :num_beams].max(dim=1)
        for i in (score > best[live]).nonzero()[:, 0].tolist():
            best[live[i]] = score[i]
            texts[int(live[i])] = prefixes[i, place[i]].tolist()
        if length == max_new_tokens:
            break

        going = ends.int().argsort(dim=1, stable=True)[:, :num_beams]  # in order of their totals
        totals = totals.masked_fill(ends, -torch.inf).gather(1, going)
        longest = max_new_tokens if length_penalty > 0 else length + 1
        rows = (totals[:, 0] / longest**length_penalty > best[live]).nonzero()[:, 0]
        if not len(rows):
            break
        live, totals, going = live[rows], totals[rows], going[rows]
        prefixes = _of_beams(prefixes[rows], going)
        reader.keep(rows, beams[rows].gather(1, going))
        logits = reader.read(prefixes[:, :, -1].flatten())
    return [before_end(text, eos_id) for text in texts]


def _of_beams(texts: Int[Tensor, "R J t"], beams: Int[Tensor, "R K"]) -> Int[Tensor, "R K t"]:
    return texts.gather(1, beams.unsqueeze(-1).expand(-1, -1, texts.shape[2]))


def before_end(tokens: list[int], eos_id: int) -> list[int]:
    """Returns the tokens before the first <eos>, or all tokens if there is no <eos>."""
    return tokens[: tokens.index(eos_id)] if eos_id in tokens else tokens


def prompts(batch: Batch) -> Batch:
    """Returns the input's rows with padding on the left, so that generated text directly follows
    each row. A row must hold one document."""
    if batch.document_ids.device.type == "cpu":  # on a GPU the host would wait for the result
        assert batch.document_ids.max() <= 1, "one document in a row"
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
