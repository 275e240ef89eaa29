"""Multi-label classification: each label independently."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from stages.kinds._kind import KINDS
from stages.kinds.multi_label import written
from stages.methods._method import METHODS
from stages.models._heads import ModelWithHead, initialise_head
from stages.tasks._task import TASKS
from stages.tasks.multi_label import MultiLabel
from stages.training.device import Device
from stages.training.solver import solve
from tests.small import ARCHITECTURES, small_model, small_tokenizer, without_output_layers

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
    return MultiLabel(LABELS, small_tokenizer(), 16, **settings)


def adapted(architecture: str, of: MultiLabel) -> ModelWithHead:
    backbone = without_output_layers(small_model(architecture))
    head = of.head(backbone)
    initialise_head(head, generator=torch.Generator().manual_seed(1))
    return ModelWithHead(backbone, head).eval()


def test_the_loss_is_that_of_transformers() -> None:
    """BCEWithLogitsLoss over all texts and labels, as for ``multi_label_classification``."""
    of = task()
    model = adapted("encoder", of)
    batch = of.collate(of.encode(ROWS), rngs=[])
    ((weight, loss),) = of.loss(model, batch).values()
    with torch.no_grad():
        logits = model.head(model.backbone(batch), batch.document_ids)
    targets = torch.tensor([[float(label in row["labels"]) for label in LABELS] for row in ROWS])
    expected = torch.nn.BCEWithLogitsLoss()(logits, targets)
    assert weight == 1.0 and batch.num_targets == {"multi_label": len(ROWS) * len(LABELS)}
    torch.testing.assert_close(loss / batch.num_targets["multi_label"], expected)


def test_a_row_without_labels_is_none_of_them_and_an_unlabelled_row_counts_in_no_loss() -> None:
    of = task()
    model = adapted("encoder", of)
    unlabelled = [{key: row[key] for key in ("id", "text")} for row in ROWS[:2]]
    batch = of.collate(of.encode([*ROWS[2:], *unlabelled]), rngs=[])
    assert batch.num_targets == {"multi_label": 3 * len(LABELS)}
    alone = of.loss(model, of.collate(of.encode(ROWS[2:]), rngs=[]))["multi_label"][1]
    torch.testing.assert_close(of.loss(model, batch)["multi_label"][1], alone)
    assert batch.labels is not None and batch.labels[1].tolist() == [0, 0, 0]


def test_a_label_that_train_does_not_have_is_predicted_never() -> None:
    of = task()
    (example,) = of.encode([ROWS[0] | {"labels": ["class", "unseen"]}])
    assert example.labels.tolist() == [0, 1, 0]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_predicted_are_the_labels_above_the_threshold_whatever_the_batch(architecture) -> None:
    of = task()
    model, examples = adapted(architecture, of), of.encode(ROWS)
    with torch.no_grad():
        together = of.predict_scored(model, of.collate(examples, rngs=[]), examples)
        alone = [of.predict_scored(model, of.collate([e], rngs=[]), [e])[0] for e in examples]
    for a, b in zip(together, alone, strict=True):
        assert a.scores and b.scores and a.scores == pytest.approx(b.scores, rel=1e-4)
        assert a.prediction == written([k for k, share in a.scores.items() if share > 0.5])
    for threshold, expected in ((1e-9, written(LABELS)), (1 - 1e-9, written([]))):
        of.threshold = threshold
        with torch.no_grad():
            predictions = of.predict(model, of.collate(examples, rngs=[]), examples)
        assert {*predictions} == {expected}


def test_a_solved_probe_is_one_logistic_regression_for_each_label() -> None:
    """The probabilities equal those of scikit-learn on the same states, label by label."""
    of, device = task(dropout=0.0), Device("cpu", "float32", compile=False, threads=1)
    model = adapted("encoder", of)
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


def test_settings_that_make_no_sense_are_refused() -> None:
    entry = {"name": "multi_label", "threshold": 1.5}
    with pytest.raises(ValueError, match="threshold"):
        TASKS.find("multi_label", where="").check(64, **TASKS.settings(entry, where="task"))


def test_a_prediction_is_shown_as_a_list() -> None:
    row = {"id": "1", "text": "the class"}
    assert task().columns(row, written(["b", "a"])) == {"labels": ["a", "b"]}
    assert KINDS["multi_label"].labels_of(ROWS[2]) == ["call", "class"]
