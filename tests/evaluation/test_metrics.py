import gzip
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from stages.evaluation.metrics import METRICS, SCALES, entities, merit, score
from stages.kinds._kind import KINDS
from tests.published import DATASETS, needs_datasets


def test_entities_of_bio_tags() -> None:
    tags = ["B-X", "I-X", "O", "B-Y", "B-Y", "I-Y"]
    assert entities(tags) == {("X", 0, 2), ("Y", 3, 4), ("Y", 4, 6)}


def test_a_continuation_of_nothing_begins_an_entity() -> None:
    assert entities(["O", "I-X", "I-X", "O"]) == {("X", 1, 3)}
    assert entities(["B-X", "I-Y"]) == {("X", 0, 1), ("Y", 1, 2)}
    assert entities(["I-X", "B-X", "I-X"]) == {("X", 0, 1), ("X", 1, 3)}
    assert entities(["O", "O"]) == entities([]) == set()
    assert entities(["NOUN", "O", "VERB"]) == {("NOUN", 0, 1), ("VERB", 2, 3)}
    assert score("entity_f1", ["NOUN VERB"], ["VERB NOUN"]) == 0


def test_entity_f1_by_hand() -> None:
    """3 of 4 predicted and of 5 expected entities are right: precision 3/4, recall 3/5, F1 =
    6/9."""
    gold = ["B-X I-X O B-Y", "B-X O B-X O", "O O O B-Y"]
    predicted = ["B-X I-X O B-Y", "B-X I-X O O", "O O O I-Y"]
    assert score("entity_f1", gold, predicted) == pytest.approx(6 / 9)


def test_entity_f1_needs_kind_and_both_ends() -> None:
    gold = ["O B-X I-X O"]
    for wrong in ("O B-Y I-Y O", "O B-X O O", "B-X I-X I-X O", "O B-X I-X I-X", "O O O O"):
        assert score("entity_f1", gold, [wrong]) == 0
    assert score("entity_f1", gold, gold) == 1


def test_entity_f1_is_of_the_whole_test_set_and_no_mean_of_rows() -> None:
    gold, predicted = ["B-X", "B-X B-X B-X"], ["O", "B-X B-X B-X"]
    assert score("entity_f1", gold, predicted) == pytest.approx(2 * 3 / (4 + 3))


def test_macro_f1_by_hand() -> None:
    """Label a has precision 1/2 and recall 1, b is never predicted: the mean of 2/3 and 0."""
    assert score("macro_f1", ["a", "b"], ["a", "a"]) == pytest.approx(1 / 3)


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcde")), min_size=1))
def test_macro_f1_and_accuracy_are_those_of_scikit_learn(pairs: list[tuple[str, str]]) -> None:
    gold, predicted = map(list, zip(*pairs, strict=True))
    of_labels = sorted(set(gold))
    expected = f1_score(gold, predicted, labels=of_labels, average="macro")
    assert score("macro_f1", gold, predicted) == pytest.approx(expected)
    assert score("accuracy", gold, predicted) == pytest.approx(accuracy_score(gold, predicted))
    assert score("matthews", gold, predicted) == pytest.approx(matthews_corrcoef(gold, predicted))
    of_one = f1_score(gold, predicted, labels=["a"], average="micro", zero_division=0.0)
    assert score("f1_of_a", gold, predicted) == pytest.approx(of_one)


def test_matthews_by_hand_and_of_constants() -> None:
    """Right are 2 of 3 and 1 of 2: (2 * 1 - 1 * 1) / sqrt(3 * 3 * 2 * 2)."""
    assert score("matthews", [*"aaabb"], [*"aabab"]) == pytest.approx(1 / 6)
    assert score("matthews", [*"ab"], [*"ba"]) == -1
    for gold, predicted in (("ab", "aa"), ("aa", "ab"), ("aa", "aa"), ("aa", "bb")):
        assert score("matthews", [*gold], [*predicted]) == 0


