"""Scores of predictions, computed over the whole test set. They are in 0..1 unless the metric's
scale says otherwise.

This file contains the metrics that several kinds of rows may share. A metric of a single kind is
defined in the kind's file (``Kind.metrics``); ``metric_of`` finds both by name. Answers and
predictions are strings as ``Kind.answer`` writes them.
"""

import json
import math
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial

from stages.kinds._kind import KINDS
from stages.kinds._metric import F1_OF, POINTS, Metric, Scale

WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


SCALES = {  # for the shared metrics that are not proportions
    "bits_per_byte": Scale("bits per byte", factor=1, decimals=3, lower_is_better=True),
    "word_perplexity": Scale("", factor=1, decimals=1, lower_is_better=True),
}
# The smallest and largest value of metrics that are not shares, before multiplication by ``factor``
LIMITS = {
    **dict.fromkeys(("matthews", "pearson", "spearman"), (-1.0, 1.0)),
    **dict.fromkeys(("bits_per_byte", "word_perplexity"), (0.0, math.inf)),
}
Ends = tuple[float, float]


def metric_of(name: str) -> Metric:
    """Returns the metric of this name, shared or of one kind.

    Raises KeyError for an unknown name.
    """
    if name in METRICS:  # first, because it loads no kind
        return Metric(name, METRICS[name], SCALES.get(name, POINTS))
    if name.startswith(F1_OF):
        return Metric(name, partial(f1_of, name.removeprefix(F1_OF)))
    return _of_kinds()[name]


@cache
def _of_kinds() -> dict[str, Metric]:
    return {
        metric.name: metric
        for kind in KINDS.values()
        for metric in kind.metrics
        if isinstance(metric, Metric)
    }


def scale_of(metric: str) -> Scale:
    return metric_of(metric).scale


def limits(metric: str, *, difference: bool = False) -> Ends:
    """Returns the ends of the metric's scale or, if ``difference``, of the differences on it."""
    shares = (0.0, 1.0) if scale_of(metric) == POINTS else (-math.inf, math.inf)
    least, largest = LIMITS.get(metric, shares)
    return (least - largest, largest - least) if difference else (least, largest)


def cut(low: float, high: float, metric: str, *, difference: bool = False) -> Ends:
    """Returns the ends of an interval, cut off at the ends of the metric's scale.

    A t interval ignores the ends of the scale: from two seeds it may reach from -88 to 151 points.
    The true value lies on the scale, so the cut does not change the interval's coverage.
    """
    least, largest = limits(metric, difference=difference)
    if not least <= (low + high) / 2 <= largest:  # a component's own metric may have another scale
        return low, high
    return max(low, least), min(high, largest)


def merit(metric: str, value: float) -> float:
    """Returns the value, negated if lower is better. Every choice of the best value uses this."""
    return -value if scale_of(metric).lower_is_better else value


