"""What the plan says of the last report."""

from pathlib import Path

import pytest

from stages.core import paths
from stages.evaluation.records import write_table
from stages.planning import narrower
from stages.reporting.comparison.verdicts import NOT_SIGNIFICANT, ONE_SEED, SIGNIFICANT

COLUMNS: tuple[str, ...] = (
    "verdict",
    "p_holm",
    "narrower_pretrain",
    "narrower_finetune",
    "narrower_rows",
)


def write_report(contrasts: list[tuple[str, object, object, object, object]]) -> None:
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in contrasts]
    write_table(paths.REPORTS / "contrasts.csv", COLUMNS, rows)
    costs = [  # two runs of two trials each
        {"run": run, "pretrain_wall_time_s": 1500, "wall_time_s": 150}
        for run in ("one", "other")
        for _ in range(2)
    ]
    write_table(paths.REPORTS / "costs.csv", costs[0], costs)
    write_table(paths.REPORTS / "trials.csv", ["study"], [{"study": "mine"}])


def test_costs_and_gains_are_those_of_the_last_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand: 2 x 1,500 s of pretraining and 4 x 150 s of fine-tuning are an hour."""
    monkeypatch.chdir(tmp_path)
    assert narrower.lines("mine") == []
    write_report(
        [
            (NOT_SIGNIFICANT, 0.5, 0.4, 0.1, 0.05),
            (NOT_SIGNIFICANT, 0.5, 0.2, "", 0.15),
            (SIGNIFICANT, 0.01, 0.9, 0.9, 0.9),
            (ONE_SEED, "", "", 0.9, 0.9),
        ]
    )
    (line,) = narrower.lines("mine")
    assert " 2 are not significant" in line
    assert "pretraining seeds by 30% for 60 min (30% per hour)" in line
    assert "fine-tuning seeds by 5% for 10 min (30% per hour)" in line
    assert "test rows by 10%" in line
    assert narrower.lines("another") == []  # whose report is still to come


def test_a_report_in_which_all_is_decided_asks_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_report([(SIGNIFICANT, 0.01, 0.9, 0.9, 0.9), (ONE_SEED, "", "", 0.9, 0.9)])
    assert narrower.lines("mine") == []
