import json
from pathlib import Path

import pytest

from stages.core.keys import CellKey
from stages.tracking.printed import Printed
from stages.tracking.records import Row
from tests.tracking.tracked_study import write_table

CELL = CellKey("a", "t", "full", "50")


def trials(*seeds: int, metric: str = "macro_f1", value: float = 0.5) -> list[Row]:
    """Returns the trials of a cell, one for each pretraining seed."""
    return [
        CELL._asdict()
        | {"pretrain_seed": str(seed), "finetune_seed": "1", "metric": metric, "value": str(value)}
        for seed in seeds
    ]


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report of a run with two seeds, both at 0.5."""
    monkeypatch.chdir(tmp_path)
    write_table(Path("reports/trials.csv"), trials(1, 2))
    printed = {"mean": 0.5, "low": 0.4, "high": 0.6}
    printed |= {"num_pretrain_seeds": 2, "num_finetune_seeds": 1}
    other = printed | {"num_pretrain_seeds": 1, "num_finetune_seeds": 2}
    means = {run: {"full": {"50": numbers}} for run, numbers in (("a", printed), ("b", other))}
    Path("reports/metrics.json").write_text(json.dumps({"t": means}))
    write_table(Path("reports/answer.csv"), [CELL._asdict() | {"against": "It leads."}])
    effect = {"axis": "pretrained", "run_a": "a", "effect": 0.2, "low": 0.1, "high": 0.4}
    write_table(Path("reports/contrasts.csv"), [CELL._asdict() | effect])


@pytest.mark.usefixtures("report")
def test_answers_are_what_the_report_printed() -> None:
    printed = Printed.read()
    assert printed.answers(CELL, trials(1, 2)) == {
        "score": 0.5,
        "score_low": 0.4,
        "score_high": 0.6,
        "gain_over_scratch": 0.2,
        "gain_over_scratch_low": 0.1,
        "gain_over_scratch_high": 0.4,
    }
    assert printed.tags(CELL) == {"seeds": "2 x 1", "against_baselines": "It leads."}
    assert printed.tags(CELL._replace(run="b")) == {"seeds": "2"}


@pytest.mark.usefixtures("report")
def test_answers_have_gains_above_0_where_a_lower_score_is_better() -> None:
    answers = Printed.read().answers(CELL, trials(1, 2, metric="bits_per_byte"))
    ends = [answers[f"gain_over_scratch{end}"] for end in ("_low", "", "_high")]
    assert ends == [-0.4, -0.2, -0.1]


@pytest.mark.usefixtures("report")
def test_answers_have_no_interval_beyond_the_scale() -> None:
    scores = Path("reports/metrics.json")
    scores.write_text(scores.read_text().replace("0.4", "-0.3").replace("0.6", "1.3"))
    gains = Path("reports/contrasts.csv")
    gains.write_text(gains.read_text().replace("0.1", "-1.2").replace("0.4", "1.6"))
    answers = Printed.read().answers(CELL, trials(1, 2))
    assert (answers["score_low"], answers["score_high"]) == (0, 1)
    assert (answers["gain_over_scratch_low"], answers["gain_over_scratch_high"]) == (-1, 1)


@pytest.mark.usefixtures("report")
def test_answers_are_empty_for_other_trials_than_the_report_has_seen() -> None:
    printed = Printed.read()
    assert printed.answers(CELL, trials(1)) == {}  # the other is trained anew
    assert printed.answers(CELL, trials(1, 2, value=0.51)) == {}
    assert printed.answers(CELL, trials(1, 2, 3)) == {}
    assert printed.answers(CELL._replace(run="b"), trials(1)) == {}


def test_answers_are_empty_without_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Printed.read().answers(CELL, trials(1)) == {}
