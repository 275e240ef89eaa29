"""Row scores: the contribution of each test row to a metric. Their mean is the metric.

If the metric is a mean over rows, they are the rows' own scores. Other metrics are linearised: the
score of row i is ``value + (n - 1) (value - value without i)``, shifted so that the mean is the
value (the infinitesimal and the delete-one jackknife; Efron and Tibshirani 1993, chapters 11 and
21). The standard deviation of the scores divided by sqrt(n) is the standard error of the metric
over test sets. The same formula for the differences of two models' scores gives the standard error
of the paired difference.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Float32

from stages.evaluation import metrics
from stages.kinds._metric import F1_OF, Metric, Sums

Texts = Sequence[str]
NUM_GROUPS = 50  # groups of rows to leave out, for a metric that is not a function of sums
NGRAMS = 4  # largest n in BLEU
LETTERS = 6  # largest n of character n-grams in chrF
BETA = 2  # weight of recall in chrF


def row_scores(metric: str, gold: Texts, predicted: Texts) -> Float32[np.ndarray, " n"]:
    """Returns the score of each row on the metric of this name."""
    value = metrics.score(metric, gold, predicted)
    if not np.isfinite(value):
        return np.full(len(gold), value, dtype=np.float32)
    definition = metrics.metric_of(metric)
    sums = definition.sums or SUMS.get(metric) or _f1_of(metric)
    influence = (
        _by_groups(definition, value, gold, predicted)
        if sums is None
        else _by_sums(sums, sums.counts(gold, predicted))
    )
    # Without some row the metric may be undefined (if it is the only row of a label) or infinite
    # (a perplexity too large for a float).
    influence = np.where(np.isfinite(influence), influence, 0.0)
    return (value + influence - influence.mean()).astype(np.float32)


def _by_sums(sums: Sums, counts: Float[np.ndarray, "n K"]) -> Float[np.ndarray, " n"]:
    total = counts.sum(axis=0, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return (len(counts) - 1) * (sums.value(total) - sums.value(total - counts))


def _by_groups(
    metric: Metric, value: float, gold: Texts, predicted: Texts
) -> Float[np.ndarray, " n"]:
    """Returns the influence of each row, computed by leaving out one group of rows at a time.

    All models have the same groups, so that differences are paired. The rows of a group share a
    value, which is scaled to give the standard error of the delete-a-group jackknife.
    """
    num_groups = min(NUM_GROUPS, len(gold))
    if num_groups < 2:
        return np.zeros(len(gold))
    group = np.arange(len(gold)) % num_groups
    without = [
        metric.value([gold[i] for i in rows], [predicted[i] for i in rows])
        for left_out in range(num_groups)
        for rows in [np.flatnonzero(group != left_out).tolist()]
    ]
    scale = ((num_groups - 1) * (len(gold) - 1)) ** 0.5
    with np.errstate(invalid="ignore"):
        return scale * (value - np.asarray(without, dtype=float))[group]


def _ratio(of_row: Callable[[str, str], tuple[float, float]]) -> Sums:
    """``Sums`` of a metric that is a ratio of two totals over rows; 0 if the divisor is 0."""

    def counts(gold: Texts, predicted: Texts) -> Float[np.ndarray, "n 2"]:
        return np.array([of_row(*row) for row in zip(gold, predicted, strict=True)], dtype=float)

    def value(sums: Float[np.ndarray, "sets 2"]) -> Float[np.ndarray, " sets"]:
        above, below = sums[..., 0], sums[..., 1]
        return np.where(below == 0, 0.0, above / np.where(below == 0, 1, below))

    return Sums(counts, value)


def _mean(metric: Callable[[Texts, Texts], float]) -> Sums:
    """``Sums`` of a metric that is the mean of its values for single rows."""
    return _ratio(lambda gold, predicted: (metric([gold], [predicted]), 1))


def _words(gold: str, predicted: str) -> tuple[float, float]:
    number = len(gold.split())
    return metrics.word_accuracy([gold], [predicted]) * number if number else 0.0, number


def _entities(gold: str, predicted: str) -> tuple[float, float]:
    right, answered = (metrics.entities(tags.split()) for tags in (gold, predicted))
    return 2 * len(right & answered), len(right) + len(answered)


def _bits(place: int) -> Sums:
    """``Sums`` for bits per byte (``place`` 0) or per word (``place`` 1)."""
    return _ratio(lambda gold, predicted: (float(predicted), float(gold.split()[place])))


def _perplexity() -> Sums:
    bits = _bits(1)
    return Sums(bits.counts, lambda sums: np.exp2(bits.value(sums)))


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
    """The mean F1 over the labels that occur in each set of rows."""
    labels, answers, right = np.split(sums, 3, axis=-1)
    f1 = np.where(labels > 0, 2 * right / np.maximum(labels + answers, 1), 0)
    return f1.sum(axis=-1) / (labels > 0).sum(axis=-1)


def _f1_of(metric: str) -> Sums | None:
    """``Sums`` of the F1 of one label, or None for other metrics."""
    if not metric.startswith(F1_OF):
        return None
    label = metric.removeprefix(F1_OF)
    return _ratio(lambda gold, answer: (2 * (gold == answer == label), [gold, answer].count(label)))


def _both_counts(gold: Texts, predicted: Texts) -> Float[np.ndarray, "n K"]:
    """Returns, for each row and each label, whether the row has the label and whether the label is
    predicted; the last column is whether the prediction is right."""
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
    scores = [bleu.sentence_score(p, [g]) for g, p in zip(gold, predicted, strict=True)]
    rows = [[*score.counts, *score.totals, score.sys_len, score.ref_len] for score in scores]
    return np.array(rows, dtype=float)


def _bleu(sums: Float[np.ndarray, "sets K"]) -> Float[np.ndarray, " sets"]:
    """BLEU as in sacrebleu, with exponential smoothing: the smallest n without matching n-grams
    counts as half a match, and each larger n as half of the n before."""
    right, answered = sums[..., :NGRAMS], sums[..., NGRAMS : 2 * NGRAMS]
    length, expected = sums[..., -2], sums[..., -1]
    halvings = np.cumsum(right == 0, axis=-1)
    precision = np.where(right == 0, 0.5**halvings, right) / np.maximum(answered, 1)
    mean = np.exp(np.log(precision).mean(axis=-1))
    shortness = np.exp(np.minimum(1 - expected / np.maximum(length, 1), 0))
    is_defined = (right.sum(axis=-1) > 0) & (answered > 0).all(axis=-1)
    return np.where(is_defined, mean * shortness, 0.0)


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
    """chrF as in sacrebleu: precision and recall are means over the n for which both texts have
    n-grams."""
    answered, expected, same = (sums[..., i::3] for i in range(3))
    counted = (answered > 0) & (expected > 0)
    orders = np.maximum(counted.sum(axis=-1), 1)
    precision, recall = (
        np.where(counted, same / np.maximum(number, 1), 0).sum(axis=-1) / orders
        for number in (answered, expected)
    )
    below = BETA**2 * precision + recall
    return (1 + BETA**2) * precision * recall / np.where(below == 0, 1, below)


SUMS: dict[str, Sums] = {  # for the shared metrics
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
