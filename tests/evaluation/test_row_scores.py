"""Row scores, compared with bootstraps of the metric itself."""

import json

import numpy as np
import pytest

from stages.core.seeding import stream
from stages.evaluation.metrics import METRICS, score
from stages.evaluation.row_scores import by_groups, row_scores

Rows = tuple[list[str], list[str]]
WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "mat", "with", "some", "words"]
RESAMPLES = 200


def of_labels(rng: np.random.Generator, num: int) -> Rows:
    gold = rng.choice(list("aaabbcd"), num).tolist()
    return gold, [g if rng.random() < 0.7 else str(rng.choice(list("abcde"))) for g in gold]


def of_tags(rng: np.random.Generator, num: int) -> Rows:
    tags = ["O", "O", "B-X", "I-X", "B-Y"]
    gold = [rng.choice(tags, rng.integers(1, 12)).tolist() for _ in range(num)]
    predicted = [[t if rng.random() < 0.8 else str(rng.choice(tags)) for t in row] for row in gold]
    return [" ".join(row) for row in gold], [" ".join(row) for row in predicted]


def of_texts(rng: np.random.Generator, num: int) -> Rows:
    gold = [rng.choice(WORDS, rng.integers(4, 12)).tolist() for _ in range(num)]
    texts = [[w if rng.random() < 0.8 else str(rng.choice(WORDS)) for w in row] for row in gold]
    return [" ".join(row) for row in gold], [" ".join(row[: rng.integers(2, 13)]) for row in texts]


def of_questions(rng: np.random.Generator, num: int) -> Rows:
    gold, predicted = of_texts(rng, num)
    return [json.dumps([text] if rng.random() < 0.8 else []) for text in gold], predicted


def of_bits(rng: np.random.Generator, num: int) -> Rows:
    words = rng.integers(3, 30, num)
    gold = [f"{5 * n + rng.integers(9)} {n}" for n in words]
    return gold, [str(float(bits)) for bits in rng.gamma(20, words / 20)]


DRAWN = {
    **dict.fromkeys(("macro_f1", "accuracy", "matthews"), of_labels),
    **dict.fromkeys(("entity_f1", "word_accuracy"), of_tags),
    **dict.fromkeys(("squad_f1", "exact_match"), of_questions),
    **dict.fromkeys(("bleu", "chrf", "rouge_l"), of_texts),
    **dict.fromkeys(("bits_per_byte", "word_perplexity"), of_bits),
}


def drawn(metric: str, num: int = 80) -> Rows:
    return DRAWN[metric](stream(1, "rows", metric), num)


def spoilt(metric: str, prediction: str) -> str:
    if DRAWN[metric] is of_bits:
        return str(1.2 * float(prediction))
    return " ".join(["O"] * len(prediction.split()))  # as many tags as words


def standard_error(scores: np.ndarray) -> float:
    return float(np.std(scores, ddof=1) / len(scores) ** 0.5)


@pytest.mark.parametrize("metric", METRICS)
def test_row_scores_have_the_metric_as_mean(metric: str) -> None:
    gold, predicted = drawn(metric)
    scores = row_scores(metric, gold, predicted)
    assert scores.dtype == np.float32 and scores.shape == (len(gold),)
    assert scores.mean(dtype=float) == pytest.approx(score(metric, gold, predicted), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("metric", METRICS)
def test_row_scores_have_the_standard_error_of_a_bootstrap(metric: str) -> None:
    """The standard errors of a score, and of its paired difference to the score of a worse model,
    are those over rows drawn with replacement."""
    gold, predicted = drawn(metric)
    worse = [one if i % 3 else spoilt(metric, one) for i, one in enumerate(predicted)]
    rng, values = stream(1, "bootstrap", metric), []
    for _ in range(RESAMPLES):
        rows = rng.integers(len(gold), size=len(gold))
        sample = [gold[i] for i in rows]
        values.append([score(metric, sample, [one[i] for i in rows]) for one in (predicted, worse)])
    one, other = (row_scores(metric, gold, each) for each in (predicted, worse))
    expected, paired = np.std(values, axis=0)[0], np.std(np.diff(values, axis=1))
    assert standard_error(one) == pytest.approx(expected, rel=0.2)
    assert standard_error(one - other) == pytest.approx(paired, rel=0.2)


@pytest.mark.parametrize("metric", ["accuracy", "exact_match", "squad_f1", "rouge_l"])
def test_row_scores_of_a_mean_are_scores_of_single_rows(metric: str) -> None:
    gold, predicted = drawn(metric, 50)
    alone = [score(metric, [g], [f]) for g, f in zip(gold, predicted, strict=True)]
    assert row_scores(metric, gold, predicted).tolist() == pytest.approx(alone, abs=1e-6)


def test_by_groups_has_the_variance_of_clusters() -> None:
    """Compared with the formula of Cameron and Miller (2015): sums of residuals within groups."""
    rng = stream(1, "clusters")
    groups = rng.integers(0, 12, 300)
    rows = rng.normal(size=(4, 300)) + rng.normal(size=(4, 12))[:, groups]
    means = rows.mean(axis=1)
    by_group = by_groups(rows, groups)
    assert by_group.mean(axis=1) == pytest.approx(means)
    for row, mean, scores in zip(rows, means, by_group, strict=True):
        sums = np.array([(row[groups == g] - mean).sum() for g in range(12)])
        assert standard_error(scores) ** 2 == pytest.approx((sums**2).sum() * 12 / 11 / 300**2)
    assert standard_error(by_group[0]) > 2 * standard_error(rows[0])
    assert by_groups(rows, np.empty(0, dtype=int)) is rows
