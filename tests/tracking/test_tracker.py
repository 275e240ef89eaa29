import time

import pytest

from stages.core.keys import CheckpointKey
from stages.core.params import Params
from stages.tracking.tracker import Tracker
from stages.tracking.view import reconcile
from tests.tracking.tracked_study import LOSSES, SETTINGS, current, curve, shown

pytestmark = pytest.mark.slow


def tracker(delay_s: float = 0) -> Tracker:
    return Tracker(
        "smoke",
        CheckpointKey("encoder_mlm", 1),
        params=SETTINGS | {"objective": {"name": "mlm"}},
        tags={"architecture": "encoder", "corpus": "all"},
        fingerprint="a" * 8,
        delay_s=delay_s,
    )


def test_tracker_mirrors_a_training_into_the_run_that_is_reconciled(params: Params) -> None:
    before = time.time()
    with tracker(delay_s=1) as live:
        for step, loss in LOSSES:
            live.log(step, {"loss": loss, "lr": 0.003})
        time.sleep(1.5)
    (run,) = shown()
    assert run.data.tags["study"] == "smoke" and run.data.tags["pretrain_seed"] == "1"
    assert before <= run.info.start_time / 1000 + 0.001 < before + 1  # not when it was first seen
    assert (run.info.status, run.data.tags["current"]) == ("FINISHED", "true")
    assert curve(run, "loss/mlm") == LOSSES
    reconcile(params)
    reconciled = current()["pretrain encoder_mlm, seed 1"]
    assert reconciled.info.run_id == run.info.run_id
    assert reconciled.info.end_time == run.info.end_time
    assert curve(run, "loss/mlm") == LOSSES


def test_tracker_goes_on_in_the_same_run_after_an_interruption(params: Params) -> None:
    with pytest.raises(ArithmeticError), tracker() as live:
        live.log(1, {"loss": 3.0})
        raise ArithmeticError
    (run,) = shown()
    assert run.info.status == "FAILED" and "current" not in run.data.tags
    with tracker() as live:
        live.log(1, {"loss": 3.0})  # again: the checkpoint was older
        live.log(2, {"loss": 2.0})
    (run,) = shown()
    assert run.info.status == "FINISHED"
    assert curve(run, "loss/mlm") == [(1, 3.0), (2, 2.0)]
