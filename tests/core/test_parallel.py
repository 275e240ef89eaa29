"""Groups keep the order of their items, and the GPUs are those that this process may use."""

from pathlib import Path

import pytest

from stages.core.parallel import grouped, visible_gpus


def test_grouped_ends_a_group_at_its_least_size() -> None:
    items = ["abc", "defgh", "ij", "klmnopqrstuvw", "x"]
    assert list(grouped(items, len, 10)) == [items[:3], items[3:4], items[4:]]
    assert list(grouped([], len, 10)) == []


@pytest.mark.parametrize(
    ("environment", "listed", "expected"),
    [
        ({"CUDA_VISIBLE_DEVICES": "3,5"}, None, ["3", "5"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, None, []),
        ({}, "GPU 0: A (UUID: x)\nGPU 1: B (UUID: y)", ["0", "1"]),
        ({}, None, []),
    ],
)
def test_visible_gpus(
    environment, listed, expected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if listed:
        command = tmp_path / "nvidia-smi"
        command.write_text(f"#!/bin/sh\n/bin/echo '{listed}'\n")
        command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert visible_gpus() == expected
