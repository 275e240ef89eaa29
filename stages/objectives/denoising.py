"""Denoising of whole documents (BART; Lewis et al. 2020, section 2.2)."""

import numpy as np

from stages.objectives._seq2seq import Pair, PairObjective
from stages.text.packing import Row
from stages.text.tokenizer import Vocabulary


class Denoising(PairObjective):
    """A document is corrupted and the decoder writes the whole original document.

        inputs   See you at <mask> week. Thank you <mask> me.
        targets  Thank you for inviting me. See you at the party next week.

    The paper's noise functions can be combined; their order is: sentences are permuted, tokens
    deleted, tokens masked, spans replaced by a mask, the document rotated. The defaults are those
    of the paper's large model (section 5.1).

    <bos> and <eos> at the ends of a document stay; <bos> is not a target, since the decoder starts
    from it (but a published BART's decoder starts from <eos> and writes <bos> first, also in this
    project).
    """

    term = "denoising"

    def __init__(
        self,
        vocabulary: Vocabulary,
        max_tokens: int,
        *,
        infilling: float = 0.3,
        mean_span_length: float = 3.0,
        permute_sentences: bool = True,
        mask_tokens: float = 0.0,
        delete_tokens: float = 0.0,
        rotate_documents: bool = False,
    ) -> None:
        super().__init__(vocabulary, max_tokens)
        rates = infilling, mask_tokens, delete_tokens
        if not all(0 <= rate < 1 for rate in rates) or mean_span_length < 1:
            raise ValueError("rates of noise are from 0 to 1, and mean_span_length at least 1")
        if vocabulary.mask_id is None:
            raise ValueError("the tokenizer has no mask token, which the validation needs")
        self.mask_id = vocabulary.mask_id
        self.infilling, self.mean_span_length = infilling, mean_span_length
        self.mask_tokens, self.delete_tokens = mask_tokens, delete_tokens
        self.permute_sentences, self.rotate_documents = permute_sentences, rotate_documents

    def pair(self, document: Row, *, rng: np.random.Generator) -> Pair:
        tokens, starts_sentence = document.tokens, document.starts_sentence
        assert starts_sentence is not None
        inside = self.vocabulary.text_of(tokens)
        text, targets = tokens[inside], tokens[inside.start :]
        if inside.start:  # the row includes the beginning of the document
            targets = self.written(targets)
        if len(text):
            text = self._noisy(text, starts_sentence[inside], rng)
        return np.concatenate([tokens[: inside.start], text, tokens[inside.stop :]]), targets

    def prompt(self, passage: Row, *, rng: np.random.Generator) -> np.ndarray:
        return self.pair(passage, rng=rng)[0]

    def _noisy(
        self, text: np.ndarray, starts_sentence: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Returns a text of at least one token, without <bos> and <eos>, with all the noise."""
        if self.permute_sentences:
            text = permute_sentences(text, starts_sentence, rng=rng)
        if self.delete_tokens:  # section 2.2, "Token Deletion"; at least one token stays
            number = min(_part(text, self.delete_tokens), len(text) - 1)
            text = np.delete(text, rng.choice(len(text), number, replace=False))
        if self.mask_tokens:  # section 2.2, "Token Masking": each separately
            text = text.copy()
            text[rng.choice(len(text), _part(text, self.mask_tokens), replace=False)] = self.mask_id
        if self.infilling:
            lengths = span_lengths(_part(text, self.infilling), self.mean_span_length, rng=rng)
            text = infill(text, lengths, mask_id=self.mask_id, rng=rng)
        if self.rotate_documents:  # section 2.2, "Document Rotation"
            text = np.roll(text, -int(rng.integers(len(text))))
        return text

    def for_validation(self) -> "Denoising":
        """The objective with the noise of the paper's large model."""
        return Denoising(self.vocabulary, self.max_tokens)


def permute_sentences(
    text: np.ndarray, starts_sentence: np.ndarray, *, rng: np.random.Generator
) -> np.ndarray:
    """Returns the sentences in an order drawn uniformly (section 2.2, "Sentence Permutation").

    Sentences are those of the corpus; in the paper they end at full stops. The part of a sentence
    with which a cut document begins counts as a sentence.
    """
    sentences = np.split(text, np.flatnonzero(starts_sentence[1:]) + 1)
    return np.concatenate([sentences[i] for i in rng.permutation(len(sentences))])


def infill(
    text: np.ndarray, lengths: np.ndarray, *, mask_id: int, rng: np.random.Generator
) -> np.ndarray:
    """Returns the text with random spans of these ``lengths`` replaced by one mask each (section
    2.2, "Text Infilling").

    A span of length 0 inserts a mask. Spans do not overlap; all arrangements of the spans among the
    tokens that stay have equal probability.
    """
    kept = len(text) - lengths.sum()
    is_span = np.zeros(kept + len(lengths), dtype=bool)
    is_span[rng.choice(len(is_span), len(lengths), replace=False)] = True
    widths = np.ones(len(is_span), dtype=int)  # tokens covered by each span and each kept token
    widths[is_span] = rng.permutation(lengths)  # else the shortened span would always be the last
    begins = np.minimum(widths.cumsum() - widths, len(text) - 1)  # an empty span may come last
    return np.where(is_span, mask_id, text[begins])


def span_lengths(
    num_tokens: int, mean_span_length: float, *, rng: np.random.Generator
) -> np.ndarray:
    """Returns span lengths, drawn from a Poisson distribution until they sum to ``num_tokens``; the
    last is cut to fit.

    There are at most ``num_tokens`` lengths: surplus lengths of 0, which insert masks, are left
    out, so that a text never becomes longer than a model's positions.
    """
    lengths, missing = list[int](), num_tokens
    while missing:
        lengths.append(min(int(rng.poisson(mean_span_length)), missing))
        missing -= lengths[-1]
    drawn = np.array(lengths, dtype=int)
    surplus = max(len(drawn) - num_tokens, 0)
    return np.delete(drawn, np.flatnonzero(drawn == 0)[:surplus])


def _part(text: np.ndarray, rate: float) -> int:
    return max(1, round(rate * len(text)))
