import io
from pathlib import Path

import pytest
from rich.console import Console

from stages.commands import summary
from stages.core import paths

ANSWER = (
    "Which model?\n\nFine-tune minilm: [it] leads.\n\nModel   Mean\nminilm  56.5\n\nReport  x\n"
)


@pytest.mark.parametrize("study", ["tickets", "mails"])
def test_show_prints_the_answer_and_names_its_study_if_params_are_of_another(
    study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    paths.REPORTS.mkdir()
    (paths.REPORTS / "answer.txt").write_text(ANSWER, encoding="utf-8")
    (paths.REPORTS / "trials.csv").write_text("study\ntickets\n")
    Path("params.yaml").write_text(f"study: {study}\n")
    summary.show(Console(file=(screen := io.StringIO()), width=20))
    assert screen.getvalue().startswith(ANSWER)
    rest = " ".join(screen.getvalue().removeprefix(ANSWER).split())
    assert rest == (
        "" if study == "tickets" else "This is the study tickets; params.yaml is mails."
    )
