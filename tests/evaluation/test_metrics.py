import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from stages.evaluation.metrics import entities, score


def test_entities_of_bio_tags() -> None:
    tags = ["B-X", "I-X", "O", "B-Y", "B-Y", "I-Y"]
    assert entities(tags) == {("X", 0, 2), ("Y", 3, 4), ("Y", 4, 6)}
    # An I- that continues nothing begins an entity; a tag without a prefix is one of one word.
    assert entities(["O", "I-X", "I-X", "O"]) == {("X", 1, 3)}
    assert entities(["B-X", "I-Y"]) == {("X", 0, 1), ("Y", 1, 2)}
    assert entities(["NOUN", "O", "VERB"]) == {("NOUN", 0, 1), ("VERB", 2, 3)}


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
        *(
            ("entity_f1", ["O B-X I-X O"], [wrong], 0)  # kind and both ends count
            for wrong in ("O B-Y I-Y O", "O B-X O O", "B-X I-X I-X O", "O B-X I-X I-X", "O O O O")
        ),
        ("word_accuracy", ["O B-X", "O"], ["O O", "O"], 2 / 3),
        ("accuracy", ["a b", "c", "c"], ["a b", "c", "a"], 2 / 3),
        ("macro_f1", ["a", "b"], ["a", "a"], 1 / 3),  # the mean of 2/3 and 0
        ("matthews", [*"aaabb"], [*"aabab"], 1 / 6),  # (2 * 1 - 1 * 1) / sqrt(3 * 3 * 2 * 2)
        ("matthews", [*"ab"], [*"ba"], -1),
        *(("matthews", [*a], [*b], 0) for a, b in (("ab", "aa"), ("aa", "ab"), ("aa", "aa"))),
        ("f1_of_yes", ["no", "yes", "yes"], ["yes", "yes", "no"], 1 / 2),
        ("f1_of_no", ["no", "yes", "yes"], ["yes", "yes", "no"], 0),
        # Counts of BLEU are added: 8 of 10 words, 5 of 8 pairs, 4 of 6 triples, 3 of 4 quadruples.
        (
            "bleu",
            ["one two three four five six", "seven eight nine ten"],
            ["one two three four five six", "seven ate not ten"],
            (8 / 10 * 5 / 8 * 4 / 6 * 3 / 4) ** (1 / 4),
        ),
    ],
)
def test_score_by_hand(metric: str, gold: list[str], predicted: list[str], value: float) -> None:
    assert score(metric, gold, predicted) == pytest.approx(value)


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcde")), min_size=1))
def test_score_of_classes_is_that_of_scikit_learn(pairs: list[tuple[str, str]]) -> None:
    gold, predicted = map(list, zip(*pairs, strict=True))
    of_labels = sorted(set(gold))
    expected = f1_score(gold, predicted, labels=of_labels, average="macro")
    assert score("macro_f1", gold, predicted) == pytest.approx(expected)
    assert score("accuracy", gold, predicted) == pytest.approx(accuracy_score(gold, predicted))
    assert score("matthews", gold, predicted) == pytest.approx(matthews_corrcoef(gold, predicted))
    of_one = f1_score(gold, predicted, labels=["a"], average="micro", zero_division=0.0)
    assert score("f1_of_a", gold, predicted) == pytest.approx(of_one)


@pytest.mark.parametrize(
    ("right", "predicted", "f1", "exact"),
    [
        (["Denver Broncos"], "the denver  broncos!", 1, 1),
        (["Denver Broncos"], "Broncos", 2 / 3, 0),  # precision 1, recall 1/2
        (["Denver Broncos", "Broncos"], "Broncos", 1, 1),  # the most similar right answer
        (["two cats", "one cat and two dogs"], "two dogs", 4 / 7, 0),  # 1/2 and 4/7
        (["a a b b c"], "b b b", 2 * 2 / (3 + 3), 0),  # repeated words count; articles do not
        ([], "", 1, 1),  # no answer, and none predicted
        ([], "the", 1, 1),  # empty after normalisation
        (["the"], "", 1, 1),
        (["the", "308"], "", 0, 0),  # the other answer is not empty
        (["U.S."], "us", 1, 1),
        (["“tea”"], "tea", 0, 0),  # only ASCII punctuation is removed
    ],
)
def test_score_of_a_question_by_hand(right, predicted, f1, exact) -> None:
    assert score("squad_f1", [json.dumps(right)], [predicted]) == pytest.approx(f1)
    assert score("exact_match", [json.dumps(right)], [predicted]) == exact


def test_score_of_bits_is_of_all_texts_together() -> None:
    """The texts have 30 bits, 4 + 16 bytes and 1 + 4 words."""
    gold, predicted = ["4 1", "16 4"], ["20.0", "10.0"]
    assert score("bits_per_byte", gold, predicted) == pytest.approx(1.5)
    assert score("word_perplexity", gold, predicted) == pytest.approx(2**6)
    assert score("word_perplexity", ["600 1"], ["1600.0"]) == math.inf  # a text without blanks


@pytest.mark.parametrize("metric", ["bleu", "chrf", "rouge_l"])
def test_score_of_equal_texts_is_1_and_of_others_0(metric: str) -> None:
    texts = ["The cat sat on the mat.", "There is no place like home!"]
    assert score(metric, texts, texts) == pytest.approx(1)
    assert score(metric, texts, ["", ""]) == 0
    assert 0.2 < score(metric, texts, [texts[0], "xyz"]) < 0.8


def test_rouge_l_by_hand() -> None:
    """Two texts share equally many pairs of words with "police killed the gunman" (Lin 2004,
    section 3.1)."""
    gold = ["police killed the gunman"]
    assert score("rouge_l", gold, ["police kill the gunman"]) == pytest.approx(3 / 4)
    assert score("rouge_l", gold, ["the gunman kill police"]) == pytest.approx(2 / 4)
    # Recall is 4/4 and precision 4/8. ``both`` is the mean of two texts.
    longer = "Police, who were late, killed the gunman there."
    assert score("rouge_l", gold, [longer]) == pytest.approx(2 * 4 / (4 + 8))
    both = score("rouge_l", [*gold, "Größe zählt"], ["police kill the gunman", "größe"])
    assert both == pytest.approx((3 / 4 + 2 / 3) / 2)
