import platform
import re
import subprocess
from pathlib import Path

import pytest
import torch

from stages.core.params import Compute
from stages.findings.results import Results
from stages.reporting.page import pages, reproduction
from tests.study_results import undrawn

PROJECT = Path(__file__).parents[3]
HOSTILE = '<script>alert("1")</script>.py'


def git(*arguments: str) -> str:
    command = ["git", "-c", "user.name=test", "-c", "user.email=test@test.invalid", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's folder, in no repository."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    for name in ("params.yaml", "dvc.yaml", "requirements.lock", "README.md", "stages/a.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.fixture
def repository(folder: Path) -> Path:
    git("init", "--quiet")
    git("add", "--all")
    git("commit", "--quiet", "--message", "a study")
    return folder


def test_a_report_is_made_at_the_commit_that_is_checked_out(repository: Path) -> None:
    commit = reproduction.commit()
    assert commit and commit.id == git("rev-parse", "HEAD") and commit.changed == []


def test_what_differs_from_the_commit_is_named(repository: Path) -> None:
    """Only files on which results depend are named."""
    for name in ("stages/a.py", "stages/a new one.py", "params.yaml", "README.md"):
        (repository / name).write_text("edited")
    (repository / "dvc.yaml").unlink()
    commit = reproduction.commit()
    changed = {"stages/a.py", "stages/a new one.py", "params.yaml", "dvc.yaml"}
    assert commit and set(commit.changed) == changed


def test_without_a_commit_there_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reproduction.commit() is None
    git("init", "--quiet")
    assert reproduction.commit() is None
    monkeypatch.setenv("PATH", "")  # no git at all
    assert reproduction.commit() is None


@pytest.mark.parametrize(
    "origin, shown",
    [
        ("https://example.org/a/study.git", "https://example.org/a/study.git"),
        ("https://me:pass@word@example.org/study", "https://example.org/study"),
        ("git@example.org:a/study.git", "git@example.org:a/study.git"),
        ("ssh://git@example.org/study.git", "ssh://git@example.org/study.git"),
        ("/home/me/study", "REPOSITORY"),
        ("file:///home/me/study", "REPOSITORY"),
    ],
)
def test_a_remote_is_named_without_secrets(repository: Path, origin: str, shown: str) -> None:
    git("remote", "add", "origin", origin)
    commit = reproduction.commit()
    assert commit and commit.origin == shown


def test_a_copy_of_a_study_is_made_by_copying_it(repository: Path) -> None:
    assert reproduction.commands() == ["make repro"]
    (repository / "studies").mkdir()
    (repository / "studies/another.yaml").write_text("another")
    (repository / "studies/mine.yaml").write_text("params.yaml")
    assert reproduction.commands() == ["cp studies/mine.yaml params.yaml", "make repro"]
    commit = reproduction.commit()
    assert commit and commit.changed == ["studies/mine.yaml"]  # a clone lacks this file


def test_files_have_the_hashes_of_their_content(folder: Path) -> None:
    (folder / "dvc.yaml").unlink()
    (folder / "params.yaml").write_text("")
    params, dvc, lock = (tuple(row.values()) for row in reproduction.files())
    assert params == ("params.yaml", "e3b0c44298fc1c14")  # of an empty file
    assert dvc == ("dvc.yaml", "missing")
    assert lock[0] == "requirements.lock" and re.fullmatch(r"[0-9a-f]{16}", lock[1])


def test_packages_are_those_that_are_pinned() -> None:
    pinned = dict(re.findall(r"^(\S+)==(\S+)", (PROJECT / "requirements.lock").read_text(), re.M))
    python, *packages = reproduction.packages()
    assert python == {"package": "Python", "version": platform.python_version()}
    for row in packages:
        version = row["version"].partition("+")[0]  # after the + is the build of torch
        assert pinned[row["package"]] == version


def test_the_machine_is_described_and_left_as_it_is() -> None:
    before = torch.get_num_threads()
    compute = Compute(
        device="cpu", precision="float32", compile=False, threads=before + 1, trial_threads=1
    )
    about = {row["property"]: row["value"] for row in reproduction.machine(compute)}
    assert about["computation"] == f"on cpu in float32, {before + 1} threads"
    assert torch.get_num_threads() == before
    assert re.fullmatch(r"[\d.]+ GiB", about["memory"]) and about["processor"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is there")
def test_a_report_can_be_made_where_its_device_is_not() -> None:
    compute = Compute(device="cuda", precision="auto", compile=False, threads=1, trial_threads=1)
    *_, computation = reproduction.machine(compute)
    assert computation["value"].startswith("on cuda, which")


@pytest.mark.slow
def test_the_page_has_commit_and_machine_and_markdown_what_stays(
    results: Results, repository: Path
) -> None:
    (repository / "stages" / HOSTILE.replace("/", "|")).write_text("")
    html, markdown = pages.html(results, undrawn(results)), pages.markdown(results)
    commit = git("rev-parse", "HEAD")
    assert f"git checkout {commit}" in html and commit not in markdown
    assert "stages/&lt;script&gt;alert(" in html
    assert platform.platform() in html and platform.platform() not in markdown
    for text in (html, markdown):
        assert "make repro" in text and torch.__version__ in text
        assert all(row[reproduction.SHA256] in text for row in reproduction.files())
    git("commit", "--quiet", "--allow-empty", "--message", "the report")
    assert pages.markdown(results) == markdown


@pytest.mark.slow
def test_the_page_says_that_there_is_no_commit(results: Results, folder: Path) -> None:
    html = pages.html(results, undrawn(results))
    assert "outside a git repository" in html and "git checkout" not in html
