"""What each test row contributes to a metric: scores of rows whose mean is the metric.

For a mean over rows they are the scores of the rows themselves. Other metrics are linearised: row i
has ``value + (n - 1) (value - value without i)``, moved so that the mean is the value (the
infinitesimal and the delete-one jackknife; Efron and Tibshirani 1993, chapters 11 and 21). The
standard deviation of the scores divided by sqrt(n) is the standard error of the metric over test
sets, and that of their difference between two models the standard error of the paired difference.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Float32

from stages.evaluation import metrics
from stages.kinds._metric import F1_OF, Metric, Sums

Texts = Sequence[str]
NUM_GROUPS = 50  # of rows left out at once, for a metric that is no function of sums
NGRAMS = 4  # of BLEU
LETTERS = 6  # of chrF: n-grams of letters up to this long
BETA = 2  # of chrF


def row_scores(metric: str, gold: Texts, predicted: Texts) -> Float32[np.ndarray, " n"]:
    """The score of each row on the metric of this name."""
    value = metrics.score(metric, gold, predicted)
    if not np.isfinite(value):
        return np.full(len(gold), value, dtype=np.float32)
    found = metrics.metric_of(metric)
    sums = found.sums or SUMS.get(metric) or _f1_of(metric)
    influence = (
        _by_groups(found, value, gold, predicted)
        if sums is None
        else _by_sums(sums, sums.counts(gold, predicted))
    )
    # A value without some rows may not exist: the only row of its label, a perplexity too large.
    influence = np.where(np.isfinite(influence), influence, 0.0)
    return (value + influence - influence.mean()).astype(np.float32)


def _by_sums(sums: Sums, counts: Float[np.ndarray, "n K"]) -> Float[np.ndarray, " n"]:
    total = counts.sum(axis=0, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return (len(counts) - 1) * (sums.value(total) - sums.value(total - counts))


def _by_groups(
    metric: Metric, value: float, gold: Texts, predicted: Texts
) -> Float[np.ndarray, " n"]:
    """The same from leaving out a group of rows at a time. The groups are those of every model, so
    that differences are paired. All rows of a group share a score; scaled so that the standard
    error is that of the delete-a-group jackknife."""
    num_groups = min(NUM_GROUPS, len(gold))
    if num_groups < 2:
        return np.zeros(len(gold))
    group = np.arange(len(gold)) % num_groups
    without = [
        metric.value([gold[i] for i in kept], [predicted[i] for i in kept])
        for left_out in range(num_groups)
        for kept in [np.flatnonzero(group != left_out).tolist()]
    ]
    scale = ((num_groups - 1) * (len(gold) - 1)) ** 0.5
    with np.errstate(invalid="ignore"):
        return scale * (value - np.asarray(without, dtype=float))[group]


def _ratio(of_row: Callable[[str, str], tuple[float, float]]) -> Sums:
    """The sum of one number over rows divided by the sum of another; 0 if that is 0."""

    def counts(gold: Texts, predicted: Texts) -> Float[np.ndarray, "n 2"]:
        return np.array([of_row(*row) for row in zip(gold, predicted, strict=True)], dtype=float)

    def value(sums: Float[np.ndarray, "sets 2"]) -> Float[np.ndarray, " sets"]:
        above, below = sums[..., 0], sums[..., 1]
        return np.where(below == 0, 0.0, above / np.where(below == 0, 1, below))

    return Sums(counts, value)


def _mean(metric: Callable[[Texts, Texts], float]) -> Sums:
    """A mean over rows is that of the metric's values of single rows."""
    return _ratio(lambda gold, predicted: (metric([gold], [predicted]), 1))


def _words(gold: str, predicted: str) -> tuple[float, float]:
    number = len(gold.split())
    return metrics.word_accuracy([gold], [predicted]) * number if number else 0.0, number


def _entities(gold: str, predicted: str) -> tuple[float, float]:
    expected, found = (metrics.entities(tags.split()) for tags in (gold, predicted))
    return 2 * len(expected & found), len(expected) + len(found)


def _bits(place: int) -> Sums:
    """Bits per byte (place 0) or per word (place 1)."""
    return _ratio(lambda gold, predicted: (float(predicted), float(gold.split()[place])))


def _perplexity() -> Sums:
    bits = _bits(1)
    return Sums(bits.counts, lambda sums: np.exp2(bits.value(sums)))


def _label_counts(gold: Texts, predicted: Texts) -> Float[np.ndarray, "n K"]:
    """Of each label that occurs: whether the row has it, is said to have it, and both."""
    number = {label: i for i, label in enumerate(sorted(set(gold)))}
    counts = np.zeros((3, len(gold), len(number)))
    for row, (right, answer) in enumerate(zip(gold, predicted, strict=True)):
        counts[0, row, number[right]] = 1
        if answer in number:
            counts[1, row, number[answer]] = 1
        counts[2, row, number[right]] = right == answer
    return np.concatenate([*counts], axis=1)


