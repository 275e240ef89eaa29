"""Sets of labels as answers: reading, comparing and writing them as text."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.metrics import f1_score
from sklearn.preprocessing import MultiLabelBinarizer

from stages.evaluation.metrics import score
from stages.evaluation.row_scores import row_scores
from stages.kinds._kind import KINDS
from stages.kinds.multi_label import TextWithLabels, written

KIND = KINDS["multi_label"]
SETS = st.sets(st.sampled_from("abcd")).map(sorted)
PAIRS = st.lists(st.tuples(SETS, SETS), min_size=1)
MICRO, MACRO = "micro_f1", "macro_f1_of_labels"


@pytest.mark.slow
# Undefined scores are 0.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
@given(PAIRS)
def test_f1_is_that_of_scikit_learn(pairs: list[tuple[list[str], list[str]]]) -> None:
    gold, predicted = map(list, zip(*pairs, strict=True))
    texts = [*map(written, gold)], [*map(written, predicted)]
    present = sorted({label for row in gold for label in row})
    if not present:
        assert score(MICRO, *texts) == score(MACRO, *texts) == 0
        return
    table = MultiLabelBinarizer(classes=[*"abcd"])
    x, y = table.fit_transform(gold), table.transform(predicted)
    expected = f1_score(x, y, average="micro")
    assert score(MICRO, *texts) == pytest.approx(expected)
    columns = ["abcd".index(label) for label in present]
    by_label = [f1_score(x[:, i], y[:, i]) for i in columns]
    assert score(MACRO, *texts) == pytest.approx(np.mean(by_label))


@pytest.mark.parametrize("metric", [MICRO, MACRO])
@given(PAIRS)
def test_row_scores_of_f1_are_the_jackknife_and_their_mean_the_metric(metric: str, pairs) -> None:
    gold, predicted = ([*map(written, each)] for each in zip(*pairs, strict=True))
    n = len(gold)
    assume(n > 2 and all(any(json.loads(g) for g in gold[:i] + gold[i + 1 :]) for i in range(n)))
    scores = row_scores(metric, gold, predicted).astype(float)
    assert scores.mean() == pytest.approx(score(metric, gold, predicted), abs=1e-6)
    without = [
        score(metric, gold[:i] + gold[i + 1 :], predicted[:i] + predicted[i + 1 :])
        for i in range(n)
    ]
    jackknife = ((n - 1) ** 2 / n * np.var(without)) ** 0.5
    assert scores.std() / n**0.5 == pytest.approx(jackknife, abs=1e-5)


def test_f1_is_0_if_none_is_predicted_and_1_if_all_are_right() -> None:
    gold = [written(labels) for labels in (["a"], ["a", "b"], [])]
    for metric in (MICRO, MACRO):
        assert score(metric, gold, gold) == 1
        assert score(metric, gold, [written([])] * 3) == 0


def test_read_takes_labels_of_a_list_or_between_separators() -> None:
    for cell in (["b", " a "], "b,a", " b , a,a", "b,,a,"):
        assert KIND.read("labels", cell, {}, "a.csv line 2: labels") == ["a", "b"]
    for empty in (None, "", " ", float("nan"), [], ","):
        assert KIND.read("labels", empty, {}, "a.csv line 2: labels") == []
    assert TextWithLabels(label_separator="|").read("labels", "b, c|a", {}, "") == ["a", "b, c"]
    for other in (["a", None], {"a": 2}, 3.5):
        with pytest.raises(ValueError, match=r"^a\.csv line 2: labels"):
            KIND.read("labels", other, {}, "a.csv line 2: labels")
    with pytest.raises(ValueError, match="text"):
        KIND.read("text", "", {}, "a.csv line 2: text")


def test_answer_is_the_same_for_every_order_of_labels() -> None:
    assert KIND.answer({"labels": ["b", "a"]}) == KIND.answer({"labels": ["a", "b"]})
    assert KIND.shown({}, KIND.answer({"labels": ["b", "a"]})) == "a, b"
    assert KIND.shown({}, KIND.answer({"labels": []})) == "none"


def test_as_text_puts_the_words_of_labels_between_commas() -> None:
    labels = ["anger", "great_joy"]
    form = KIND.as_text("moods", {"task": {"name": "multi_label"}, "labels": labels})
    row = {"text": "What a day."}
    assert form.input(row) == "moods text: What a day."
    assert form.answer(row) is None and form.answer(row | {"labels": []}) == "none"
    for chosen in ([], labels[:1], labels):
        text = form.answer(row | {"labels": chosen})
        assert text is not None and form.prediction(row, text) == KIND.answer({"labels": chosen})
    assert form.prediction(row, "great joy , sorrow") == written(["great_joy"])


@pytest.mark.parametrize("label", ["Rome, Italy", "none"])
def test_as_text_needs_other_words_for_a_label_that_reads_back_as_another(label: str) -> None:
    record: dict[str, Any] = {"task": {"name": "multi_label"}, "labels": ["a", label]}
    with pytest.raises(ValueError, match="^verbalisers"):
        KIND.as_text("moods", record)
    record["task"]["verbalisers"] = [f"{label}=other"]
    assert KIND.as_text("moods", record).answer({"text": "A.", "labels": [label]}) == "other"
