import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stages import report
from stages.core.artifacts import read_json
from stages.evaluation.records import ScoredTrial, SkippedMethod, read, write
from tests.small_study import run_stage
from tests.synthetic_study import RUNS, raw_params, write_study

pytestmark = pytest.mark.slow

SOME = {name: RUNS[name] for name in ("encoder_mlm", "encoder_scratch")}
WITHOUT_MLFLOW = """
from stages import report
from stages.core.plans import ReportPlan, read_plan

report.reconcile = lambda params, **_: True
report.main(read_plan(ReportPlan, "report"))
"""


def on_one_task() -> dict[str, Any]:
    raw = raw_params()
    return raw | {"tasks": {"type": raw["tasks"]["type"]}}


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a study with its report, without MLflow."""
    root = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setattr("stages.report.reconcile", lambda params, **_: True)
        (root / "params.yaml").write_text(json.dumps(on_one_task()))
        run_stage(write_study(root, on_one_task()), report)
        yield root / "reports"


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The params of a small study, in a folder of its own, whose report leaves MLflow out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stages.report.reconcile", lambda params, **_: True)
    return raw_params(SOME)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_trials_csv_has_a_row_for_each_trial(reported: Path) -> None:
    trials = rows(reported / "trials.csv")
    assert len(trials) == 7 * 2 * 5 + 2 * 5  # a baseline for each draw of labelled rows
    assert {row["study"] for row in trials} == {"synthetic"}


def test_scores_csv_has_the_mean_of_the_trials(reported: Path) -> None:
    trials = rows(reported / "trials.csv")
    for row in rows(reported / "scores.csv"):
        own = [t for t in trials if all(t[k] == row[k] for k in ("model", "method", "task"))]
        mean = sum(float(trial["value"]) for trial in own) / len(own)
        assert float(row["mean"]) == pytest.approx(mean, abs=1e-6)


def test_effects_csv_is_the_mean_over_its_pairs(reported: Path) -> None:
    """A main effect is b less a, as the contrasts of its axis and levels are."""
    contrasts = rows(reported / "contrasts.csv")
    effects = [row for row in rows(reported / "effects.csv") if not row["second_axis"]]
    assert {row["axis"] for row in effects} >= {"pretrained", "architecture", "size", "method"}
    for effect in effects:
        same = ("axis", "level_a", "level_b")
        own = [float(c["effect"]) for c in contrasts if all(c[k] == effect[k] for k in same)]
        assert float(effect["effect"]) == pytest.approx(sum(own) / len(own), abs=1e-5)


def test_every_table_and_figure_has_all_of_its_files(reported: Path) -> None:
    for folder, ends in (("tables", {".csv", ".tex"}), ("figures/more", FIGURE)):
        endings: dict[str, set[str]] = {}
        for path in (reported / folder).iterdir():
            endings.setdefault(path.stem, set()).add(path.suffix)
        assert {"scores", "effects", "contrasts"} <= endings.keys() or "comparison" in endings
        assert all(of == ends for of in endings.values()), endings


FIGURE = {".svg", ".png", ".pdf", ".csv"}


def test_summary_json_is_flat_and_agrees_with_the_tables(reported: Path) -> None:
    summary = read_json(reported / "summary.json")
    (answer,) = rows(reported / "answer.csv")
    assert summary["type.score"] == pytest.approx(float(answer["mean"]), abs=1e-4)
    assert summary["type.lead"] == pytest.approx(float(answer["lead"]), abs=1e-4)
    assert summary["minutes"] > 0
    assert all(isinstance(value, float) for value in summary.values())


def test_reports_have_no_nan(reported: Path) -> None:
    for name, content in contents(reported).items():
        if not name.endswith((".png", ".pdf")):
            assert not re.search(rb"\bnan\b|\binf\b|NaN|undefined|None", content), name


def test_report_has_the_same_bytes_in_another_process(reported: Path, tmp_path: Path) -> None:
    """The other process has another hash seed, so that no set decides an order."""
    write_study(tmp_path, on_one_task())
    (tmp_path / "params.yaml").write_text(json.dumps(on_one_task()))
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    command = [sys.executable, "-c", WITHOUT_MLFLOW]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert contents(tmp_path / "reports") == contents(reported)


def test_report_shows_times_only_where_costs_are(small: dict[str, Any], tmp_path: Path) -> None:
    params = write_study(tmp_path, small)
    run_stage(params, report)
    before = contents(Path("reports"))
    timing = Path("data/timings/finetune/tag/encoder_mlm.csv")
    timing.write_text(timing.read_text().replace(",2.5,", ",7.5,"))
    run_stage(params, report)
    after = contents(Path("reports"))
    changed = {name for name in after if after[name] != before.get(name)}
    cost = {f"figures/measured/cost{end}" for end in FIGURE}
    assert "costs.csv" in changed
    assert changed <= {"costs.csv", "index.html", "answer.txt", "summary.json"} | cost


def leave_out(model: str, seed: int) -> None:
    """Removes the evaluated trials of one model (none: "") and of one seed (none: 0)."""
    path = Path("data/evaluated/tag/trials.csv")
    trials = read(path, ScoredTrial)
    write(path, ScoredTrial, [t for t in trials if t.model != model and t.finetune_seed != seed])


def test_report_names_trials_that_are_missing(small: dict[str, Any], tmp_path: Path) -> None:
    params = write_study(tmp_path, small)
    leave_out("encoder_scratch", 0)
    with pytest.raises(ValueError, match=r"tag/trials\.csv: no trial of encoder_scratch on tag"):
        run_stage(params, report)


def test_report_of_a_single_seed_has_effects_without_intervals(
    small: dict[str, Any], tmp_path: Path
) -> None:
    small["finetune"]["seeds"] = [1]
    run_stage(write_study(tmp_path, small), report)
    effects = rows(Path("reports/effects.csv"))
    assert effects
    for row in effects:
        assert (row["low"], row["high"], row["p_holm"]) == ("", "", "")
        assert float(row["effect"]) != 0
    assert "no effect has an interval" in Path("reports/comparison.md").read_text()


def test_report_leaves_a_gap_for_a_method_that_does_not_fit_a_model(
    small: dict[str, Any], tmp_path: Path
) -> None:
    """Tables, pictures and effects have all other trials."""
    small["tasks"] = {"tag": small["tasks"]["tag"]}
    params = write_study(tmp_path, small, incompatible=[("encoder_scratch", "linear_probe")])
    run_stage(params, report)
    pairs = {(row["model"], row["method"]) for row in rows(Path("reports/trials.csv"))}
    assert ("encoder_scratch", "full") in pairs and ("encoder_scratch", "linear_probe") not in pairs
    by_method = [r for r in rows(Path("reports/contrasts.csv")) if r["axis"] == "method"]
    assert {row["model_a"] for row in by_method} == {"encoder_mlm"}
    test_reports_have_no_nan(Path("reports"))
    write(Path("data/evaluated/tag/skipped.csv"), SkippedMethod, [])  # nothing explains the gap
    with pytest.raises(ValueError, match=r"no trial of encoder_scratch on tag, linear_probe"):
        run_stage(params, report)
