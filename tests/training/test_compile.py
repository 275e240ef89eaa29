"""Training with ``compute.compile``: what is compiled."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.training.trained_by_ranks import cases

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def steps() -> dict[str, dict[str, Any]]:
    command = [sys.executable, "-m", "tests.training.compiled_steps"]
    root = Path(__file__).parents[2]
    return json.loads(subprocess.run(command, cwd=root, check=True, capture_output=True).stdout)


@pytest.mark.parametrize(("name", "architecture"), cases())
def test_compile_covers_a_step_from_the_batch_to_the_loss(
    steps: dict[str, dict[str, Any]], name: str, architecture: str
) -> None:
    """One graph holds all attention, also of a decoder or a teacher, and the loss over the
    vocabulary. A next batch with more documents and places of labels runs the same graph; the
    backbone alone, as for predictions, has a graph of its own."""
    result = steps[f"{name} {architecture}"]
    assert result["difference"] < 1e-5 and result["same weights"]
    if architecture == "bilstm":  # its number of steps differs between batches
        assert result["graphs"] == result["graphs for more"] == 0
        return
    assert (result["graphs"], result["breaks"]) == (1, 0)
    assert result["attentions"] == result["layers"] > 0 and result["losses"] > 0
    assert result["graphs for more"] == 1


@pytest.mark.parametrize("case", ["mlm encoder", "causal decoder", "prefix_lm decoder"])
def test_compile_covers_attention_within_documents(
    steps: dict[str, dict[str, Any]], case: str
) -> None:
    result = steps[f"{case}, as on a GPU"]
    assert (result["graphs"], result["breaks"]) == (1, 0)
    of_layer = 2 if case.startswith("prefix_lm") else 1
    assert result["attentions within documents"] == of_layer * result["layers"]
    assert result["attentions"] == 0 and result["difference"] < 0.05  # in bfloat16
    assert result["graphs for more"] == 1


def test_compile_makes_few_kernels(steps: dict[str, Any]) -> None:
    """A layer adds at most 51 kernels to 19 others: 631 for 12 layers."""
    of_two, of_three = steps["kernels"]
    assert of_three - of_two <= 51
    assert of_two - 2 * (of_three - of_two) <= 19