def test_f1_of_a_label_is_binary_f1_with_that_label_as_the_positive_one() -> None:
    gold, predicted = ["no", "yes", "yes", "no"], ["yes", "yes", "no", "no"]
    for label in ("yes", "no"):
        expected = f1_score(gold, predicted, pos_label=label)
        assert score(f"f1_of_{label}", gold, predicted) == pytest.approx(expected)
    assert score("f1_of_yes", gold, ["no"] * 4) == 0
    with pytest.raises(KeyError):
        score("f1", gold, predicted)


def test_accuracy_of_labels_and_of_words() -> None:
    assert score("accuracy", ["a b", "c", "c"], ["a b", "c", "a"]) == pytest.approx(2 / 3)
    assert score("word_accuracy", ["O B-X", "O"], ["O O", "O"]) == pytest.approx(2 / 3)


@pytest.mark.parametrize("metric", ["entity_f1", "word_accuracy"])
def test_a_prediction_of_another_length_cannot_happen(metric: str) -> None:
    with pytest.raises(AssertionError):
        score(metric, ["O O"], ["O"])
    with pytest.raises(AssertionError):
        score(metric, ["O", "O"], ["O"])


@pytest.mark.parametrize(
    ("right", "predicted", "f1", "exact"),
    [
        (["Denver Broncos"], "the denver  broncos!", 1, 1),
        (["Denver Broncos"], "Broncos", 2 / 3, 0),  # precision 1, recall 1/2
        (["Denver Broncos", "Broncos"], "Broncos", 1, 1),  # the most similar right answer
        (["two cats", "one cat and two dogs"], "two dogs", 4 / 7, 0),  # 1/2 and 4/7
        (["a a b b c"], "b b b", 2 * 2 / (3 + 3), 0),  # repeated words count; articles do not
        (["308"], "", 0, 0),
        ([], "", 1, 1),  # no answer, and none predicted
        ([], "308", 0, 0),
        ([], "the", 1, 1),  # empty after normalisation
        (["the"], "", 1, 1),
        (["the", "308"], "", 0, 0),  # the other answer is not empty
        (["U.S."], "us", 1, 1),
        (["well-known"], "well known", 0, 0),
        (["“tea”"], "tea", 0, 0),  # only ASCII punctuation is removed
    ],
)
def test_scores_of_a_question_by_hand(right, predicted, f1, exact) -> None:
    assert score("squad_f1", [json.dumps(right)], [predicted]) == pytest.approx(f1)
    assert score("exact_match", [json.dumps(right)], [predicted]) == exact


def test_scores_of_questions_are_means_over_them() -> None:
    gold, predicted = ['["one two"]', '["three"]', "[]"], ["one", "three", "four"]
    assert score("squad_f1", gold, predicted) == pytest.approx((2 / 3 + 1) / 3)
    assert score("exact_match", gold, predicted) == pytest.approx(1 / 3)


@pytest.mark.parametrize("row", [{"answers": []}, {"answers": [{"text": "é", "answer_start": 3}]}])
def test_a_right_answer_scores_as_such(row) -> None:
    texts = [one["text"] for one in row["answers"]] or [""]
    for metric in ("squad_f1", "exact_match"):
        assert score(metric, [KINDS["span_qa"].answer(row)], texts) == 1


def test_bits_are_of_all_texts_together_and_no_mean_of_rows() -> None:
    """The texts have 30 bits, 4 + 16 bytes and 1 + 4 words."""
    gold, predicted = ["4 1", "16 4"], ["20.0", "10.0"]
    assert score("bits_per_byte", gold, predicted) == pytest.approx(1.5)
    assert score("word_perplexity", gold, predicted) == pytest.approx(2**6)
    assert score("word_perplexity", ["600 1"], ["1600.0"]) == math.inf  # a text without blanks


