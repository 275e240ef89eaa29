"""Span corruption (T5; Raffel et al. 2020, section 3.1.4 and the code's ``random_spans``)."""

import numpy as np

from stages.objectives._seq2seq import Pair, PairObjective
from stages.text.packing import Row
from stages.text.tokenizer import Vocabulary

NOISE_DENSITY, MEAN_SPAN_LENGTH = 0.15, 3.0  # the paper's


class SpanCorruption(PairObjective):
    """Random spans of the text are replaced by one sentinel each; the decoder writes each sentinel
    with the span that it replaces, and a final sentinel.

        inputs   Thank you <s0> me to your party <s1> week
        targets  <s0> for inviting <s1> last <s2>
    """

    term = "span_corruption"

    def __init__(
        self,
        vocabulary: Vocabulary,
        max_tokens: int,
        *,
        noise_density: float = NOISE_DENSITY,
        mean_span_length: float = MEAN_SPAN_LENGTH,
    ) -> None:
        super().__init__(vocabulary, max_tokens)
        self.sentinels = vocabulary.sentinel_ids
        if not 0 < noise_density < 1 or mean_span_length < 1:
            raise ValueError("noise_density is from 0 to 1, and mean_span_length at least 1")
        most = max(round(round(noise_density * max_tokens) / mean_span_length), 1)
        if most >= len(self.sentinels):
            raise ValueError(
                f"{most} spans in max_tokens {max_tokens} need more than the {len(self.sentinels)} "
                "sentinel tokens (T5's <extra_id_0>, ...) of the tokenizer; raise mean_span_length"
            )
        self.noise_density, self.mean_span_length = noise_density, mean_span_length

    def pair(self, document: Row, *, rng: np.random.Generator) -> Pair:
        """Returns the inputs and the targets; the targets are empty if the document is too short
        for a span. <bos> and <eos> stay in the inputs."""
        tokens = document.tokens
        inside = self.vocabulary.text_of(tokens)
        text = tokens[inside]
        noise = self.noise_mask(len(text), rng=rng)
        if not noise.any():
            return tokens, tokens[:0]
        shown, hidden = self._sentinels_for(text, noise), self._sentinels_for(text, ~noise)
        last = self.sentinels[_begins(noise).sum()]
        inputs = np.concatenate([tokens[: inside.start], shown, tokens[inside.stop :]])
        return inputs, np.append(hidden, last)

    def prompt(self, passage: Row, *, rng: np.random.Generator) -> np.ndarray | None:
        inputs, targets = self.pair(passage, rng=rng)
        return inputs if len(targets) else None

    def noise_mask(self, length: int, *, rng: np.random.Generator) -> np.ndarray:
        """Returns whether each token is noise, bool [length]: spans of text and of noise alternate,
        beginning with text.

        There are round(length * noise_density) noise tokens, in round(noise tokens /
        mean_span_length) spans. The lengths of the noise spans, and those of the text spans, are
        drawn uniformly from all compositions of their total.
        """
        if length < 2:
            return np.zeros(length, dtype=bool)
        num_noise = min(max(round(length * self.noise_density), 1), length - 1)
        num_spans = min(max(round(num_noise / self.mean_span_length), 1), length - num_noise)
        noise_lengths = _composition(num_noise, num_spans, rng=rng)
        text_lengths = _composition(length - num_noise, num_spans, rng=rng)
        lengths = np.stack([text_lengths, noise_lengths], axis=1).ravel()
        return np.repeat(np.arange(2 * num_spans) % 2 == 1, lengths)

    def _sentinels_for(self, tokens: np.ndarray, hidden: np.ndarray) -> np.ndarray:
        """Returns the tokens with each run of hidden tokens replaced by the next sentinel."""
        begins = _begins(hidden)
        sentinels = self.sentinels[np.maximum(begins.cumsum() - 1, 0)]
        return np.where(begins, sentinels, tokens)[begins | ~hidden]

    def for_validation(self) -> "SpanCorruption":
        """The objective with the paper's density and mean span length, or with longer spans if
        there are too few sentinels."""
        length = max(MEAN_SPAN_LENGTH, NOISE_DENSITY * self.max_tokens / (len(self.sentinels) - 1))
        return SpanCorruption(self.vocabulary, self.max_tokens, mean_span_length=length)


def _begins(noise: np.ndarray) -> np.ndarray:
    """Returns whether each token is the first of a run of noise."""
    return noise & ~np.concatenate([[False], noise[:-1]])


def _composition(total: int, parts: int, *, rng: np.random.Generator) -> np.ndarray:
    """Returns a composition of ``total`` into ``parts`` numbers of at least 1, drawn uniformly."""
    cuts = np.sort(rng.choice(np.arange(1, total), parts - 1, replace=False))
    return np.diff(cuts, prepend=0, append=total)