def score(metric: str, gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Returns the value of the metric of this name."""
    assert len(gold) == len(predicted) > 0, "one prediction for each example"
    return float(metric_of(metric).value(gold, predicted))


def macro_f1(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """The mean F1 over the labels that occur in ``gold``, so that all runs have the same
    denominator.

    It equals scikit-learn's ``f1_score(average="macro")`` with these ``labels``, as the tests
    check. Importing scikit-learn in every process would take longer than many trials.
    """
    labels = Counter(gold)
    answers = Counter(predicted)
    right = Counter(g for g, p in zip(gold, predicted, strict=True) if g == p)
    return sum(2 * right[x] / (labels[x] + answers[x]) for x in sorted(labels)) / len(labels)


def accuracy(gold: Sequence[str], predicted: Sequence[str]) -> float:
    return sum(g == p for g, p in zip(gold, predicted, strict=True)) / len(gold)


def matthews(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Matthews' correlation for any number of classes (Gorodkin 2004, eq. 8), in -1..1.

    It is 0 if all answers or all predictions are equal, as in scikit-learn's
    ``matthews_corrcoef``.
    """
    labels, answers, num = Counter(gold), Counter(predicted), len(gold)
    right = sum(g == p for g, p in zip(gold, predicted, strict=True))
    covariance = right * num - sum(labels[x] * answers[x] for x in labels)
    variances = [num**2 - sum(n**2 for n in counts.values()) for counts in (labels, answers)]
    return covariance / math.sqrt(variances[0] * variances[1]) if all(variances) else 0.0


def f1_of(label: str, gold: Sequence[str], predicted: Sequence[str]) -> float:
    """The F1 of one label (for MRPC and QQP: of paraphrases), equal to scikit-learn's with this
    ``pos_label``; 0 if the label is neither right nor predicted for any text."""
    right = sum(g == p == label for g, p in zip(gold, predicted, strict=True))
    return 2 * right / (gold.count(label) + predicted.count(label)) if right else 0.0


def word_accuracy(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """The share of words with the right tag."""
    pairs = [pair for row in zip(gold, predicted, strict=True) for pair in _words(*row)]
    return sum(right == tag for right, tag in pairs) / len(pairs)


def entity_f1(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """The F1 of whole entities. A prediction is right if kind, first and last word are equal
    (CoNLL-2003)."""
    num_gold = num_predicted = num_right = 0
    for row in zip(gold, predicted, strict=True):
        _words(*row)
        gold_entities, predicted_entities = (entities(tags.split()) for tags in row)
        num_gold += len(gold_entities)
        num_predicted += len(predicted_entities)
        num_right += len(gold_entities & predicted_entities)
    return 2 * num_right / (num_gold + num_predicted) if num_right else 0.0


def bits_per_byte(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """The bits per byte of all texts together, which do not depend on the tokenizer.

    ``gold`` has "num_bytes num_words" for each text, and ``predicted`` its bits.
    """
    bits, num_bytes, _ = _bits(gold, predicted)
    return bits / num_bytes


def word_perplexity(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """2 to the power of the bits per word, from the same input as ``bits_per_byte``.

    Words are separated by blanks. The perplexity is huge or infinite for scripts without blanks
    between words, because a whole line counts as one word.
    """
    bits, _, num_words = _bits(gold, predicted)
    try:
        return 2 ** (bits / num_words)
    except OverflowError:
        return math.inf


def _bits(gold: Sequence[str], predicted: Sequence[str]) -> tuple[float, int, int]:
    """Returns the total (bits, bytes, words) of all texts."""
    lengths = [tuple(map(int, row.split())) for row in gold]
    num_bytes, num_words = map(sum, zip(*lengths, strict=True))
    return sum(map(float, predicted)), num_bytes, num_words  # type: ignore[return-value]


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


def exact_match(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """The share of questions whose prediction equals a right answer, ignoring case, punctuation,
    articles and blanks (the script of SQuAD 2.0; Rajpurkar et al. 2016, 2018)."""
    return _mean_of_questions(lambda right, answer: right == answer, gold, predicted)


def squad_f1(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """The mean over questions of the F1 between the words of the prediction and of the most similar
    right answer, both normalised as in ``exact_match``. If both are empty, the F1 is 1; if only
    one is, it is 0.

    It is implemented here because torchmetrics needs torch, the package ``evaluate`` downloads its
    code, and transformers 5 no longer has it.
    """
    return _mean_of_questions(_overlap, gold, predicted)


def _mean_of_questions(
    of: Callable[[list[str], list[str]], float], gold: Sequence[str], predicted: Sequence[str]
) -> float:
    """The mean over questions of the highest score among the question's right answers."""
    total = 0.0
    for answers, prediction in zip(gold, predicted, strict=True):
        right = [words for text in json.loads(answers) if (words := normalised_words(text))]
        predicted_words = normalised_words(prediction)
        total += max(float(of(words, predicted_words)) for words in right or [[]])
    return total / len(gold)


def _overlap(right: list[str], answer: list[str]) -> float:
    if not right or not answer:
        return float(right == answer)
    num_same = (Counter(right) & Counter(answer)).total()
    return 2 * num_same / (len(right) + len(answer))


def normalised_words(text: str) -> list[str]:
    """Returns the words of a text in lower case, without punctuation and English articles."""
    letters = text.lower().translate(WITHOUT_PUNCTUATION)
    return re.sub(r"\b(a|an|the)\b", " ", letters).split()


def _words(gold: str, predicted: str) -> list[tuple[str, str]]:
    pairs = list(zip(gold.split(), predicted.split(), strict=False))
    assert len(pairs) == len(gold.split()) == len(predicted.split()), "one tag for each word"
    return pairs


def bleu(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Corpus BLEU (Papineni et al. 2002), as sacrebleu defines it (Post 2018):
    ``nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp``."""
    from sacrebleu.metrics.bleu import BLEU

    return BLEU().corpus_score(predicted, [gold]).score / 100


def chrf(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Corpus chrF2, the F-score of character n-grams (Popovic 2015), as sacrebleu defines it:
    ``nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no``."""
    from sacrebleu.metrics.chrf import CHRF

    return CHRF().corpus_score(predicted, [gold]).score / 100


def rouge_l(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """ROUGE-L, the mean over texts of the F1 of the longest common subsequence of words (Lin 2004,
    section 3.1, with beta 1).

    Words are runs of letters and digits of any script, in lower case and not stemmed. The package
    rouge-score recognises only the letters a to z. For texts in these letters both agree.
    """
    pairs = ((_running(g), _running(p)) for g, p in zip(gold, predicted, strict=True))
    return sum(_subsequence_f1(*pair) for pair in pairs) / len(gold)


def _running(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def _subsequence_f1(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """The F1 of the longest common subsequence."""
    # longest[j]: the length for the words of gold so far and the first j words of predicted.
    longest = [0] * (len(predicted) + 1)
    for word in gold:
        diagonal = 0
        for j, other in enumerate(predicted, start=1):
            here = diagonal + 1 if word == other else max(longest[j], longest[j - 1])
            diagonal, longest[j] = longest[j], here
    return 2 * longest[-1] / (len(gold) + len(predicted)) if longest[-1] else 0.0


METRICS = {
    f.__name__: f
    for f in (
        *(macro_f1, accuracy, matthews, entity_f1, word_accuracy, squad_f1, exact_match),
        *(bleu, chrf, rouge_l, bits_per_byte, word_perplexity),
    )
}
