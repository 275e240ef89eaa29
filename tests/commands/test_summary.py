import io
from pathlib import Path

import pytest
from rich.console import Console

from stages.commands import summary
from stages.core import paths

ANSWER = (
    "Which model?\n\nFine-tune minilm: [it] leads.\n\nModel   Mean\nminilm  56.5\n\nReport  x\n"
)


@pytest.fixture
def screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a narrow terminal shows of a report of the study ``tickets``."""
    monkeypatch.chdir(tmp_path)
    paths.REPORTS.mkdir()
    (paths.REPORTS / "answer.txt").write_text(ANSWER, encoding="utf-8")
    (paths.REPORTS / "trials.csv").write_text("study\ntickets\n")
    return io.StringIO()


def test_show_prints_the_answer_unchanged(screen: io.StringIO) -> None:
    Path("params.yaml").write_text("study: tickets\n")
    summary.show(Console(file=screen, width=20))
    assert screen.getvalue() == ANSWER


def test_show_names_the_study_if_params_are_of_another(screen: io.StringIO) -> None:
    Path("params.yaml").write_text("study: mails\n")
    summary.show(Console(file=screen, width=80))
    assert "tickets" in screen.getvalue().splitlines()[-1]
    assert "mails" in screen.getvalue().splitlines()[-1]


def test_show_without_a_report_says_what_writes_it(screen: io.StringIO) -> None:
    (paths.REPORTS / "answer.txt").unlink()
    with pytest.raises(ValueError, match="dvc repro"):
        summary.show(Console(file=screen))
