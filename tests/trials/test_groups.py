"""The trials that run in one process, and the runs that draw new weights for each trial."""

from typing import Any

import pytest

from stages.core.keys import RunKey
from stages.core.study_file import load
from stages.trials.groups import trial_groups
from tests.smoke import SMOKE
from tests.trials.small_trials import TRAINING, plan_of


@pytest.mark.parametrize("from_scratch", [False, True])
def test_trial_groups_share_a_process_where_trials_share_a_frozen_backbone(
    from_scratch: bool,
) -> None:
    methods: dict[str, Any] = {"full": {"training": TRAINING}, "linear_probe": {}}
    finetune = plan_of(methods, label_budgets=[200, "all"], seeds=[1, 2, 3]).finetune
    checkpoint = RunKey("encoder_mlm", 7)
    groups = trial_groups(finetune, checkpoint, "tag", methods, from_scratch=from_scratch)
    assert {key.checkpoint for group in groups for key in group} == {checkpoint}
    cells = [[(k.method, k.label_budget, k.finetune_seed) for k in group] for group in groups]
    keys = [(budget, seed) for budget in ("200", "all") for seed in (1, 2, 3)]
    assert cells[:6] == [[("full", *key)] for key in keys]
    by_seed = [[("200", seed), ("all", seed)] for seed in (1, 2, 3)]
    assert cells[6:] == [
        [("linear_probe", *key) for key in group] for group in (by_seed if from_scratch else [keys])
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"parent": "other"}, False),  # it has the weights of its parent
        ({"objective": {"name": "mlm"}}, False),
        ({"architecture": {"name": "hub", "path": "p", "revision": "r"}}, False),
    ],
)
def test_from_scratch_is_without_objective_parent_and_published_weights(
    changes: dict[str, Any], expected: bool
) -> None:
    run = load(SMOKE).runs["encoder_scratch"].model_copy(update=changes)
    assert run.from_scratch == expected
