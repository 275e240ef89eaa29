import io
import re
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from stages import report
from stages.commands import summary
from stages.core.artifacts import read_json
from stages.evaluation.records import read_texts
from stages.reporting.formats import shown as format_score
from tests.small_study import run_stage
from tests.synthetic_study import METRICS, RUNS, raw_params, write_study
from tests.terminals import check_fits, on_terminals


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study with its report."""
    root = tmp_path_factory.mktemp("study")
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"></svg>'
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setattr("stages.reporting.figures.gallery.draw", lambda *_, **__: svg)
        patch.setattr("stages.report.reconcile", lambda params, **_: True)  # MLflow
        run_stage(write_study(root, raw_params()), report)
    return root


@pytest.fixture(scope="module")
def shown(reported: Path) -> str:
    """The report of a study as a terminal shows it."""
    screen = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(reported)
        for study in ("synthetic", "my_own"):
            Path("params.yaml").write_text(f"study: {study}\n")
            summary.show(Console(file=screen, width=120))
    return screen.getvalue()


@pytest.mark.slow
def test_summary_has_no_line_of_spaces(shown: str) -> None:
    """A baseline without a price or a cheaper choice leaves no gap, and text is not padded."""
    assert "a classical baseline" in shown and not re.search(r"\n  +\n  Use it", shown)
    words = shown[shown.index("What mattered") : shown.rindex("The page:")]
    assert "published checkpoint: The study has" in words
    assert not re.search(" $", words.partition("The study synthetic;")[0], re.MULTILINE)


@pytest.mark.slow
def test_summary_cuts_nothing_on_any_terminal(reported: Path) -> None:
    """The rows with a run's scores begin with its name. A command is one line, to be copied."""
    (reported / "params.yaml").write_text("study: synthetic\n")
    scores = read_json(reported / "reports/metrics.json")
    answers = read_texts(reported / "reports/answer.csv")
    metric = {row["task"]: row["metric"] for row in answers}
    for width, text in on_terminals("summary", folder=reported).items():
        tables = text[: text.index("What mattered")]
        for task, runs in scores.items():
            for run, methods in runs.items():
                cells = [cell for budgets in methods.values() for cell in budgets.values()]
                numbers = [format_score(cell["mean"], metric[task]) for cell in cells]
                check_fits(tables, width, run, *numbers)
                rows = [line for line in tables.splitlines() if line.split()[:1] == [run]]
                assert all(any(f" {number}" in row for row in rows) for number in numbers)
        commands = re.findall(
            r"^  Use it: python -m .* FILE --label-budget .*\n", text, re.MULTILINE
        )
        assert len(commands) == len(scores) and all(
            "--method" not in command or re.search(r" --finetune-seed \d+$", command)
            for command in commands
        )
        check_fits(re.sub(r"^  Use it: .*\n", "", text, flags=re.MULTILINE), width)


def test_numbers_of_labels_have_commas() -> None:
    screen = io.StringIO()
    runs = {"encoder": {"full": {"1000": {"mean": 0.5}}}}
    summary.show_scores(Console(file=screen, width=100), "tag", runs, "accuracy")
    assert "1,000 labels" in screen.getvalue()


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
    """The answer names a run or a baseline, and the command that uses it."""
    end = shown[shown.rindex("Believe it?") :]
    for task in METRICS:
        (line,) = re.findall(rf"^{task}, \d+ labels: use .*", end, re.MULTILINE)
        baselines = ("majority", "tfidf", "window")
        (best,) = [name for name in (*RUNS, *baselines) if f" {name}" in line.split(":")[1]]
        used = f"Use it: python -m stages.commands.predict {best} {task} FILE --label-budget"
        assert used in " ".join(end.split())


@pytest.mark.slow
def test_show_goes_on_where_no_pair_of_runs_differs_in_one_thing(
    reported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(reported, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    markdown = Path("reports/comparison.md")
    text = markdown.read_text()
    begin, end = text.index("What mattered"), text.index("What was not tried")
    markdown.write_text(text[:begin] + text[end:])
    screen = io.StringIO()
    summary.show(Console(file=screen, width=120))
    assert "What was not tried" in screen.getvalue() and "Believe it?" in screen.getvalue()


def test_summary_says_what_writes_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = run("summary")
    assert ended.status == 2 and "`dvc repro` writes the report" in ended.err
