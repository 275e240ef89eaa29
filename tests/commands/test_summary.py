import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from stages import report
from stages.commands import summary
from stages.core import paths
from stages.evaluation.records import write_table
from stages.reporting.comparison import estimates
from stages.reporting.comparison.results import load
from tests.synthetic_study import METRICS, RUNS, raw_params, write_study


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a terminal shows of a study's report."""
    root, screen = tmp_path_factory.mktemp("study"), io.StringIO()
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"></svg>'
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setattr("stages.reporting.figures.gallery.draw", lambda *_, **__: svg)
        patch.setattr("stages.report.reconcile", lambda params, **_: True)  # MLflow
        report.main(write_study(root, raw_params()))
        for study in ("synthetic", "my_own"):
            Path("params.yaml").write_text(f"study: {study}\n")
            summary.show(Console(file=screen, width=120))
    return screen.getvalue()


@pytest.mark.slow
def test_every_run_baseline_task_and_axis_is_shown(shown: str) -> None:
    for name in (*RUNS, *METRICS, "majority", "tfidf", "window"):
        assert name in shown
    for axis in ("architecture", "size", "training set", "pretrained", "method"):
        assert axis in shown


@pytest.mark.slow
def test_it_begins_with_the_study_and_says_if_another_is_declared(shown: str) -> None:
    assert shown.startswith("The study synthetic\n")
    assert "The study synthetic; params.yaml is my_own and has no report yet" in shown


@pytest.mark.slow
def test_it_ends_with_where_the_page_and_mlflow_are(shown: str) -> None:
    assert "reports/index.html" in shown and "make ui" in shown
    assert "one pretraining seed have no verdict" in " ".join(shown.split())
    assert "creened out" not in shown


@pytest.mark.slow
def test_before_that_stands_the_answer_for_each_task(shown: str) -> None:
    """What to use, and the command that uses it unless a baseline is the best."""
    end = shown[shown.rindex("largest effect") :]
    for task in METRICS:
        (line,) = re.findall(rf"^{task}, \d+ labels: use .*", end, re.MULTILINE)
        baselines = ("majority", "tfidf", "window")
        assert any(f" {name}" in line for name in (*RUNS, *baselines))
        assert any(name in line for name in baselines) or f"--task {task} --method" in end


def test_runs_that_were_screened_out_are_those_of_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    raw = raw_params()
    raw["finetune"]["screen"] = {"by": "h_score", "keep": 2}
    results = load(write_study(tmp_path, raw))
    paths.REPORTS.mkdir(exist_ok=True)
    write_table(paths.REPORTS / "estimates.csv", estimates.COLUMNS, estimates.rows(results))
    found = summary.screened_out()
    assert found.keys() == {*METRICS}
    for task, runs in found.items():
        trained = {trial.run for trial in results.trials if trial.task == task}
        assert {*runs} == {*RUNS} - trained and len(runs) == 3


def test_without_a_report_it_says_what_writes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["summary"])
    with pytest.raises(SystemExit) as ended:
        summary.main()
    assert ended.value.code == 2
    assert "`dvc repro` writes the report" in capsys.readouterr().err


def test_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["summary", "--help"])
    with pytest.raises(SystemExit) as ended:
        summary.main()
    assert ended.value.code == 0
    assert "comparison" in capsys.readouterr().out
