"""A short `make torture`, and tests that it sees the faults that it looks for."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stages.core.study_file import load
from tests.torture import edits, hostile, surroundings
from tests.torture.__main__ import table
from tests.torture.kills import kill_runs
from tests.torture.results import difference
from tests.torture.tally import TRACEBACK, Tally, message_fault

pytestmark = pytest.mark.slow
SEED = 1
EDITS = (edits.edit_structures, edits.edit_texts)


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Allows time for checks of types and parallel tests; keeps inputs in a folder per test."""
    monkeypatch.setattr(edits, "SLOWEST_S", 20.0)
    monkeypatch.setattr(edits, "KEPT", edits.KEPT / tmp_path.name)


@pytest.mark.parametrize("edit", EDITS)
def test_edited_studies_are_refused_with_a_path_or_valid(edit: Callable[..., Tally]) -> None:
    tally = edit(range(40), SEED, 60.0)
    assert tally.faults == [] and tally.num_tried == 40
    assert tally.outcomes["refused"] > 20


def test_hostile_folders_are_refused_or_loaded() -> None:
    names = [*hostile.NAMED]
    for name in ("pickle as safetensors", "code in the config", "config: fifo"):
        number = names.index(name)
        tally = hostile.open_folders(range(number, number + 1), SEED, 60.0)
        assert tally.faults == [] and tally.outcomes == {"refused": 1}
    assert hostile.open_folders(range(1), SEED, 60.0).outcomes == {"accepted": 1}


def test_disturbed_stages_are_refused_or_done() -> None:
    tally = surroundings.disturb_stages(
        range(2), SEED, 60.0, targets=("prepare_corpus",), cold=False
    )
    assert tally.faults == [] and tally.num_tried == 2


def test_killed_runs_end_with_the_same_files() -> None:
    tally = kill_runs(range(1), SEED, 60.0, targets=("prepare_task",), cold=False)
    assert tally.faults == [] and tally.outcomes == {"dvc killed": 1}


@pytest.mark.parametrize(
    ("code", "printed", "fault"),
    [
        (0, "note: all is well", ""),
        (2, "error: tasks.topic.source: no such file", ""),
        (2, "error: [Errno 28] No space left on device: 'data/plans'; nothing is left", ""),
        (2, "error: could not convert string to float", "refusal without a path"),
        (2, "no", "exit status 2 without a message"),
        (1, f"{TRACEBACK}:\nKeyError: 'a'", "traceback: KeyError"),
        (-11, "", "exit status -11"),
    ],
)
def test_message_fault_names_what_is_wrong(code: int, printed: str, fault: str) -> None:
    assert message_fault(code, printed).startswith(fault) and bool(fault) == bool(
        message_fault(code, printed)
    )


@pytest.mark.parametrize(
    ("check", "fault"),
    [
        (lambda file: {}["a"], "traceback: KeyError"),
        (lambda file: float("none"), "refusal without a path"),
        (lambda file: time.sleep(20), "no end in 1 s"),
    ],
)
def test_edits_see_checks_that_fail(
    check: Callable[[Path], object], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(file: Path) -> object:
        return check(file) if file.parent.name.startswith("tmp") else load(file)

    monkeypatch.setattr(edits, "load", broken)
    monkeypatch.setattr(edits, "STOPPED_S", 1)
    tally = edits.edit_texts(range(1), SEED, 60.0)
    assert [noted.what.startswith(fault) for noted in tally.faults] == [True]
    assert "params.yaml; python -m stages.resolve" in "".join(table([tally]))


def test_opened_sees_code_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    for opens, fault in (
        (lambda mine: (mine.parent / hostile.RAN).touch(), "code of the checkpoint ran"),
        (lambda mine: {}["a"], "traceback: KeyError"),
    ):
        monkeypatch.setattr(hostile, "check_and_load", opens)
        assert hostile.opened(folder)[0].startswith(fault)
        (tmp_path / hostile.RAN).unlink(missing_ok=True)


def test_difference_names_files_that_are_changed_or_missing() -> None:
    assert difference({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}) == "b, c"
    assert difference({"a": "1"}, {"a": "1"}) == ""
