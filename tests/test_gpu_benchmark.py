"""The benchmark of one GPU, on a CPU in tiny sizes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_gpu_benchmark_runs_all_parts_dry(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    command = [sys.executable, ROOT / "benchmarks" / "gpu.py", "--dry-run", "--json", file]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True)
    results = json.loads(file.read_text())
    training, fine_tuning = results["checks"]["training"], results["checks"]["fine_tuning"]
    assert training["right"] and training["resumed and repeated with equal bits"]
    assert fine_tuning["right"] and fine_tuning["fine-tunings"] > 5
    ours, plain, trainer = results["sides"]
    assert ours["tokens_per_s"] > 0 and ours["tflops"] > 0 and plain["tokens_per_s"] > 0
    assert "tokens_per_s" in trainer or trainer["left out"] == "accelerate is not installed"
    assert len(results["2 at once"]) == 2 and all(each["steps"] for each in results["2 at once"])
