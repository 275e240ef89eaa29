"""What is shown of workers: time left, and the scores so far."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from stages.core.keys import TrialKey
from stages.evaluation.records import write_table
from stages.scheduling.progress import Progress
from stages.scheduling.worker import Result, Unit


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def lines(units: list[Unit], *ended: Result, terminal: bool = False) -> list[str]:
    """Returns what is printed while the first units end with these results, and the next starts."""
    output = io.StringIO()
    console = Console(file=output, width=80, force_terminal=terminal, _environ={})
    with Progress(units, console) as progress:
        for unit, result in zip(units, ended, strict=False):
            progress.started(unit.name)
            progress.ended(unit, result)
        for unit in units[len(ended) :][:1]:
            progress.started(unit.name)
            progress.refresh()
    return [line for line in output.getvalue().splitlines() if line]


def done(seconds: float) -> Result:
    return Result(seconds=seconds)


def test_progress_has_a_line_for_each_unit_that_has_ended() -> None:
    units = [Unit(name, (), name, work=4) for name in "abc"]
    assert lines(units, done(61.4), Result("failed", 2)) == [
        "1/3    1:01  a  (about 2 minutes left)",
        "2/3    0:02  b  failed  (about a minute left)",
    ]


def test_progress_shows_what_runs_on_a_terminal() -> None:
    unit = Unit("trials@tag", (), "fine-tune minilm on tag, seed 2")
    assert any(unit.title in line for line in lines([unit], terminal=True))


@pytest.mark.parametrize(
    ("works", "seconds", "left"),
    [
        ([1, 10, 0], [60], "about 10 minutes left"),
        ([0, 10, 1], [60], ""),  # a unit without planned work says nothing
        ([1] * 21, [60, 60], "about 19 minutes left"),
        ([1] * 21, [60, 60, 180], "about 18 minutes left"),  # one slow unit changes nothing
        ([1] * 21, [60], ""),  # too little has ended
    ],
)
def test_time_left_is_the_work_that_is_left_at_the_pace_of_what_has_ended(
    works: list[float], seconds: list[float], left: str
) -> None:
    units = [Unit(str(i), (), "unit", work=work) for i, work in enumerate(works)]
    *_, line = lines(units, *map(done, seconds))
    assert line.partition("unit")[2].strip(" ()") == left


def test_time_left_knows_the_pace_of_trials_and_of_pretrainings() -> None:
    key = TrialKey("model", 1, "tag", "full", "50", 1)
    trials = [Unit(name, (), trials=(key,), work=1) for name in "abcde"]
    units = [Unit("pretrain", (), work=100), *trials]
    assert "about 4 minutes left" in lines(units, done(100), done(60))[-1]


def test_leaderboard_fills_with_baselines_and_models() -> None:
    """A model has its mean over seeds, its best method, and the most labels."""
    about = Path("data/tasks/tag/examples/task.json")
    about.parent.mkdir(parents=True)
    about.write_text(json.dumps({"metric": "macro_f1"}))
    baseline = TrialKey("tfidf", 1, "tag", "classical", "50", 1)
    rows = [baseline._asdict() | {"validation_score": 0.5}]
    write_table(Path("data/baselines/tag/trials.csv"), rows[0], rows)
    keys = [TrialKey("minilm", seed, "tag", "full", "50", 1) for seed in (1, 2)]
    few, worse = keys[0]._replace(label_budget="10"), keys[0]._replace(method="probe")
    units = [
        Unit("fit_baseline@tag", (), "fit baseline tag"),
        *(Unit(f"trials@{key.pretrain_seed}", (), "fine-tune", trials=(key,)) for key in keys),
        Unit("finetune@tag", (), "finetune tag", stored=((few, 0.9), (worse, 0.1))),
    ]
    results = [done(1), *(Result("", 1, ((k, s),)) for k, s in zip(keys, (0.6, 0.7)))]  # noqa: B905
    before, after = lines(units, results[0]), lines(units, *results)
    assert [line.split() for line in before[-2:]] == [["tfidf", "50.0"], ["minilm", "10.0"]]
    assert [line.split() for line in after[-2:]] == [["minilm", "65.0"], ["tfidf", "50.0"]]
    assert after[2].endswith("fine-tune: 70.0 on validation rows")
