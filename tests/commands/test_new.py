"""`new` writes a study and loses none."""

import re
import subprocess
from pathlib import Path

import pytest

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
    assert re.search(r"on all \d+ labels", " ".join(out.split())) and "reports/ shows" not in out
    assert "study: reviews\n" in Path("params.yaml").read_text()


@pytest.mark.slow
def test_new_says_whose_report_lies_there(run) -> None:
    Path("reports").mkdir(exist_ok=True)
    Path("reports/trials.csv").write_text("study\nearlier\n")
    _, out, _ = run(*NEW)
    assert "reports/ shows the study earlier until this one has run." in out


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
        (["missing.csv"], "no such file"),
        (["reviews.csv", "--label", "grade"], "no column 'grade'"),
        (["reviews.csv", "--set", "label_budgets=some"], "--set.label_budgets"),
        (["reviews.csv", "--set", "decimals=point"], "did you mean 'decimal'"),
        (["reviews.csv", "--minutes", "0"], "--minutes"),
        (["reviews.csv", "--corpus", "nowhere"], "--corpus"),
    ],
)
def test_new_refuses_a_mistake_in_one_line_and_writes_nothing(
    flags: list[str], said: str, run
) -> None:
    ended = run("new", "--no-published", *flags)
    (line,) = ended.err.splitlines()
    assert ended.status == 2
    assert line.startswith("error: ") and said in line
    assert not Path("params.yaml").exists()
