"""The study of docs/tutorial.md."""

from pathlib import Path

import pytest

from stages import resolve
from tests.docs.pages import ROOT, blocks


@pytest.mark.slow
def test_resolve_accepts_the_study_of_the_tutorial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study = next(b.body for b in blocks(ROOT / "docs" / "tutorial.md") if b.info == "yaml")
    Path("params.yaml").write_text(study)
    Path("requirements.lock").write_bytes((ROOT / "requirements.lock").read_bytes())
    labels = ("negative", "positive")
    rows = [f"text {i},{labels[i % 2]}" for i in range(600)]
    Path("reviews.csv").write_text("\n".join(["text,label", *rows]))
    Path("mytext").mkdir()
    Path("mytext/reviews.txt").write_text("A text.\n\nAnother one.\n")
    resolve.main()
