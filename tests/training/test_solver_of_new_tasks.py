"""Solved probes of regression, which equal ridge regressions, and of multiple choice."""

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from stages.models._heads import pool
from stages.tasks.multiple_choice import MultipleChoice
from stages.tasks.regression import Regression
from stages.training.loop import mean_loss
from tests.small import small_tokenizer
from tests.training import test_solver
from tests.training.test_solver import CPU, probed, rows, solved


@pytest.mark.parametrize("architecture", ["encoder", "decoder"])
def test_solve_regression_is_a_ridge_regression(
    architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sum of squares plus |w|^2 / (2 C) is minimised: scikit-learn's alpha is 1 / (2 C)."""
    rated = [{**row, "target": 3.0 * len(row["words"]) + i % 3} for i, row in enumerate(rows())]
    monkeypatch.setattr(test_solver, "rows", lambda: rated)
    task = Regression([], small_tokenizer(), 32)
    task.take_facts({"target_mean": 20.0, "target_std": 8.0})
    model, batches = probed(task, architecture)
    assert solved(model, task, batches, 1.0).converged
    states = np.concatenate(
        [
            pool(model.backbone(batch), batch.document_ids, model.head.pooling).detach().numpy()
            for batch in batches[0]
        ]
    )
    values = np.concatenate([batch.values.numpy() for batch in batches[0]])
    states = StandardScaler().fit_transform(states)
    expected = Ridge(alpha=0.5).fit(states, values).predict(states)
    outputs = [task.outputs(model.eval(), batch).detach().numpy() for batch in batches[0]]
    np.testing.assert_allclose(np.concatenate(outputs), expected, atol=2e-3)


def test_solve_choices_puts_the_standardisation_into_its_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def with_choices(i: int, words: list[str]) -> dict[str, Any]:
        choices = [" ".join(words[:3]), " ".join(words[-4:]), "a third"][: 2 + i % 2]
        return {"choices": choices, "label": str(int(len(words) > 6))}

    chosen = [row | with_choices(i, row["words"]) for i, row in enumerate(rows())]
    monkeypatch.setattr(test_solver, "rows", lambda: chosen)
    task = MultipleChoice([], small_tokenizer(), 32)
    model, batches = probed(task, "encoder")
    solution = solved(model, task, batches, 1.0)
    assert solution.converged
    assert mean_loss(model, task, batches[0], CPU) == pytest.approx(solution.train_loss, abs=1e-4)
