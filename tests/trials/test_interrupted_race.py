"""A race between runs that is killed: it ends as one in one go."""

import time
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from stages.core.artifacts import remove
from stages.core.params import Params, Race
from stages.evaluation import records
from stages.trials.groups import UNFINISHED
from stages.trials.store import ADDRESS
from tests.small_study import write_pair
from tests.trials import saving_each_step

pytestmark = pytest.mark.slow

TASK, SEEDS, MOST = "section", [1, 2, 3], 6
STORE, RESULT = Path(".scratch/trials"), Path("data/finetuned") / TASK


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """Full fine-tuning of an encoder and a decoder, which are too alike for one to be out; and
    probes, which are not raced. Two trials run side by side."""
    monkeypatch.chdir(tmp_path)
    params = write_pair(tmp_path)
    tuned = params.finetune.model_copy(update={"seeds": SEEDS, "race": Race(most=MOST)})
    compute = params.compute.model_copy(update={"threads": 2})
    return params.model_copy(update={"finetune": tuned, "compute": compute})


def started(params: Params) -> BaseProcess:
    context = get_context("forkserver")
    context.set_forkserver_preload([saving_each_step.__name__])
    process = context.Process(target=saving_each_step.fine_tune, args=(params, TASK))
    process.start()
    return process


def num_stored() -> int:
    return sum(bool(ADDRESS.fullmatch(path.name)) for path in STORE.glob("*"))


def results() -> dict[str, bytes]:
    files = [file for file in RESULT.rglob("*") if file.is_file()]
    return {file.relative_to(RESULT).as_posix(): file.read_bytes() for file in files}


def kill_within_a_trial(process: BaseProcess, after: int) -> None:
    """As soon as the store has ``after`` trials and the next one has begun."""
    while num_stored() < after or not any(UNFINISHED.rglob("*.safetensors")):
        assert process.is_alive(), "it ended before it could be killed"
        time.sleep(0.002)
    process.kill()
    process.join()


def test_it_ends_as_if_it_had_not_been(params: Params) -> None:
    """Killed twice inside trials with seeds that the race adds: the scores, histories, predictions
    and weights of every run are the same bytes."""
    process = started(params)
    process.join()
    assert process.exitcode == 0
    at_once, num = results(), num_stored()
    trials = records.read(RESULT / "decoder/trials.csv", records.TrialRecord)
    raced = [trial.finetune_seed for trial in trials if trial.method == "full"]
    assert raced[: len(SEEDS)] == SEEDS and len(raced) > len(SEEDS) + 1, "there is no race"
    first = len(params.pretrain) * len(params.finetune.methods) * len(SEEDS)
    remove(STORE)
    remove(RESULT)
    for after in (first + 1, first + 1 + len(params.pretrain)):
        kill_within_a_trial(started(params), after)
        assert not any((RESULT / run).exists() for run in params.pretrain)
        assert after <= num_stored() < num
    process = started(params)
    process.join()
    assert process.exitcode == 0
    assert at_once.keys() > {"decoder/trials.csv", "decoder/predictions.csv.gz"}
    assert results() == at_once
    assert num_stored() == num and not any(UNFINISHED.iterdir())
