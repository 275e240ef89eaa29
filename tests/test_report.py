"""The stage that reports: its files agree with one another, and are the same in every process."""

import csv
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stages import report
from stages.core.artifacts import read_json
from stages.core.plans import ReportPlan
from stages.evaluation.records import SkippedMethod, write
from stages.findings.results import Results, load
from tests.small_study import files_of
from tests.smoke import plans, write_plans
from tests.synthetic_study import RUNS, drawn, raw_params, saved

pytestmark = pytest.mark.slow

SOME = {name: RUNS[name] for name in ("encoder_mlm", "encoder_scratch")}
FIGURE = {".svg", ".png", ".pdf", ".csv"}
WITHOUT_MLFLOW = """
from stages import report
from stages.core.plans import ReportPlan, read_plan

report.reconcile = lambda params, **_: True
report.main(read_plan(ReportPlan, "report"))
"""


@pytest.fixture(scope="module")
def on_one_task() -> Results:
    raw = raw_params()
    return drawn(raw | {"tasks": {"type": raw["tasks"]["type"]}})


@pytest.fixture(scope="module")
def reported(on_one_task: Results, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a study's report."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("study"))
        plan = plans(saved(on_one_task).params)["report",]
        assert isinstance(plan, ReportPlan)
        report.write(load(plan.params))  # whose budgets are matched
        yield Path("reports").resolve()


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    """The results of a small study; the current folder is empty."""
    monkeypatch.chdir(tmp_path)
    raw = raw_params(SOME, seeds=[1, 2])
    raw["models"]["encoder_mlm"] |= {"label": "An encoder"}
    return drawn(raw | {"tasks": {"tag": raw["tasks"]["tag"]}})


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def check_no_nan(folder: Path) -> None:
    for name, content in files_of(folder).items():
        if not name.endswith((".png", ".pdf")):
            assert not re.search(rb"\bnan\b|\binf\b|NaN|undefined|None", content), name


def test_report_files_agree_with_one_another(reported: Path) -> None:
    """Scores are means of trials, effects means of contrasts: b less a, as the contrasts of an axis
    and its levels are. The summary has the numbers of the tables."""
    trials, contrasts = rows(reported / "trials.csv"), rows(reported / "contrasts.csv")
    assert len(trials) == 7 * 2 * 5 + 2 * 5  # a baseline for each draw of labelled rows
    for row in rows(reported / "scores.csv"):
        own = [t for t in trials if all(t[k] == row[k] for k in ("model", "method", "task"))]
        mean = sum(float(trial["value"]) for trial in own) / len(own)
        assert float(row["mean"]) == pytest.approx(mean, abs=1e-6)
    effects = [row for row in rows(reported / "effects.csv") if not row["second_axis"]]
    assert {row["axis"] for row in effects} >= {"pretrained", "architecture", "size", "method"}
    for effect in effects:
        same = ("axis", "level_a", "level_b")
        own = [float(c["effect"]) for c in contrasts if all(c[k] == effect[k] for k in same)]
        assert float(effect["effect"]) == pytest.approx(sum(own) / len(own), abs=1e-5)
    summary = read_json(reported / "summary.json")
    (answer,) = rows(reported / "answer.csv")
    assert summary["type.score"] == pytest.approx(float(answer["mean"]), abs=1e-4)
    assert summary["type.lead"] == pytest.approx(float(answer["lead"]), abs=1e-4)
    assert summary["minutes"] > 0 and all(isinstance(value, float) for value in summary.values())


def test_report_has_all_files_without_nan_and_the_same_bytes_in_another_process(
    reported: Path, on_one_task: Results, tmp_path: Path
) -> None:
    """The other process has another hash seed, so that no set decides an order."""
    for folder, ends in (("tables", {".csv", ".tex"}), ("figures/more", FIGURE)):
        endings: dict[str, set[str]] = {}
        for path in (reported / folder).iterdir():
            endings.setdefault(path.stem, set()).add(path.suffix)
        assert {"scores", "effects", "contrasts"} <= endings.keys() or "comparison" in endings
        assert all(of == ends for of in endings.values()), endings
    check_no_nan(reported)
    write_plans(saved(on_one_task, tmp_path).params, tmp_path)
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    command = [sys.executable, "-c", WITHOUT_MLFLOW]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert files_of(tmp_path / "reports") == files_of(reported)


def test_report_shows_labels_and_times_only_where_costs_are(small: Results) -> None:
    read = load(saved(small).params)
    for name in ("trials", "tasks", "curves", "progress", "finetuning_costs", "coverage"):
        assert getattr(read, name) == getattr(small, name), name
    assert read.effects == small.effects and read.audit == small.audit
    report.write(small)
    assert "An encoder" in Path("reports/comparison.md").read_text()
    assert "prefers-color-scheme" in Path("reports/figures/comparison.svg").read_text()
    before = files_of(Path("reports"))
    costs = {k: replace(c, wall_time_s=7.5) for k, c in small.finetuning_costs.items()}
    report.write(replace(small, finetuning_costs=costs))
    after = files_of(Path("reports"))
    changed = {name for name in after if after[name] != before.get(name)}
    cost = {f"figures/measured/cost{end}" for end in FIGURE}
    assert "costs.csv" in changed
    assert changed <= {"costs.csv", "index.html", "answer.txt", "summary.json"} | cost


def test_report_of_a_single_seed_has_effects_without_intervals(small: Results) -> None:
    alone = [trial for trial in small.trials if trial.finetune_seed == 1]
    report.write(replace(small, trials=alone))
    effects = rows(Path("reports/effects.csv"))
    assert {(row["low"], row["high"], row["p_holm"]) for row in effects} == {("", "", "")}
    assert all(float(row["effect"]) != 0 for row in effects)
    assert "no effect has an interval" in Path("reports/comparison.md").read_text()


def test_report_leaves_a_gap_for_a_method_that_does_not_fit_a_model(small: Results) -> None:
    """Tables, pictures and effects have all other trials."""
    gap = ("encoder_scratch", "linear_probe")
    trials = [trial for trial in small.trials if (trial.model, trial.method) != gap]
    params = saved(replace(small, trials=trials)).params
    report.write(load(params))
    assert {trial.model for trial in trials if trial.method == "full"} == SOME.keys()
    assert {(r["model"], r["method"]) for r in rows(Path("reports/trials.csv"))} == {
        (trial.model, trial.method) for trial in trials
    }
    by_method = [r for r in rows(Path("reports/contrasts.csv")) if r["axis"] == "method"]
    assert {row["model_a"] for row in by_method} == {"encoder_mlm"}
    check_no_nan(Path("reports"))
    write(Path("data/evaluated/tag/skipped.csv"), SkippedMethod, [])  # nothing explains the gap
    with pytest.raises(ValueError, match="no trial of encoder_scratch on tag, linear_probe"):
        load(params)
