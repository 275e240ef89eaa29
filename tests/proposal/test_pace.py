"""The pace of this machine."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from stages.core.artifacts import Json
from stages.proposal.design import Budget, Pace
from stages.proposal.flags import Flags
from stages.proposal.pace import measured
from stages.proposal.propose import propose
from tests.labelled_files import classified, paced


def measured_with(path: str) -> tuple[Json, Sequence[Budget]]:
    """Returns what the pace of a study of these data is measured with."""
    calls: list[tuple[Json, Sequence[Budget]]] = []

    def measure(raw: Json, budgets: Sequence[Budget]) -> Pace:
        calls.append((raw, budgets))
        return paced(raw, budgets)

    propose(Path(path), Flags(), corpus=None, seconds=600, measure=measure)
    (call,) = calls
    return call


@pytest.mark.slow
def test_measured_has_a_time_for_every_architecture_and_budget() -> None:
    Path("a.csv").write_text(classified())
    raw, _ = measured_with("a.csv")
    task = raw["tasks"]["a"] | {"num_train": 4000}  # enough rows for more than 500 steps
    pace = measured(raw | {"tasks": {"a": task}}, [100, 4000])
    assert pace.step_s.keys() == {"modernbert", "phi"} and min(pace.step_s.values()) > 0
    for architecture in pace.step_s:
        few, many = (pace.trials_s[architecture, budget] for budget in (100, 4000))
        assert 0 < 2 * few < many  # 500 and 2,000 steps
