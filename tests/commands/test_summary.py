import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from stages import report
from stages.commands import summary
from tests.small_study import run_stage
from tests.synthetic_study import METRICS, RUNS, raw_params, write_study


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The text that a terminal shows of a study's report."""
    root, screen = tmp_path_factory.mktemp("study"), io.StringIO()
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"></svg>'
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setattr("stages.reporting.figures.gallery.draw", lambda *_, **__: svg)
        patch.setattr("stages.report.reconcile", lambda params, **_: True)  # MLflow
        run_stage(write_study(root, raw_params()), report)
        for study in ("synthetic", "my_own"):
            Path("params.yaml").write_text(f"study: {study}\n")
            summary.show(Console(file=screen, width=120))
    return screen.getvalue()


@pytest.mark.slow
def test_show_has_every_run_baseline_task_and_axis(shown: str) -> None:
    for name in (*RUNS, *METRICS, "majority", "tfidf", "window"):
        assert name in shown
    for axis in ("architecture", "size", "training text", "pretraining"):
        assert axis in shown


@pytest.mark.slow
def test_show_begins_with_the_study_and_says_if_another_is_declared(shown: str) -> None:
    assert shown.startswith("The study synthetic\n")
    assert "The study synthetic; params.yaml is my_own and has no report yet" in shown


@pytest.mark.slow
def test_show_ends_with_where_the_page_and_mlflow_are(shown: str) -> None:
    assert "reports/index.html" in shown and "make ui" in shown
    assert "69 of 81 have no verdict: a side was pretrained once" in " ".join(shown.split())


@pytest.mark.slow
def test_show_has_the_answer_for_each_task(shown: str) -> None:
    """It names what to use, and the command that uses it unless a baseline is the best."""
    end = shown[shown.rindex("Believe it?") :]
    for task in METRICS:
        (line,) = re.findall(rf"^{task}, \d+ labels: use .*", end, re.MULTILINE)
        baselines = ("majority", "tfidf", "window")
        assert any(f" {name}" in line for name in (*RUNS, *baselines))
        assert any(name in line for name in baselines) or f" {task} FILE --method" in end


def test_summary_says_what_writes_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["summary"])
    with pytest.raises(SystemExit) as ended:
        summary.main()
    assert ended.value.code == 2
    assert "`dvc repro` writes the report" in capsys.readouterr().err
