"""Multi-label classification: each label independently."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.metrics import f1_score
from sklearn.preprocessing import MultiLabelBinarizer

from stages.evaluation.metrics import score
from stages.evaluation.row_scores import row_scores
from stages.tasks._labels import written_labels
from stages.tasks._pooled import Reading
from stages.tasks.multi_label import MultiLabel
from tests.small import small_model, small_tokenizer, with_head

LABELS = ["call", "class", "other"]
ROWS = [
    {"id": str(i), "text": text, "labels": labels}
    for i, (text, labels) in enumerate(
        [
            ("a call of the function", ["call"]),
            ("the class", ["class"]),
            ("a call of a class", ["call", "class"]),
            ("the statement ends", []),
            ("classes have methods", ["class", "other"]),
        ]
    )
]


def task(**settings: Any) -> MultiLabel:
    return MultiLabel(LABELS, small_tokenizer(), 16, Reading(**settings))


def test_loss_is_that_of_transformers() -> None:
    """BCEWithLogitsLoss over all texts and labels, as for ``multi_label_classification``."""
    of = task()
    model = with_head(of, small_model("encoder"))
    batch = of.collate(of.encode(ROWS), rngs=[])
    ((weight, loss),) = of.loss(model, batch).values()
    with torch.no_grad():
        logits = model.head(model.backbone(batch), batch.document_ids)
    targets = torch.tensor([[float(label in row["labels"]) for label in LABELS] for row in ROWS])
    expected = torch.nn.BCEWithLogitsLoss()(logits, targets)
    assert weight == 1.0 and batch.num_targets == {"multi_label": len(ROWS) * len(LABELS)}
    torch.testing.assert_close(loss / batch.num_targets["multi_label"], expected)


@torch.no_grad()
def test_predict_gives_the_labels_above_the_threshold() -> None:
    of = task()
    model, examples = with_head(of, small_model("encoder")), of.encode(ROWS)
    batch = of.collate(examples, rngs=[])
    for of.threshold in (1e-9, 0.5, 1 - 1e-9):
        for prediction, scores, *_ in of.predict(model, batch, examples):
            above = [label for label, share in scores.items() if share > of.threshold]
            assert prediction == written_labels(above)
            assert of.predicted_columns({"id": "1"}, prediction) == {"labels": sorted(above)}
            assert of.threshold == 0.5 or len(above) == (len(LABELS) if of.threshold < 0.5 else 0)


# Rows -------------------------------------------------------------------------------------------

SETS = st.sets(st.sampled_from("abcd")).map(sorted)
SETS_OF_ROWS = st.lists(st.tuples(SETS, SETS), min_size=1)
MICRO, MACRO = "micro_f1", "macro_f1_of_labels"


@pytest.mark.slow
# Undefined scores are 0.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
@given(SETS_OF_ROWS)
def test_f1_is_that_of_scikit_learn(pairs: list[tuple[list[str], list[str]]]) -> None:
    gold, predicted = map(list, zip(*pairs, strict=True))
    texts = [*map(written_labels, gold)], [*map(written_labels, predicted)]
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
@given(SETS_OF_ROWS)
def test_row_scores_of_f1_are_the_jackknife_and_their_mean_the_metric(metric: str, pairs) -> None:
    gold, predicted = ([*map(written_labels, each)] for each in zip(*pairs, strict=True))
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
