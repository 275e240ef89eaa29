"""The study of docs/tutorial.md is one that ``check_params`` takes, with files as the page says."""

from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks
from tests.project import clone_of_working_tree

CSV = "text,label\n" + "".join(
    f"text {i},{'positive' if i % 2 else 'negative'}\n" for i in range(9)
)


@pytest.mark.slow
def test_the_study_of_the_tutorial_is_valid(tmp_path: Path) -> None:
    (params,) = [b.body for b in blocks(ROOT / "docs" / "tutorial.md") if b.info == "yaml"]
    project = clone_of_working_tree(tmp_path / "clone")
    (project.folder / "params.yaml").write_text(params)
    (project.folder / "reviews.csv").write_text(CSV)
    (project.folder / "mytext").mkdir()
    (project.folder / "mytext" / "reviews.txt").write_text("A text.\n\nAnother one.\n")
    assert project.run("python", "-m", "stages.check_params") == ""
