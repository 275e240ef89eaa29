"""`new` writes a study and loses none."""

import re
import subprocess
from pathlib import Path

import pytest

from stages.commands.new import MAX_LINES
from tests.labelled_files import classified, paced

NEW = ("new", "--no-published", "reviews.csv")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MAKELEVEL", raising=False)  # of `make test`
    monkeypatch.setattr("stages.commands.new.measured", paced)
    Path("requirements.lock").write_text("")
    Path("reviews.csv").write_text(classified())


@pytest.mark.slow
def test_new_says_what_it_saw_and_what_comes_next(run) -> None:
    status, out, _ = run(*NEW)
    assert status == 0
    for part in ("classification: stars", "from review", "text: 'a", "make repro"):
        assert part in out
    assert len(out.partition("The first rows")[0].splitlines()) <= MAX_LINES + 3
    assert re.search(r"on all \d+ labels", " ".join(out.split()))
    assert "study: reviews\n" in Path("params.yaml").read_text()


@pytest.mark.slow
def test_new_writes_only_over_its_own_work_committed_files_and_studies(run) -> None:
    params = Path("params.yaml")
    assert run(*NEW).status == 0
    assert run(*NEW, "--minutes", "5").status == 0  # the file is as new wrote it
    mine = params.read_text().replace("study: reviews", "study: mine")
    params.write_text(mine)
    ended = run(*NEW)
    assert ended.status == 2 and "--force" in ended.err and params.read_text() == mine
    Path("studies").mkdir()
    Path("studies/mine.yaml").write_text(mine)
    assert run(*NEW).status == 0
    params.write_text(mine + "# edited\n")
    assert run(*NEW, "--force").status == 0
    params.write_text("study: committed\n")
    for command in ("init -q .", "add params.yaml", "-c user.name=a -c user.email=b commit -qm a"):
        subprocess.run(["git", *command.split()], check=True)
    assert run(*NEW).status == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["review.csv"], "review.csv: no such file; did you mean reviews.csv?"),
        (["missing.csv"], "missing.csv: no such file\n"),
        (["reviews.csv", "--label", "star"], "no column 'star'; did you mean 'stars'?"),
        (["reviews.csv", "--lable", "stars"], "--lable stars"),
        (["reviews.csv", "--set", "decimals=point"], "did you mean 'decimal'"),
        (["reviews.csv", "--corpus", "nowhere"], "--corpus"),
    ],
)
def test_new_refuses_a_mistake_in_one_line_and_writes_nothing(
    flags: list[str], said: str, run
) -> None:
    ended = run("new", "--no-published", *flags)
    assert ended.status == 2 and ended.err.count("\n") == 1
    assert ended.err.startswith("error: ") and said in ended.err
    assert not Path("params.yaml").exists()


def test_new_alone_names_the_command_in_three_lines(run) -> None:
    ended = run("new")
    assert ended.status == 2 and ended.err.count("\n") == 3 and "make new DATA=" in ended.err
