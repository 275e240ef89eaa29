"""Multi-label classification: each label independently."""

from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from stages.kinds.multi_label import written
from stages.methods._method import METHODS
from stages.tasks._pooled import Reading
from stages.tasks.multi_label import MultiLabel
from stages.training.device import Device
from stages.training.solver import solve
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


def test_encode_leaves_out_labels_that_train_does_not_have() -> None:
    rows = [ROWS[0] | {"labels": ["class", "unseen"]}, ROWS[3]]
    assert [e.labels.tolist() for e in task().encode(rows)] == [[0, 1, 0], [0, 0, 0]]


@torch.no_grad()
def test_predict_gives_the_labels_above_the_threshold() -> None:
    of = task()
    model, examples = with_head(of, small_model("encoder")), of.encode(ROWS)
    batch = of.collate(examples, rngs=[])
    for prediction, scores, *_ in of.predict_scored(model, batch, examples):
        assert scores
        assert prediction == written([label for label, share in scores.items() if share > 0.5])
    for threshold, expected in ((1e-9, written(LABELS)), (1 - 1e-9, written([]))):
        of.threshold = threshold
        assert {*of.predict(model, batch, examples)} == {expected}
    assert of.kind.predicted_columns({"id": "1"}, written(["b", "a"])) == {"labels": ["a", "b"]}


def test_solve_fits_one_logistic_regression_for_each_label() -> None:
    """The probabilities equal those of scikit-learn on the same states, label by label."""
    of, device = task(dropout=0.0), Device("cpu", "float32", compile=False, threads=1)
    model = with_head(of, small_model("encoder"))
    METHODS.build({"name": "linear_probe", "C": [1.0]}, where="").apply(
        model, generator=torch.Generator().manual_seed(1)
    )
    examples = of.encode(ROWS)
    batch = of.collate(examples, rngs=[])
    solve(model, of, [batch], [batch], inverse_strengths=[1.0], merit=lambda: 0.0, device=device)
    with torch.no_grad():
        states = model.backbone(batch)
        predictions = of.predict_scored(model, batch, examples)
    mask = (batch.document_ids > 0)[..., None]
    pooled = ((states * mask).sum(1) / mask.sum(1)).double().numpy()
    pooled = (pooled - pooled.mean(0)) / pooled.std(0)
    for label in LABELS:
        has = np.array([label in row["labels"] for row in ROWS])
        solved = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(pooled, has)
        shares = [each.scores[label] for each in predictions if each.scores]
        np.testing.assert_allclose(shares, solved.predict_proba(pooled)[:, 1], atol=2e-3)
