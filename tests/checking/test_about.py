"""Titles and descriptions: shown by the report, checked, and read by no other stage."""

from pathlib import Path

import pytest

from stages import check_params
from stages.core.params import load, typed
from tests.project import write_environment
from tests.smoke import ROOT, paths_of, smoke_with


@pytest.fixture(autouse=True)
def in_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # a source's path is relative to the project


@pytest.mark.parametrize("section", ["tasks", "corpora", "methods"])
def test_what_the_study_does_not_have_is_not_described(section: str) -> None:
    about = {section: {"unlisted": "It is not there."}}
    assert paths_of(smoke_with({"about": about})) == [f"about.{section}"]


@pytest.mark.parametrize("title", ["", " Which?", "Which\nmodel?", "x" * 161, 3])
def test_a_title_is_one_line(title: object) -> None:
    with pytest.raises(ValueError, match=r"^about\.title: "):
        typed(smoke_with({"about": {"title": title}}))


def test_a_study_needs_no_descriptions() -> None:
    raw = smoke_with({})
    assert "about" not in raw and typed(raw).about.title is None


def test_other_words_change_what_the_report_depends_on_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = load(ROOT / "studies" / "smoke.yaml")
    lock = (ROOT / "requirements.lock").read_bytes()
    (tmp_path / "requirements.lock").write_bytes(lock)
    write_environment(tmp_path)
    monkeypatch.chdir(tmp_path)

    def written(title: str) -> dict[Path, str]:
        about = params.about.model_copy(update={"title": title})
        check_params.main(params.model_copy(update={"about": about}))
        return {path: path.read_text() for path in Path("data").rglob("*") if path.is_file()}

    one, other = written("Which?"), written("Which one?")
    assert [str(path) for path in one if one[path] != other[path]] == ["data/about.json"]
