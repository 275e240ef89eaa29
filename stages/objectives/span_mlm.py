"""Masked spans, also predicted from their boundaries (SpanBERT; Joshi et al. 2020, section 3)."""

import math
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from stages.models._backbone import Backbone
from stages.models._heads import ModelWithHead, embedding_table, gather
from stages.objectives._cross_entropy import cross_entropy
from stages.objectives._masking import MASK_PROB, MaskedObjective
from stages.objectives._objective import Terms
from stages.text.batch import IGNORE_INDEX, PADDING, Batch
from stages.text.packing import Row
from stages.text.tokenizer import Vocabulary

_SHARES = 0.8 ** np.arange(10)
LENGTH_PROBS = _SHARES / _SHARES.sum()  # of spans of 1, 2, ... words
POSITION_WIDTH = 200  # of the boundary objective's position embedding
_FAR = 2**40  # after every position


class SpanMLM(MaskedObjective):
    """Spans of whole words are chosen, and each span is masked, replaced or kept as a whole. The
    model predicts each original token twice: from its own state ("span_mlm"), and from the states
    just outside its span and its position in the span ("boundary").

    The number of words in a span is geometric (p = 0.2), truncated at 10. Spans are drawn until
    ceil(mask_prob * maskable tokens) tokens of a row are chosen; words that do not fit are left
    out, while the paper's code cuts the last word, so short rows have shorter spans: 3.4 words on
    average in 128 tokens, 3.8 from 4,000 on. Two spans never touch, so that a boundary is never
    masked, and a word whose neighbour in its document lies outside the row is not chosen. The spans
    are the same with and without ``boundary_objective``.
    """

    term = "span_mlm"

    def __init__(
        self,
        vocabulary: Vocabulary,
        max_tokens: int,
        *,
        mask_prob: float = MASK_PROB,
        boundary_objective: bool = True,
    ) -> None:
        super().__init__(vocabulary, max_tokens, mask_prob=mask_prob)
        self.boundary_objective = boundary_objective

    def head(self, backbone: Backbone) -> nn.Module:
        if not self.boundary_objective:
            return super().head(backbone)
        # A span has at most as many tokens as a row has targets.
        return _BoundaryHead(backbone.d_model, self.capacity, backbone.vocab_size)

    def collate(self, examples: list[Row], *, rngs: list[np.random.Generator]) -> Batch:
        batch = super().collate(examples, rngs=rngs)
        if not self.boundary_objective:
            return batch
        assert batch.target_positions is not None and batch.labels is not None
        counted = batch.labels.numpy() != IGNORE_INDEX
        # Consecutive positions are of one span, since spans do not touch.
        places = np.where(counted, batch.target_positions.numpy(), _FAR)
        first = np.where(np.diff(places, prepend=-2) > 1, places, 0)
        last = np.where(np.diff(places, append=2 * _FAR) > 1, places, _FAR)
        left = np.maximum.accumulate(first, axis=1) - 1
        right = np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1] + 1
        boundaries = np.where(counted[..., None], np.stack([left, right], axis=-1), 0)
        return replace(
            batch,
            extra=torch.from_numpy(boundaries),
            num_targets=batch.num_targets | {"boundary": batch.num_targets[self.term]},
        )

    def choose(self, row: Row, *, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Returns the positions of all spans, in order, and the fate of each position's span."""
        begins, ends, free = self._words(row)
        left = math.ceil(self.mask_prob * int(self.vocabulary.is_regular[row.tokens].sum()))
        index, spans = np.arange(len(free)), list[tuple[int, int]]()
        while True:
            # The number of free words from each word on, including that word.
            blocked = np.append(np.flatnonzero(~free), len(free))
            free_from = blocked[np.searchsorted(blocked, index)] - index
            fits = ends - begins <= left
            most = free_from[fits].max(initial=0)
            if most == 0:
                break
            # The length is drawn before the place, so that places do not change its distribution;
            # if no place has room for this many words, the span is as long as possible.
            number = min(1 + rng.choice(len(LENGTH_PROBS), p=LENGTH_PROBS), most)
            first = int(rng.choice(np.flatnonzero(fits & (free_from >= number))))
            last = first + int(number) - 1
            while ends[last] - begins[first] > left:
                last -= 1
            spans.append((int(begins[first]), int(ends[last])))
            left -= int(ends[last] - begins[first])
            free[first - 1 : last + 2] = False  # the span with its boundaries
        lengths = [end - begin for begin, end in sorted(spans)]
        chosen = np.concatenate([np.arange(0), *(np.arange(*span) for span in sorted(spans))])
        return chosen, np.repeat(rng.random(len(spans)), lengths)

    def _words(self, row: Row) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns where the words of a row begin and end, and which of them may be chosen: whole
        words with a token of their document on each side.

        Special tokens and parts of cut words count as words here, but are never chosen.
        """
        tokens, documents, vocabulary = row.tokens, row.document_ids, self.vocabulary
        starts, regular = vocabulary.starts_word[tokens], vocabulary.is_regular[tokens]
        # The unknown token is not among these, since it is part of a word.
        alone = np.isin(tokens, (*vocabulary.before, *vocabulary.after))
        new = documents[1:] != documents[:-1]
        begins = np.flatnonzero(np.append(True, starts[1:] | alone[1:] | alone[:-1] | new))
        ends = np.append(begins[1:], len(tokens))
        whole = starts[begins] & np.logical_and.reduceat(regular, begins)
        ids = np.concatenate([[PADDING], documents, [PADDING]])  # outside the row is padding
        neighbours = (ids[begins] == documents[begins]) & (ids[ends + 1] == documents[begins])
        return begins, ends, whole & neighbours

    def further_terms(
        self, model: ModelWithHead, batch: Batch, states: Float[Tensor, "B T D"]
    ) -> Terms:
        if batch.extra is None:
            return {}
        assert batch.target_positions is not None and batch.labels is not None
        left, right = batch.extra.unbind(-1)
        logits = model.head(
            gather(states, left),
            gather(states, right),
            (batch.target_positions - left - 1).clamp(min=0),  # -1 where nothing is predicted
            model.backbone.token_embedding.get_parameter("weight")[: model.backbone.vocab_size],
        )
        return {"boundary": (1.0, cross_entropy(logits, batch.labels))}

    def for_validation(self) -> "SpanMLM":
        """The objective with the paper's spans and rates and without the boundary term, so that
        models with and without that term can be compared."""
        return SpanMLM(self.vocabulary, self.max_tokens, boundary_objective=False)


class _BoundaryHead(nn.Module):
    """Logits of a span's tokens from the states just outside it (SpanBERT, section 3.2).

        h = LayerNorm(GELU(W1 [x_left; x_right; p_i]))    y_i = LayerNorm(GELU(W2 h))

    ``p_i`` embeds the position in the span, counted from the left boundary; the paper's code has 20
    positions and predicts no tokens beyond them. The logits are products of ``y_i`` with the input
    embedding, as in the paper, and have a bias, as in the paper's code.
    """

    def __init__(self, d_model: int, num_positions: int, vocab_size: int) -> None:
        super().__init__()
        self.positions = embedding_table(num_positions, POSITION_WIDTH)
        self.first = nn.Linear(2 * d_model + POSITION_WIDTH, d_model)
        self.first_norm = nn.LayerNorm(d_model)
        self.second = nn.Linear(d_model, d_model)
        self.second_norm = nn.LayerNorm(d_model)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(
        self,
        left: Float[Tensor, "B M D"],
        right: Float[Tensor, "B M D"],
        positions: Int[Tensor, "B M"],
        embedding: Float[Tensor, "V D"],
    ) -> Float[Tensor, "B M V"]:
        x = torch.cat([left, right, self.positions(positions)], dim=-1)
        h = self.first_norm(F.gelu(self.first(x)))
        y = self.second_norm(F.gelu(self.second(h)))
        return F.linear(y, embedding, self.bias)
