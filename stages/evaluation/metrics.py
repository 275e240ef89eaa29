"""Scores of predictions, computed over the whole test set. They are in 0..1 unless the metric's
scale says otherwise.

This file contains the metrics that several kinds of rows may share. A metric of a single kind is
defined in the kind's file (``Task.metrics``); ``metric_of`` finds both by name. Answers and
predictions are strings as ``Task.answer`` writes them. Most metrics are functions of sums over
rows, from which ``row_scores`` also has the contribution of each row.
"""

import json
import math
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from jaxtyping import Float

from stages.tasks._metric import CORRELATION, F1_OF, Metric, Scale, Sums, metric_of_sums
from stages.tasks._task import TASKS

WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
Texts = Sequence[str]
Ends = tuple[float, float]


def metric_of(name: str) -> Metric:
    """Returns the metric of this name, from this file or from a kind of rows.

    Raises KeyError for an unknown name.
    """
    if name in METRICS:  # first, because it loads no kind
        return METRICS[name]
    if name.startswith(F1_OF):
        return f1_of(name.removeprefix(F1_OF))
    return _of_kinds()[name]


@cache
def _of_kinds() -> dict[str, Metric]:
    return {
        metric.name: metric
        for kind in TASKS.values()
        for metric in kind.metrics
        if isinstance(metric, Metric)
    }


def scale_of(metric: str) -> Scale:
    return metric_of(metric).scale


def unit_of(metric: str) -> tuple[str, bool]:
    """Returns the unit of a metric's scores (the metric itself if it has none), and whether lower
    values are better. Scores of the same unit can be averaged."""
    scale = scale_of(metric)
    return scale.unit or metric, scale.lower_is_better


def cut(low: float, high: float, metric: str, *, difference: bool = False) -> Ends:
    """Returns the ends of an interval, cut off at the ends of the metric's scale (or, with
    ``difference``, at those of differences on it).

    A t interval ignores the ends of the scale: from two seeds it may reach from -88 to 151 points.
    The true value lies on the scale, so the cut does not change the interval's coverage.
    """
    least, largest = scale_of(metric).limits
    if difference:
        least, largest = least - largest, largest - least
    return max(low, least), min(high, largest)


def merit(metric: str, value: float) -> float:
    """Returns the value, negated if lower is better. Every choice of the best value uses this."""
    return -value if scale_of(metric).lower_is_better else value


def score(metric: str, gold: Texts, predicted: Texts) -> float:
    """Returns the value of the metric of this name."""
    assert len(gold) == len(predicted) > 0, "one prediction for each example"
    return float(metric_of(metric).value(gold, predicted))


# Metrics that are functions of sums over rows -------------------------------------------------


def _ratio(of_row: Callable[[str, str], tuple[float, float]]) -> Sums:
    """A ratio of two totals over rows; 0 if the divisor is 0."""

    def counts(gold: Texts, predicted: Texts) -> Float[np.ndarray, "n 2"]:
        return np.array([of_row(*row) for row in zip(gold, predicted, strict=True)], dtype=float)

    def value(sums: Float[np.ndarray, "sets 2"]) -> Float[np.ndarray, " sets"]:
        above, below = sums[..., 0], sums[..., 1]
        return np.where(below == 0, 0.0, above / np.where(below == 0, 1, below))

    return Sums(counts, value)


def _mean(of_row: Callable[[str, str], float]) -> Sums:
    return _ratio(lambda gold, predicted: (of_row(gold, predicted), 1))


def f1_of(label: str) -> Metric:
    """The F1 of one label (for MRPC and QQP: of paraphrases), equal to scikit-learn's with this
    ``pos_label``; 0 if the label is neither right nor predicted for any text."""

    def of_row(gold: str, predicted: str) -> tuple[float, float]:
        return 2 * (gold == predicted == label), [gold, predicted].count(label)

    return metric_of_sums(f"{F1_OF}{label}", _ratio(of_row))


def _label_counts(gold: Texts, predicted: Texts) -> Float[np.ndarray, "n K"]:
    """Returns, for each row and each label in ``gold``, whether the row has the label, whether the
    label is predicted, and whether both are true."""
    number = {label: i for i, label in enumerate(sorted(set(gold)))}
    counts = np.zeros((3, len(gold), len(number)))
    for row, (right, answer) in enumerate(zip(gold, predicted, strict=True)):
        counts[0, row, number[right]] = 1
        if answer in number:
            counts[1, row, number[answer]] = 1
        counts[2, row, number[right]] = right == answer
    return np.concatenate([*counts], axis=1)


def _macro_f1(sums: Float[np.ndarray, "sets K"]) -> Float[np.ndarray, " sets"]:
    """The mean F1 over the labels that occur in each set of rows, so that all models have the same
    denominator. It equals scikit-learn's ``f1_score(average="macro")`` with these ``labels``."""
    labels, answers, right = np.split(sums, 3, axis=-1)
    f1 = np.where(labels > 0, 2 * right / np.maximum(labels + answers, 1), 0)
    return f1.sum(axis=-1) / (labels > 0).sum(axis=-1)


def _right_words(gold: str, predicted: str) -> tuple[float, float]:
    """The number of words with the right tag, and of words."""
    right, tags = gold.split(), predicted.split()
    assert len(right) == len(tags), "one tag for each word"
    return sum(map(str.__eq__, right, tags)), len(tags)


def _right_entities(gold: str, predicted: str) -> tuple[float, float]:
    """Counts for the F1 of whole entities. A prediction is right if kind, first and last word are
    equal (CoNLL-2003)."""
    right, answered = (entities(tags.split()) for tags in (gold, predicted))
    return 2 * len(right & answered), len(right) + len(answered)


def entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """Returns (kind, first word, word after the last) of each entity in BIO tags.

    An I- that continues no entity of its kind begins one, as in the CoNLL-2003 evaluation. A tag
    without a BIO prefix is an entity of one word, whose kind is the tag.
    """
    spans: set[tuple[str, int, int]] = set()
    kind, start = None, 0
    for i, tag in enumerate([*tags, "O"]):
        prefix, _, name = tag.partition("-")
        if prefix == "I" and name == kind:
            continue
        if kind is not None:
            spans.add((kind, start, i))
        kind, start = (None if tag == "O" else name or tag), i
    return spans


def _bits(place: int) -> Sums:
    """Bits per byte (``place`` 0) or per word (``place`` 1) of all texts together, which do not
    depend on the tokenizer. ``gold`` has "num_bytes num_words" for each text, and ``predicted`` its
    bits."""
    return _ratio(lambda gold, predicted: (float(predicted), float(gold.split()[place])))


def _perplexity(sums: Float[np.ndarray, "sets 2"]) -> Float[np.ndarray, " sets"]:
    """2 to the power of the bits per word. Words are separated by blanks. It is huge or infinite
    for scripts without blanks between words, because a whole line counts as one word."""
    with np.errstate(over="ignore"):
        return np.exp2(_bits(1).value(sums))


def _best_of_answers(of: Callable[[list[str], list[str]], float]) -> Sums:
    """The mean over questions of the highest score among the question's right answers."""

    def of_row(answers: str, prediction: str) -> float:
        right = [words for text in json.loads(answers) if (words := normalised_words(text))]
        predicted_words = normalised_words(prediction)
        return max(float(of(words, predicted_words)) for words in right or [[]])

    return _mean(of_row)


def _overlap(right: list[str], answer: list[str]) -> float:
    """The F1 between the words of two texts; 1 if both are empty, 0 if only one is."""
    if not right or not answer:
        return float(right == answer)
    num_same = (Counter(right) & Counter(answer)).total()
    return 2 * num_same / (len(right) + len(answer))


def normalised_words(text: str) -> list[str]:
    """Returns the words of a text in lower case, without punctuation and English articles (the
    script of SQuAD 2.0; Rajpurkar et al. 2016, 2018)."""
    letters = text.lower().translate(WITHOUT_PUNCTUATION)
    return re.sub(r"\b(a|an|the)\b", " ", letters).split()


def _rouge_l(gold: str, predicted: str) -> float:
    """The F1 of the longest common subsequence of words (Lin 2004, section 3.1, with beta 1).

    Words are runs of letters and digits of any script, in lower case and not stemmed. The package
    rouge-score recognises only the letters a to z. For texts in these letters both agree.
    """
    one, other = (re.findall(r"[^\W_]+", text.lower()) for text in (gold, predicted))
    # longest[j]: the length for the words of gold so far and the first j words of predicted.
    longest = [0] * (len(other) + 1)
    for word in one:
        diagonal = 0
        for j, candidate in enumerate(other, start=1):
            here = diagonal + 1 if word == candidate else max(longest[j], longest[j - 1])
            diagonal, longest[j] = longest[j], here
    return 2 * longest[-1] / (len(one) + len(other)) if longest[-1] else 0.0


# Other metrics -------------------------------------------------------------------------------


def _matthews(gold: Texts, predicted: Texts) -> float:
    """Matthews' correlation for any number of classes (Gorodkin 2004, eq. 8), in -1..1.

    It is 0 if all answers or all predictions are equal, as in scikit-learn's
    ``matthews_corrcoef``.
    """
    labels, answers, num = Counter(gold), Counter(predicted), len(gold)
    right = sum(g == p for g, p in zip(gold, predicted, strict=True))
    covariance = right * num - sum(labels[x] * answers[x] for x in labels)
    variances = [num**2 - sum(n**2 for n in counts.values()) for counts in (labels, answers)]
    return covariance / math.sqrt(variances[0] * variances[1]) if all(variances) else 0.0


def _bleu(gold: Texts, predicted: Texts) -> float:
    """Corpus BLEU (Papineni et al. 2002), as sacrebleu defines it (Post 2018):
    ``nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp``."""
    from sacrebleu.metrics.bleu import BLEU

    return BLEU().corpus_score(predicted, [gold]).score / 100


def _chrf(gold: Texts, predicted: Texts) -> float:
    """Corpus chrF2, the F-score of character n-grams (Popovic 2015), as sacrebleu defines it:
    ``nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no``."""
    from sacrebleu.metrics.chrf import CHRF

    return CHRF().corpus_score(predicted, [gold]).score / 100


_BITS = Scale("bits per byte", factor=1, decimals=3, lower_is_better=True, limits=(0.0, math.inf))
_PERPLEXITY = Scale("", factor=1, decimals=1, lower_is_better=True, limits=(0.0, math.inf))
_IS_EQUAL = _mean(lambda gold, predicted: float(gold == predicted))

METRICS = {
    metric.name: metric
    for metric in (
        metric_of_sums("macro_f1", Sums(_label_counts, _macro_f1)),
        metric_of_sums("accuracy", _IS_EQUAL),
        Metric("matthews", _matthews, CORRELATION),
        metric_of_sums("entity_f1", _ratio(_right_entities)),
        metric_of_sums("word_accuracy", _ratio(_right_words)),
        metric_of_sums("squad_f1", _best_of_answers(_overlap)),
        metric_of_sums("exact_match", _best_of_answers(lambda right, answer: right == answer)),
        Metric("bleu", _bleu),
        Metric("chrf", _chrf),
        metric_of_sums("rouge_l", _mean(_rouge_l)),
        metric_of_sums("bits_per_byte", _bits(0), _BITS),
        metric_of_sums("word_perplexity", Sums(_bits(1).counts, _perplexity), _PERPLEXITY),
    )
}
