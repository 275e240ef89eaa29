"""The screen that shows the progress of workers."""

import io

import pytest
from rich.console import Console

from stages.scheduling import progress
from stages.scheduling.progress import Screen, State
from stages.scheduling.unit import Result, Status, Unit

UNITS = [Unit("a", ()), Unit("b", ("a",)), Unit("c", ("b",))]


def screen_text(states: list[State], *, terminal: bool = False, units: list[Unit] = UNITS) -> str:
    output = io.StringIO()
    console = Console(file=output, width=80, force_terminal=terminal, _environ={})
    with Screen(units, console) as screen:
        for state in states:
            screen(state)
    return output.getvalue()


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_screen_has_a_line_for_each_unit_that_has_ended() -> None:
    done, failed = Result("a", Status.DONE, 61.4), Result("b", Status.FAILED, 2)
    left_out = Result("c", Status.LEFT_OUT)
    first = State({"a": done}, {"w1": "b"})
    last = State({"a": done, "b": failed, "c": left_out}, {})
    assert screen_text([first, first, last]).splitlines() == [
        "1/3    1:01  a  (about 0:00 left)",  # no time has passed
        "2/3    0:02  b  failed",
    ]


def test_screen_says_in_a_log_how_long_the_other_units_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter([0.0, 40.0, 100.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    done = {name: Result(name, Status.DONE, 40) for name in "ab"}
    first, second = State({"a": done["a"]}, {"w1": "b"}), State(done, {"w1": "c"})
    lines = screen_text([first, second]).splitlines()
    assert [line.split("  ")[-1] for line in lines] == ["(about 1:20 left)", "(about 0:50 left)"]


def test_screen_shows_the_last_line_of_what_runs_on_a_terminal() -> None:
    UNITS[1].log.parent.mkdir(parents=True)
    UNITS[1].log.write_text("starts\nstep 1\rstep 2 of 9")
    shown = screen_text([State({}, {"w1": "b"})], terminal=True)
    assert "step 2 of 9" in shown and "starts" not in shown


def test_screen_says_once_that_it_waits_for_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", -1.0)
    none = State({}, {})
    assert screen_text([none, none]).count("waiting") == 1
    assert "waiting" not in screen_text([State({}, {"w1": "a"})])


def test_no_time_is_given_before_a_third_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first units take seconds, so that the estimate would be too low."""
    clock = iter([0.0, 10.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    done = {name: Result(name, Status.DONE, 5) for name in "ab"}
    first, second = State({"a": done["a"]}, {"w1": "b"}), State(done, {"w1": "c"})
    units = [Unit(name, ()) for name in "abcdef"]
    lines = screen_text([first, second], units=units).splitlines()
    assert lines == ["1/6    0:05  a", "2/6    0:05  b  (about 0:20 left)"]