def test_of_two_scores_the_better_has_the_larger_merit() -> None:
    assert merit("accuracy", 0.9) > merit("accuracy", 0.8)
    assert merit("bits_per_byte", 0.8) > merit("bits_per_byte", 0.9)
    assert set(SCALES) <= set(METRICS)


# Of text

MULTI30K = DATASETS / "multi30k"
TEXTS = ["The cat sat on the mat.", "There is no place like home!"]


@pytest.mark.parametrize("metric", ["bleu", "chrf", "rouge_l"])
def test_texts_as_they_should_be_score_1_and_others_0(metric) -> None:
    assert score(metric, TEXTS, TEXTS) == pytest.approx(1)
    assert score(metric, TEXTS, ["", ""]) == 0
    assert score(metric, TEXTS, ["xyz qqq zzz", "vvv wwww jjj"]) < 0.05
    half = score(metric, TEXTS, [TEXTS[0], "xyz"])
    assert 0.2 < half < 0.8


def test_bleu_by_hand() -> None:
    """Right are 5 of 6 words, 4 of 5 pairs, 3 of 4 triples and 2 of 3 quadruples; the lengths are
    equal."""
    gold, predicted = ["one two three four five six"], ["one two three four five seven"]
    expected = (5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** (1 / 4)
    assert score("bleu", gold, predicted) == pytest.approx(expected)


def test_bleu_is_of_the_whole_test_set_and_no_mean_of_rows() -> None:
    """Counts are added: 8 of 10 words, 5 of 8 pairs, 4 of 6 triples, 3 of 4 quadruples."""
    gold = ["one two three four five six", "seven eight nine ten"]
    predicted = ["one two three four five six", "seven ate not ten"]
    expected = (8 / 10 * 5 / 8 * 4 / 6 * 3 / 4) ** (1 / 4)
    assert score("bleu", gold, predicted) == pytest.approx(expected)


def test_rouge_l_by_hand() -> None:
    """Lin 2004, section 3.1: "police killed the gunman" against two texts with the same pairs of
    words."""
    gold = ["police killed the gunman"]
    assert score("rouge_l", gold, ["police kill the gunman"]) == pytest.approx(3 / 4)
    assert score("rouge_l", gold, ["the gunman kill police"]) == pytest.approx(2 / 4)
    # Recall is 4/4 and precision 4/8. ``both`` is the mean of two texts.
    longer = "Police, who were late, killed the gunman there."
    assert score("rouge_l", gold, [longer]) == pytest.approx(2 * 4 / (4 + 8))
    both = score("rouge_l", [*gold, "Größe zählt"], ["police kill the gunman", "größe"])
    assert both == pytest.approx((3 / 4 + 2 / 3) / 2)


@given(st.lists(st.sampled_from("abc"), max_size=8), st.lists(st.sampled_from("abc"), max_size=8))
def test_rouge_l_is_symmetric_and_of_a_subsequence(one, other) -> None:
    gold, predicted = [" ".join(one)], [" ".join(other)]
    value = score("rouge_l", gold, predicted)
    assert value == score("rouge_l", predicted, gold)
    common = value * (len(one) + len(other)) / 2
    assert common == pytest.approx(round(common))
    assert common <= sum(min(one.count(x), other.count(x)) for x in "abc") + 1e-9
    if one and one == other[: len(one)]:
        assert common == pytest.approx(len(one))


@pytest.mark.slow
@needs_datasets
def test_translations_of_multi30k() -> None:
    """Scores German texts against themselves, against the next text, and against English, which
    shares names."""
    packed = ((MULTI30K / f"test_2016_flickr.{name}.gz").read_bytes() for name in ("de", "en"))
    german, english = (gzip.decompress(text).decode().splitlines() for text in packed)
    assert len(german) == len(english) == 1000
    for metric in ("bleu", "chrf", "rouge_l"):
        assert score(metric, german, german) == pytest.approx(1)
        assert score(metric, german, english) < score(metric, german, german[1:] + german[:1]) < 0.3
