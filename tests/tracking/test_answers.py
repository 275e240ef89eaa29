import json
from pathlib import Path

import pytest

from stages.tracking.answers import Answers
from stages.tracking.records import Row
from tests.tracking.tracked_study import write_table

KEYS = {"task": "t", "method": "full", "label_budget": "50", "pretrain_seed": "1"}


def trials(*runs: str, metric: str = "macro_f1", value: float = 0.5) -> list[Row]:
    return [
        KEYS | {"run": run, "finetune_seed": "1", "metric": metric, "value": str(value)}
        for run in runs
    ]


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a group of two runs at 0.5, and baselines at 0.4 and 0.7."""
    monkeypatch.chdir(tmp_path)
    write_table(Path("reports/trials.csv"), trials("a", "a_2"))
    printed = {"mean": 0.5, "low": 0.4, "high": 0.6}
    counts = {"num_pretrain_seeds": 2, "num_finetune_seeds": 1}
    classical = {name: {"classical": {"50": {"mean": v}}} for name, v in (("x", 0.4), ("y", 0.7))}
    group = {"a": {"full": {"50": printed | counts}}}
    Path("reports/metrics.json").write_text(json.dumps({"t": group | classical}))
    effect = {"axis": "pretrained", "run_a": "a", "effect": 0.2, "low": 0.1, "high": 0.4}
    write_table(Path("reports/contrasts.csv"), [KEYS | effect])


@pytest.mark.usefixtures("report")
def test_they_are_what_the_report_printed() -> None:
    found = Answers.read().of(("a", "t", "full", "50"), ["a", "a_2"], trials("a", "a_2"))
    assert found and (found.score, found.seeds) == (0.5, "2 x 1")
    assert found.values == {
        "score_low": 0.4,
        "score_high": 0.6,
        "gain_over_baseline": -0.2,  # over the better one
        "gain_over_scratch": 0.2,
        "gain_over_scratch_low": 0.1,
        "gain_over_scratch_high": 0.4,
    }


@pytest.mark.usefixtures("report")
def test_a_gain_is_over_the_trials_that_drew_the_same_labels() -> None:
    """The baseline has a further trial, which the group has no trial to compare with."""
    own = trials("a", "a_2")
    seeds = [(row["pretrain_seed"], row["finetune_seed"]) for row in own]
    rows = [
        own[0]
        | {"run": "y", "method": "classical", "value": value}
        | dict(zip(("pretrain_seed", "finetune_seed"), pair, strict=True))
        for value, pair in (("0.6", seeds[0]), ("0.9", ("9", "9")))
    ]
    write_table(Path("reports/trials.csv"), own + rows)
    found = Answers.read().of(("a", "t", "full", "50"), ["a", "a_2"], own)
    assert found
    assert found.values["gain_over_baseline"] == pytest.approx(float(own[0]["value"]) - 0.6)


@pytest.mark.usefixtures("report")
def test_a_gain_is_better_where_a_lower_score_is() -> None:
    own = trials("a", "a_2", metric="bits_per_byte")
    found = Answers.read().of(("a", "t", "full", "50"), ["a", "a_2"], own)
    assert found and found.values["gain_over_baseline"] == -0.1  # over 0.4, which is better
    ends = [found.values[f"gain_over_scratch{end}"] for end in ("_low", "", "_high")]
    assert ends == [-0.4, -0.2, -0.1]


@pytest.mark.usefixtures("report")
def test_there_are_none_of_other_trials_than_the_report_has_seen() -> None:
    answers, place, group = Answers.read(), ("a", "t", "full", "50"), ["a", "a_2"]
    assert answers.of(place, group, trials("a")) is None  # one of them is trained anew
    assert answers.of(place, group, trials("a", "a_2", value=0.51)) is None
    assert answers.of(place, [*group, "a_3"], trials("a", "a_2", "a_3")) is None
    assert answers.of(("b", "t", "full", "50"), ["b"], trials("b")) is None


def test_without_a_report_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Answers.read().of(("a", "t", "full", "50"), ["a"], trials("a")) is None