def _macro_f1(sums: Float[np.ndarray, "sets K"]) -> Float[np.ndarray, " sets"]:
    """Over the labels that occur in each set of rows."""
    labels, answers, right = np.split(sums, 3, axis=-1)
    f1 = np.where(labels > 0, 2 * right / np.maximum(labels + answers, 1), 0)
    return f1.sum(axis=-1) / (labels > 0).sum(axis=-1)


def _f1_of(metric: str) -> Sums | None:
    """Of the F1 of one label."""
    if not metric.startswith(F1_OF):
        return None
    label = metric.removeprefix(F1_OF)
    return _ratio(lambda gold, found: (2 * (gold == found == label), [gold, found].count(label)))


def _both_counts(gold: Texts, predicted: Texts) -> Float[np.ndarray, "n K"]:
    """Of each label that occurs: whether the row has it, and is said to have it; and a last number,
    whether the row is right."""
    labels = sorted({*gold, *predicted})
    has = [
        np.array([[text == label for label in labels] for text in of]) for of in (gold, predicted)
    ]
    right = np.array([g == p for g, p in zip(gold, predicted, strict=True)])[:, None]
    return np.concatenate([*has, right], axis=1).astype(float)


def _matthews(sums: Float[np.ndarray, "sets K"]) -> Float[np.ndarray, " sets"]:
    labels, answers = np.split(sums[..., :-1], 2, axis=-1)
    num, right = labels.sum(axis=-1), sums[..., -1]
    spread = [num**2 - (of**2).sum(axis=-1) for of in (labels, answers)]
    product = spread[0] * spread[1]
    covariance = right * num - (labels * answers).sum(axis=-1)
    return np.where(product > 0, covariance / np.sqrt(np.where(product > 0, product, 1)), 0.0)


def _bleu_counts(gold: Texts, predicted: Texts) -> Float[np.ndarray, "n K"]:
    from sacrebleu.metrics.bleu import BLEU

    bleu = BLEU(effective_order=True)
    found = [bleu.sentence_score(p, [g]) for g, p in zip(gold, predicted, strict=True)]
    rows = [[*each.counts, *each.totals, each.sys_len, each.ref_len] for each in found]
    return np.array(rows, dtype=float)


def _bleu(sums: Float[np.ndarray, "sets K"]) -> Float[np.ndarray, " sets"]:
    """sacrebleu's, with exponential smoothing: an order without a match counts as half a match of
    the order before without one, beginning with a half."""
    right, found = sums[..., :NGRAMS], sums[..., NGRAMS : 2 * NGRAMS]
    length, expected = sums[..., -2], sums[..., -1]
    halvings = np.cumsum(right == 0, axis=-1)
    precision = np.where(right == 0, 0.5**halvings, right) / np.maximum(found, 1)
    mean = np.exp(np.log(precision).mean(axis=-1))
    shortness = np.exp(np.minimum(1 - expected / np.maximum(length, 1), 0))
    return np.where((right.sum(axis=-1) > 0) & (found > 0).all(axis=-1), mean * shortness, 0.0)


def _chrf_counts(gold: Texts, predicted: Texts) -> Float[np.ndarray, "n K"]:
    from sacrebleu.metrics.helpers import extract_all_char_ngrams

    def of_row(right: str, answer: str) -> list[int]:
        ngrams = (extract_all_char_ngrams(text, LETTERS, False) for text in (answer, right))
        return [n for one, other in zip(*ngrams, strict=True) for n in _matches(one, other)]

    rows = [of_row(*pair) for pair in zip(gold, predicted, strict=True)]
    return np.array(rows, dtype=float)


def _matches(answer: Counter[str], right: Counter[str]) -> tuple[int, int, int]:
    return (answer.total() if right else 0), right.total(), (answer & right).total()


def _chrf(sums: Float[np.ndarray, "sets K"]) -> Float[np.ndarray, " sets"]:
    """sacrebleu's: precision and recall are means over the orders that both texts have."""
    found, expected, same = (sums[..., i::3] for i in range(3))
    counted = (found > 0) & (expected > 0)
    orders = np.maximum(counted.sum(axis=-1), 1)
    precision, recall = (
        np.where(counted, same / np.maximum(number, 1), 0).sum(axis=-1) / orders
        for number in (found, expected)
    )
    below = BETA**2 * precision + recall
    return (1 + BETA**2) * precision * recall / np.where(below == 0, 1, below)


SUMS: dict[str, Sums] = {  # of the shared metrics
    "accuracy": _mean(metrics.accuracy),
    "exact_match": _mean(metrics.exact_match),
    "squad_f1": _mean(metrics.squad_f1),
    "rouge_l": _mean(metrics.rouge_l),
    "word_accuracy": _ratio(_words),
    "entity_f1": _ratio(_entities),
    "bits_per_byte": _bits(0),
    "word_perplexity": _perplexity(),
    "macro_f1": Sums(_label_counts, _macro_f1),
    "matthews": Sums(_both_counts, _matthews),
    "bleu": Sums(_bleu_counts, _bleu),
    "chrf": Sums(_chrf_counts, _chrf),
}
