"""The screen that shows the progress of workers."""

import io

import pytest
from rich.console import Console

from stages.core.keys import TrialKey
from stages.scheduling import progress
from stages.scheduling.progress import Screen, State
from stages.scheduling.unit import Result, Status, Unit

UNITS = [Unit("a", (), work=4), Unit("b", ("a",), work=4), Unit("c", ("b",), work=4)]
TRIALS = (TrialKey("run", 1, "tag", "full", "50", 1),)


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
        "1/3    1:01  a  (about 2:03 left)",
        "2/3    0:02  b  failed",
    ]


def at(monkeypatch: pytest.MonkeyPatch, *times: float) -> None:
    """Sets the time of the start and of each state."""
    monkeypatch.setattr(progress.time, "monotonic", iter(times).__next__)


def ends(text: str) -> list[str]:
    return [line.split("  ")[-1] for line in text.splitlines()]


def test_screen_weights_what_is_left_by_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The long unit takes ten times the seconds of the short one; what it has run is subtracted.
    Units without work count as nothing, so that no time is given before or after all others."""
    at(monkeypatch, 0.0, 1.0, 40.0, 100.0, 440.0)
    units = [
        Unit("a", (), work=1),
        Unit("b", (), work=10),
        *(Unit(name, ()) for name in ("c", "d", "report")),
    ]
    took = {"c": 1, "a": 39, "d": 1, "b": 390}
    done = {name: Result(name, Status.DONE, seconds) for name, seconds in took.items()}
    running = [{"w1": "a"}, {"w1": "b"}, {"w1": "b"}, {"w1": "report"}]
    states = [State(dict([*done.items()][: number + 1]), now) for number, now in enumerate(running)]
    lines = [line for line in ends(screen_text(states, units=units)) if "running" not in line]
    assert lines == ["c", "(about 6:30 left)", "(about 5:30 left)", "b"]


def test_screen_divides_what_is_left_by_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, 0.0, 0.0, 10.0)
    units = [Unit(name, (), work=1) for name in "abcdef"]
    states = [State({}, {"w1": "a", "w2": "b"}), State({"a": Result("a", Status.DONE, 10)}, {})]
    assert ends(screen_text(states, units=units)) == ["(about 0:25 left)"]


def test_screen_knows_the_pace_of_trials_and_of_pretrainings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An ended trial tells how long other trials take, whatever a pretraining took."""
    at(monkeypatch, 0.0, 1.0)
    units = [Unit("p", (), work=100), *(Unit(name, (), None, TRIALS, 1) for name in "ab")]
    done = {"p": Result("p", Status.DONE, 100), "a": Result("a", Status.DONE, 30)}
    assert ends(screen_text([State(done, {})], units=units))[-1] == "(about 0:30 left)"


def test_screen_says_once_in_a_log_that_a_long_unit_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    state, times = State({}, {"w1": "a"}), (0.0, 0.0, 10.0, 21.0, 30.0)
    at(monkeypatch, *times)
    assert screen_text([state] * 4) == "       0:21  a is still running\n"
    at(monkeypatch, *times, *times)  # a terminal's own clock reads more
    assert "still" not in screen_text([state] * 2, terminal=True)


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
