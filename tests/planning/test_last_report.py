"""The lines of a plan about the last report."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from stages.core import paths
from stages.evaluation.records import write_table
from stages.planning.last_report import narrower_intervals, reported_study

COLUMNS: tuple[str, ...] = (
    "resolved",
    "p_holm",
    "narrower_pretrain",
    "narrower_finetune",
    "narrower_rows",
)
DECIDED = [("yes", 0.01, 0.9, 0.9, 0.9), ("no", "", "", 0.9, 0.9)]


def write_report(contrasts: Sequence[tuple[object, ...]]) -> None:
    """Writes the report of the study ``mine``: one run with two seeds, each with two trials."""
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in contrasts]
    write_table(paths.REPORTS / "contrasts.csv", COLUMNS, rows)
    costs = [
        {"run": "one", "pretrain_seed": seed, "pretrain_wall_time_s": 1500, "wall_time_s": 150}
        for seed in (1, 2)
        for _ in range(2)
    ]
    write_table(paths.REPORTS / "costs.csv", costs[0], costs)
    write_table(paths.REPORTS / "trials.csv", ["study"], [{"study": "mine"}])


def test_narrower_intervals_have_the_costs_and_gains_of_the_last_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calculated by hand: 2 x 1,500 s of pretraining and 4 x 150 s of fine-tuning are an hour."""
    monkeypatch.chdir(tmp_path)
    assert narrower_intervals("mine") == []
    write_report([("no", 0.5, 0.4, 0.1, 0.05), ("no", 0.5, 0.2, "", 0.15), *DECIDED])
    assert reported_study() == "mine"
    (line,) = narrower_intervals("mine")
    assert "2 contrasts with a verdict are not significant" in line
    assert "pretraining seeds by 30%, for 60 min;" in line
    assert "fine-tuning seeds by 5%, for 10 min;" in line and "e+" not in line
    assert "test rows by 10%" in line
    assert narrower_intervals("another") == []  # whose report is still to come
    write_report(DECIDED)
    assert narrower_intervals("mine") == []
