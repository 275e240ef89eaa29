"""What is shown of workers: time left, and the scores so far."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from stages.core.keys import TrialKey
from stages.evaluation.records import write_table
from stages.scheduling import progress
from stages.scheduling.progress import Screen, State, TimeLeft
from stages.scheduling.unit import Result, Status, Unit

UNITS = [Unit(name, (), name, work=4) for name in "abc"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def screen_text(states: list[State], units: list[Unit], *, terminal: bool = False) -> str:
    output = io.StringIO()
    console = Console(file=output, width=80, force_terminal=terminal, _environ={})
    with Screen(units, console) as screen:
        for state in states:
            screen(state)
    return output.getvalue()


def done(name: str, seconds: float = 1.0) -> Result:
    return Result(name, Status.DONE, seconds)


def test_screen_has_a_line_for_each_unit_that_has_ended() -> None:
    failed, left_out = Result("b", Status.FAILED, 2), Result("c", Status.LEFT_OUT)
    first = State({"a": done("a", 61.4)}, {"b"})
    last = State({"a": done("a", 61.4), "b": failed, "c": left_out}, set())
    assert screen_text([first, first, last], UNITS).splitlines() == [
        "1/3    1:01  a  (about 2 minutes left)",
        "2/3    0:02  b  failed",
    ]


def test_screen_shows_what_runs_on_a_terminal() -> None:
    unit = Unit("trials@tag", (), "fine-tune minilm on tag, seed 2")
    assert unit.title in screen_text([State({}, {unit.name})], [unit], terminal=True)


def test_screen_says_once_that_it_waits_for_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", -1.0)
    none = State({}, set())
    assert screen_text([none, none], UNITS).count("waiting") == 1
    assert "waiting" not in screen_text([State({}, {"a"})], UNITS)


def ended(left: TimeLeft, *units: tuple[str, float], now: float, workers: int = 1) -> str:
    for name, seconds in units:
        left.ended(done(name, seconds), now, {}, workers)
    return left.shown(now)


def test_time_left_is_the_work_that_is_left_at_the_pace_of_what_has_ended() -> None:
    units = [Unit("a", (), work=1), Unit("b", (), work=10), Unit("report", ())]
    assert ended(TimeLeft(units), ("a", 60), now=60) == "about 10 minutes left"
    assert ended(TimeLeft(units), ("report", 60), now=60) == ""
    many = [Unit(str(i), (), work=1) for i in range(9)]
    assert ended(TimeLeft(many), ("0", 60), now=60, workers=2) == "about 4 minutes left"


def test_time_left_knows_the_pace_of_trials_and_of_pretrainings() -> None:
    key = TrialKey("model", 1, "tag", "full", "50", 1)
    trials = [Unit(name, (), trials=(key,), work=1) for name in "abcde"]
    left = TimeLeft([Unit("p", (), work=100), *trials])
    assert ended(left, ("p", 100), ("a", 60), now=160) == "about a minute left"
    assert left.shown(now=100) == "about 2 minutes left"


def test_time_left_counts_down_and_hardly_moves_with_one_slow_unit() -> None:
    left = TimeLeft([Unit(str(i), (), work=1) for i in range(21)])
    assert ended(left, ("0", 60), ("1", 60), now=120) == "about 19 minutes left"
    assert left.shown(now=240) == "about 17 minutes left"
    assert ended(left, ("2", 180), now=300) == "about 20 minutes left"  # its pace says 30


def test_leaderboard_fills_with_baselines_and_models() -> None:
    """A model has its mean over seeds, its best method, and the most labels."""
    about = Path("data/tasks/tag/examples/task.json")
    about.parent.mkdir(parents=True)
    about.write_text(json.dumps({"metric": "macro_f1"}))
    baseline = TrialKey("tfidf", 1, "tag", "classical", "50", 1)
    rows = [baseline._asdict() | {"validation_score": 0.5}]
    write_table(Path("data/baselines/tag/trials.csv"), rows[0], rows)
    keys = [TrialKey("minilm", seed, "tag", "full", "50", 1) for seed in (1, 2)]
    few = TrialKey("minilm", 1, "tag", "full", "10", 1)
    units = [
        Unit("fit_baseline@tag", (), "fit baseline tag"),
        *(Unit(f"trials@{key.pretrain_seed}", (), "fine-tune", trials=(key,)) for key in keys),
        Unit("finetune@tag", (), "finetune tag", stored=((few, 0.9),)),
    ]
    for unit, key, score in zip(units[1:], keys, (0.6, 0.7), strict=False):
        unit.scores_file.parent.mkdir(parents=True, exist_ok=True)
        unit.scores_file.write_text(json.dumps({"scores": [[*key, score]]}))
    results = {unit.name: done(unit.name) for unit in units}
    before = screen_text([State({"fit_baseline@tag": results["fit_baseline@tag"]}, set())], units)
    assert before.splitlines()[-2].split() == ["minilm", "90.0"]
    assert before.splitlines()[-1].split() == ["tfidf", "50.0"]
    after = screen_text([State(results, set())], units)
    assert "fine-tune: 65.0 on validation rows" in after
    assert after.splitlines()[-2].split() == ["minilm", "65.0"]
