"""Masked language modelling: some tokens are hidden, and predicted from those on both sides (BERT;
Devlin et al. 2019, section 3.1). Optionally with a task on pairs of texts, BERT's or ALBERT's
(Lan et al. 2020, section 3.1)."""

from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from stages.models._backbone import Backbone
from stages.models._heads import ModelWithHead, gather
from stages.objectives._cross_entropy import cross_entropy
from stages.objectives._masking import MASK_PROB, MaskedObjective
from stages.objectives._objective import Terms, document_parts
from stages.text.batch import IGNORE_INDEX, Batch, pad
from stages.text.packing import Row
from stages.text.tokenizer import Vocabulary

# A document of fewer tokens does not become a pair. Three of the 16 tokens are special. Texts of
# six tokens, about three words, are the shortest that can show whether one continues the other.
LEAST_PAIR = 16


class MLM(MaskedObjective):
    """Masks 80 % of the chosen tokens, replaces 10 % and keeps 10 %.

    With ``next_sentence`` the documents of a row first become pairs of texts, and the state of a
    pair's <bos> classifies the pair as true (0) or altered (1), which are equally probable:

        <bos> A <eos> B <eos>        B continues A: 0
        nsp   <bos> A <eos> C <eos>  C is text of another row, as long as B: 1 (BERT)
        sop   <bos> B <eos> A <eos>  the texts are swapped: 1 (ALBERT)

    The other row is any row of the corpus, so C may by chance come from the same document as A; if
    that row has no suitable text, the document does not become a pair. The loss is the sum of the
    mean losses of both tasks. A row keeps its length and documents: the inner <eos> takes the place
    of the last token of a document's text and, if the row has cut the document, <bos> and <eos>
    replace its outermost tokens. Unlike in the papers, the texts are not whole sentences, since a
    row may hold only a few words of a document; they are split at the beginning of a word.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        max_tokens: int,
        *,
        mask_prob: float = MASK_PROB,
        next_sentence: Literal["nsp", "sop", "none"] = "none",
    ) -> None:
        super().__init__(vocabulary, max_tokens, mask_prob=mask_prob)
        marks = vocabulary.before, vocabulary.between, vocabulary.after
        has_marks = all(len(mark) == 1 for mark in marks)
        if next_sentence != "none" and not (has_marks and max_tokens >= LEAST_PAIR):
            raise ValueError(
                f"next_sentence needs max_tokens of at least {LEAST_PAIR}, and a tokenizer with "
                "one token before, between and after the texts of a pair, as BERT's has"
            )
        self.next_sentence = next_sentence
        self.compares_documents = next_sentence == "nsp"
        self.pair_capacity = max_tokens // LEAST_PAIR

    def head(self, backbone: Backbone) -> nn.Module:
        """BERT's pooler and classifier of pairs."""
        if self.next_sentence == "none":
            return super().head(backbone)
        width = backbone.d_model
        return nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2))

    def collate(self, examples: list[Row], *, rngs: list[np.random.Generator]) -> Batch:
        if self.next_sentence == "none":
            return super().collate(examples, rngs=rngs)
        paired = [self.pair(row, rng=rng) for row, rng in zip(examples, rngs, strict=True)]
        rows, segment_ids, positions, labels = map(list, zip(*paired, strict=True))
        batch, n = super().collate(rows, rngs=rngs), self.pair_capacity
        return replace(
            batch,
            segment_ids=torch.from_numpy(np.stack(segment_ids)),
            extra=torch.stack(
                [pad(positions, 0, length=n), pad(labels, IGNORE_INDEX, length=n)], -1
            ),
            num_targets=batch.num_targets | {"next_sentence": sum(map(len, labels))},
        )

    def pair(
        self, row: Row, *, rng: np.random.Generator
    ) -> tuple[Row, np.ndarray, np.ndarray, np.ndarray]:
        """Returns (the row with its documents as pairs, int64 [T] segment ids, the positions of the
        pairs, their labels); documents too short for a pair are unchanged."""
        tokens, segment_ids = row.tokens.copy(), np.zeros_like(row.tokens)
        marks = self.vocabulary
        positions, labels = [], []
        for part in document_parts(row):
            if texts := self._texts(row.tokens[part], row.other, rng=rng):
                first, second, label = texts
                tokens[part] = [*marks.before, *first, *marks.between, *second, *marks.after]
                segment_ids[part.start + len(first) + 2 : part.stop] = 1
                positions.append(part.start)
                labels.append(label)
        return (
            replace(row, tokens=tokens),
            segment_ids,
            np.array(positions, dtype=np.int64),
            np.array(labels, dtype=np.int64),
        )

    def _texts(
        self, document: np.ndarray, other: Row | None, *, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, int] | None:
        """Returns (first text, second text, label) of a pair, or None if there can be no pair.

        The document is split at the beginning of a word, in the middle half of its text.
        """
        text = document[1:-1]  # its last token will make room for the inner <eos>
        words = np.flatnonzero(self.vocabulary.starts_word[text])
        quarter = len(text) // 4
        splits = [at for at in words[1:-1].tolist() if quarter <= at < len(text) - quarter]
        text = text[:-1]
        continuations: dict[int, list[np.ndarray]] = {}
        if self.next_sentence == "nsp" and len(document) >= LEAST_PAIR:
            assert other is not None
            # Whatever the label will be, the split must allow an altered pair.
            whole = document[-1] in self.vocabulary.after
            continuations = {at: self._texts_of(other, len(text) - at, whole) for at in splits}
            splits = [at for at in splits if continuations[at]]
        if len(document) < LEAST_PAIR or not splits:
            return None
        split = int(rng.choice(splits))
        first, second, label = text[:split], text[split:], int(rng.integers(2))
        if label and continuations:
            second = continuations[split][rng.integers(len(continuations[split]))]
        elif label:
            # Whole words are swapped. The beginning and the end of a document that the row has cut
            # may be parts of words, which would reveal the order: they stay in place.
            low, high = words[0], words[-1]
            first = np.concatenate([text[:low], text[split:high]])
            second = np.concatenate([text[low:split], text[high:]])
        return first, second, label

    def _texts_of(self, row: Row, length: int, whole: bool) -> list[np.ndarray]:
        """Returns the texts of another row that may replace a true continuation of this ``length``:
        each begins with a word and ends like the true continuation.

        In a ``whole`` document, the true continuation ends one token before the end of the
        document's text; if the row has cut the document, it may end anywhere. A text with another
        kind of end would be recognisable.
        """
        texts = []
        for part in document_parts(row):
            document = row.tokens[part]
            ended = document[-1] in self.vocabulary.after
            begin = int(document[0] in self.vocabulary.before)
            text = document[begin : len(document) - ended - whole]
            last = len(text) - length
            if last >= 0 and (ended or not whole):
                begins = np.flatnonzero(self.vocabulary.starts_word[text[: last + 1]])
                texts += [text[at : at + length] for at in begins if at == last or not whole]
        return texts

    def further_terms(
        self, model: ModelWithHead, batch: Batch, states: Float[Tensor, "B T D"]
    ) -> Terms:
        if batch.extra is None:
            return {}
        positions, labels = batch.extra.unbind(-1)
        kinds = model.head(gather(states, positions))
        return {"next_sentence": (1.0, cross_entropy(kinds, labels))}
