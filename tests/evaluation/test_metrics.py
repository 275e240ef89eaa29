"""Metrics by hand and as libraries compute them; row scores, compared with bootstraps of the metric
itself."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from stages.core.seeding import stream
from stages.evaluation.metrics import METRICS, score
from stages.evaluation.row_scores import by_groups, row_scores

LINE = "one two three four five six"


@pytest.mark.parametrize(
    ("metric", "gold", "predicted", "value"),
    [
        # 3 of 4 predicted and of 5 expected entities are right, so F1 is 6/9.
        (
            "entity_f1",
            ["B-X I-X O B-Y", "B-X O B-X O", "O O O B-Y"],
            ["B-X I-X O B-Y", "B-X I-X O O", "O O O I-Y"],
            6 / 9,
        ),
        ("entity_f1", ["B-X", "B-X B-X B-X"], ["O", "B-X B-X B-X"], 6 / 7),  # not a mean over rows
        ("entity_f1", ["NOUN VERB"], ["VERB NOUN"], 0),
        ("entity_f1", ["O I-X I-X B-Y I-Y B-Y"], ["B-Z B-X I-X B-Y I-Y B-Y"], 2 * 3 / 7),
        *(
            ("entity_f1", ["O B-X I-X O"], [wrong], 0)  # kind and both ends count
            for wrong in ("O B-Y I-Y O", "O B-X O O", "B-X I-X I-X O", "O B-X I-X I-X", "O O O O")
        ),
        ("word_accuracy", ["O B-X", "O"], ["O O", "O"], 2 / 3),
        ("accuracy", ["a b", "c", "c"], ["a b", "c", "a"], 2 / 3),
        ("macro_f1", ["a", "b"], ["a", "a"], 1 / 3),  # the mean of 2/3 and 0
        ("matthews", [*"aaabb"], [*"aabab"], 1 / 6),  # (2 * 1 - 1 * 1) / sqrt(3 * 3 * 2 * 2)
        ("f1_of_yes", ["no", "yes", "yes"], ["yes", "yes", "no"], 1 / 2),
        # Counts of BLEU are added: 8 of 10 words, 5 of 8 pairs, 4 of 6 triples, 3 of 4 quadruples.
        (
            "bleu",
            [LINE, "seven eight nine ten"],
            [LINE, "seven ate not ten"],
            (8 / 10 * 5 / 8 * 4 / 6 * 3 / 4) ** (1 / 4),
        ),
        *(
            ("chrf", ["The cat sat."], [text], value)
            for text, value in (("The cat sat.", 1), ("", 0))
        ),
        # Equally many pairs of words in both (Lin 2004, section 3.1), then recall 4/4, precision
        # 4/8, then a mean of two texts.
        ("rouge_l", ["police killed the gunman"], ["police kill the gunman"], 3 / 4),
        ("rouge_l", ["police killed the gunman"], ["the gunman kill police"], 2 / 4),
        (
            "rouge_l",
            ["police killed the gunman"],
            ["Police, who were late, killed the gunman there."],
            2 * 4 / (4 + 8),
        ),
        ("rouge_l", ["one", "Größe zählt"], ["one", "größe"], (1 + 2 / 3) / 2),
        # The texts have 30 bits, 4 + 16 bytes and 1 + 4 words, and are taken together.
        ("bits_per_byte", ["4 1", "16 4"], ["20.0", "10.0"], 1.5),
        ("word_perplexity", ["4 1", "16 4"], ["20.0", "10.0"], 2**6),
        ("word_perplexity", ["600 1"], ["1600.0"], math.inf),  # a text without blanks
    ],
)
def test_score_by_hand(metric: str, gold: list[str], predicted: list[str], value: float) -> None:
    assert score(metric, gold, predicted) == pytest.approx(value)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcde")), min_size=1))
def test_score_of_classes_is_that_of_scikit_learn(pairs: list[tuple[str, str]]) -> None:
    gold, predicted = map(list, zip(*pairs, strict=True))
    expected = f1_score(gold, predicted, labels=sorted(set(gold)), average="macro")
    assert score("macro_f1", gold, predicted) == pytest.approx(expected)
    assert score("accuracy", gold, predicted) == pytest.approx(accuracy_score(gold, predicted))
    if len({*gold, *predicted}) > 1:  # else scikit-learn warns
        matthews = matthews_corrcoef(gold, predicted)
        assert score("matthews", gold, predicted) == pytest.approx(matthews)
    of_one = f1_score(gold, predicted, labels=["a"], average="micro", zero_division=0.0)
    assert score("f1_of_a", gold, predicted) == pytest.approx(of_one)


@pytest.mark.parametrize(
    ("right", "predicted", "f1"),
    [
        (["Denver Broncos"], "the denver  broncos!", 1),
        (["Denver Broncos"], "Broncos", 2 / 3),  # precision 1, recall 1/2
        (["Denver Broncos", "Broncos"], "Broncos", 1),  # the most similar right answer
        (["a a b b c"], "b b b", 2 * 2 / (3 + 3)),  # repeated words count; articles do not
        ([], "", 1),  # no answer, and none predicted
        ([], "the", 1),  # empty after normalisation
        (["the", "308"], "", 0),  # the other answer is not empty
        (["“tea”"], "tea", 0),  # only ASCII punctuation is removed
    ],
)
def test_score_of_a_question_by_hand(right: list[str], predicted: str, f1: float) -> None:
    assert score("squad_f1", [json.dumps(right)], [predicted]) == pytest.approx(f1)
    assert score("exact_match", [json.dumps(right)], [predicted]) == (f1 == 1)


# Row scores ----------------------------------------------------------------------------------

WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "mat", "with", "some", "words"]
TAGS = ["O", "O", "B-X", "I-X", "B-Y"]
# What the words of a text are drawn from, and their fewest and most.
ALPHABETS = dict.fromkeys(METRICS, (WORDS, 4, 12))
ALPHABETS |= dict.fromkeys(("macro_f1", "accuracy", "matthews"), ([*"aaabbcd"], 1, 1))
ALPHABETS |= dict.fromkeys(("entity_f1", "word_accuracy"), (TAGS, 1, 12))
BITS = ("bits_per_byte", "word_perplexity")


def drawn(metric: str) -> tuple[list[str], list[str]]:
    """Draws 80 answers and predictions, of which three of four words are right."""
    rng, (words, least, most) = stream(1, "rows", metric), ALPHABETS[metric]
    if metric in BITS:
        numbers = rng.integers(3, 30, 80)
        gold = [f"{5 * n + rng.integers(9)} {n}" for n in numbers]
        return gold, [str(float(bits)) for bits in rng.gamma(20, numbers / 20)]
    right = [rng.choice(words, rng.integers(least, most + 1)).tolist() for _ in range(80)]
    given = [[w if rng.random() < 0.75 else str(rng.choice(words)) for w in row] for row in right]
    gold, predicted = [" ".join(row) for row in right], [" ".join(row) for row in given]
    if metric in ("squad_f1", "exact_match"):
        gold = [json.dumps([text] if rng.random() < 0.8 else []) for text in gold]
    return gold, predicted


def standard_error(scores: np.ndarray) -> float:
    return float(np.std(scores, ddof=1) / len(scores) ** 0.5)


@pytest.mark.parametrize("metric", METRICS)
def test_row_scores_have_the_metric_as_mean(metric: str) -> None:
    """Scores of a mean over rows are those of single rows."""
    gold, predicted = drawn(metric)
    scores = row_scores(metric, gold, predicted)
    assert scores.dtype == np.float32 and scores.shape == (len(gold),)
    assert scores.mean(dtype=float) == pytest.approx(score(metric, gold, predicted), rel=1e-6)
    if metric in ("accuracy", "exact_match", "squad_f1", "rouge_l"):
        alone = [score(metric, [g], [f]) for g, f in zip(gold, predicted, strict=True)]
        assert scores.tolist() == pytest.approx(alone, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["macro_f1", "entity_f1", "matthews", "word_perplexity"])
def test_row_scores_have_the_standard_error_of_a_bootstrap(metric: str) -> None:
    """The standard errors of a score, and of its paired difference to the score of a worse model,
    are those over rows drawn with replacement; one metric of each form."""
    gold, predicted = drawn(metric)
    worse = predicted.copy()
    for i in range(0, len(worse), 3):
        is_number = metric in BITS
        worse[i] = (
            str(1.2 * float(worse[i])) if is_number else " ".join("O" for _ in worse[i].split())
        )
    rng, values = stream(1, "bootstrap", metric), []
    for _ in range(200):
        rows = rng.integers(len(gold), size=len(gold))
        sample = [gold[i] for i in rows]
        values.append([score(metric, sample, [one[i] for i in rows]) for one in (predicted, worse)])
    one, other = (row_scores(metric, gold, each) for each in (predicted, worse))
    expected, paired = np.std(values, axis=0)[0], np.std(np.diff(values, axis=1))
    assert standard_error(one) == pytest.approx(expected, rel=0.2)
    assert standard_error(one - other) == pytest.approx(paired, rel=0.2)


def test_by_groups_has_the_variance_of_clusters() -> None:
    """Compared with the formula of Cameron and Miller (2015): sums of residuals within groups."""
    rng = stream(1, "clusters")
    groups = rng.integers(0, 12, 300)
    rows = rng.normal(size=(4, 300)) + rng.normal(size=(4, 12))[:, groups]
    means, by_group = rows.mean(axis=1), by_groups(rows, groups)
    assert by_group.mean(axis=1) == pytest.approx(means)
    for row, mean, scores in zip(rows, means, by_group, strict=True):
        sums = np.array([(row[groups == g] - mean).sum() for g in range(12)])
        assert standard_error(scores) ** 2 == pytest.approx((sums**2).sum() * 12 / 11 / 300**2)
    assert standard_error(by_group[0]) > 2 * standard_error(rows[0])
    assert by_groups(rows, np.empty(0, dtype=int)) is rows
