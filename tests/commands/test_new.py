"""A study is written and none is lost."""

import subprocess
from pathlib import Path

import pytest

from stages.commands import new
from tests.labelled_files import classified, paced


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stages.proposal.pace.measured", paced)
    Path("requirements.lock").write_text("")
    Path("reviews.csv").write_text(classified())


def run(monkeypatch: pytest.MonkeyPatch, *flags: str) -> int:
    monkeypatch.setattr("sys.argv", ["new", "--no-published", *flags])
    try:
        new.main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


@pytest.mark.slow
def test_new_says_what_it_saw_and_what_comes_next(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "reviews.csv") == 0
    said = capsys.readouterr().out
    for part in (
        "classification",
        "review is read",
        "stars is predicted",
        "text: 'a",
        "make repro",
    ):
        assert part in said
    assert "study: reviews\n" in Path("params.yaml").read_text()


@pytest.mark.slow
def test_new_writes_only_over_its_own_work_committed_files_and_studies(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    params = Path("params.yaml")
    assert run(monkeypatch, "reviews.csv") == 0
    assert run(monkeypatch, "reviews.csv", "--minutes", "5") == 0  # as it was written
    mine = params.read_text().replace("study: reviews", "study: mine")
    params.write_text(mine)
    assert run(monkeypatch, "reviews.csv") == 2
    assert "--force" in capsys.readouterr().err and params.read_text() == mine
    Path("studies").mkdir()
    Path("studies/mine.yaml").write_text(mine)
    assert run(monkeypatch, "reviews.csv") == 0
    params.write_text(mine + "# edited\n")
    assert run(monkeypatch, "reviews.csv", "--force") == 0
    params.write_text("study: committed\n")
    for command in ("init -q .", "add params.yaml", "-c user.name=a -c user.email=b commit -qm a"):
        subprocess.run(["git", *command.split()], check=True)
    assert run(monkeypatch, "reviews.csv") == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["missing.csv"], "no such file"),
        (["reviews.csv", "--label", "grade"], "no column 'grade'"),
        (["reviews.csv", "--label-budgets", "some"], "--label-budgets"),
        (["reviews.csv", "--minutes", "0"], "--minutes"),
        (["reviews.csv", "--corpus", "nowhere"], "--corpus"),
    ],
)
def test_new_refuses_a_mistake_in_one_line_and_writes_nothing(
    flags: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, *flags) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and said in line
    assert not Path("params.yaml").exists()
