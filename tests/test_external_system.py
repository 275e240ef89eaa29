"""Which stages run when the predictions of an external system change, by real DVC."""

from pathlib import Path

import pytest

from tests.project import tiny_study
from tests.test_edits import AGAIN

pytestmark = pytest.mark.slow


def test_a_changed_prediction_reruns_the_baselines_of_its_task(tmp_path: Path) -> None:
    project = tiny_study(tmp_path / "project")
    project.edit("tasks", "again", value=AGAIN)
    project.edit("baselines", value={"llm": {"name": "predictions"}})
    texts = [f"{word} number {i}" for i in range(50, 60) for word in ("a quiet", "A LOUD")]
    for task in ("loudness", "again"):
        rows = "".join(f"{text},noisy\n" for text in texts)
        (project.folder / f"predictions/{task}.csv").write_text(f"text,prediction\n{rows}")
    assert {"fit_baseline@loudness", "fit_baseline@again"} <= {*project.repro("fit_baseline")}
    file = project.folder / "predictions/loudness.csv"
    file.write_text(file.read_text().replace("LOUD number 51,noisy", "LOUD number 51,calm"))
    assert "fit_baseline@again" not in project.pending()
    assert project.repro("fit_baseline") == ["resolve", "fit_baseline@loudness"]
    file.write_text("text,prediction\n")
    output = project.run("dvc", "repro", "fit_baseline", check=False)
    assert "error: baselines.llm.path: predictions/loudness.csv has no rows" in output
