"""Which trials run in one process."""

import pytest

from stages.core.params import Params
from stages.trials.groups import trial_groups
from tests.synthetic_study import raw_params


def test_trials_that_share_a_backbone_share_a_process() -> None:
    raw = raw_params()
    raw["finetune"] |= {"label_budgets": [200, "all"], "seeds": [1, 2, 3]}
    params = Params(**raw)

    def groups(run: str) -> list[list[tuple[str, int]]]:
        found = trial_groups(params, run, ["full", "linear_probe"])
        assert [len({key.method for key in group}) for group in found] == [1] * len(found)
        full = [group for group in found if group[0].method == "full"]
        assert [len(group) for group in full] == [1] * 6
        probes = [group for group in found if group[0].method == "linear_probe"]
        return [[(key.label_budget, key.finetune_seed) for key in group] for group in probes]

    (shared,) = groups("encoder_mlm")
    assert shared == [(budget, seed) for budget in ("200", "all") for seed in (1, 2, 3)]
    assert groups("encoder_scratch") == [[("200", s), ("all", s)] for s in (1, 2, 3)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"parent": "other"}, False),  # whose weights it has
        ({"objective": {"name": "mlm"}}, False),
        ({"model": {"name": "hub", "path": "p", "revision": "r"}}, False),
    ],
)
def test_from_scratch_is_without_objective_and_parent(changes, expected) -> None:
    run = Params(**raw_params()).pretrain["encoder_scratch"].model_copy(update=changes)
    assert run.from_scratch == expected
