"""The processes of one pretraining: how they start, what they report, and that none is left."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from stages import pretrain
from stages.core import paths
from stages.core.artifacts import read_json
from stages.core.keys import RunKey
from stages.core.params import Compute, Distributed, Params
from stages.core.study_file import load
from stages.text.corpus import encode
from stages.training.launch import rank_to_run
from tests import warm_python
from tests.core.test_ending import lives
from tests.small import documents, saved, small_tokenizer
from tests.small_study import run_stage, write_corpus, write_inputs
from tests.smoke import alone, with_values, write_plans

ROOT = Path(__file__).parents[2]
RUN = "decoder_causal"
SMALL = {
    "compute.threads": 2,
    "compute.device": "cpu",
    "compute.precision": "float32",
    "tokenizers.unigram.vocab_size": 600,
    "distributed.devices": 2,
    "pretrain.matched": "none",
    "pretrain.reference": RUN,
    f"pretrain.runs.{RUN}.training.num_steps": 4,
    f"pretrain.runs.{RUN}.training.micro_batch_rows": 4,
}
WEIGHTS = paths.pretrained(RunKey(RUN, 1)) / "model.safetensors"


def compute(**changes: object) -> Compute:
    settings = {"device": "cpu", "precision": "float32", "compile": False, "threads": 2}
    return Compute.model_validate(settings | {"trial_threads": 1} | changes)


def distributed(**changes: object) -> Distributed:
    return Distributed.model_validate({"devices": 1, "num_nodes": 1, "strategy": "ddp"} | changes)


@pytest.fixture
def unranked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unsets the variables of a process that was started as a rank."""
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("unranked")
@pytest.mark.parametrize(
    ("changes", "path", "word"),
    [
        ({"devices": 3}, "distributed.devices", "1 to 2"),
        ({"num_nodes": 2}, "distributed.num_nodes", "srun"),
    ],
)
def test_rank_to_run_refuses_what_cannot_start_here(changes, path, word) -> None:
    with pytest.raises(ValueError, match=word) as refused:
        rank_to_run(compute(), distributed(**changes), trains=True)
    assert str(refused.value).startswith(f"{path}: ")
    assert rank_to_run(compute(), distributed(**changes), trains=False) == 0


@pytest.mark.usefixtures("unranked")
def test_rank_to_run_refuses_another_number_of_processes(monkeypatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert rank_to_run(compute(), distributed(devices=2), trains=True) == 1
    assert rank_to_run(compute(), distributed(devices=2), trains=False) is None
    with pytest.raises(ValueError, match=r"^distributed: "):
        rank_to_run(compute(), distributed(), trains=True)


@pytest.mark.usefixtures("unranked")
@pytest.mark.parametrize(
    ("code", "status", "heard", "quiet"),
    [
        ("pass", None, [], ["error"]),
        ("raise SystemExit(rank and 'error: of one')", 1, ["error: of one"], []),
        ("os.kill(os.getpid(), 9 * rank) or time.sleep(60)", 137, ["SIGKILL"], []),
        ("time.sleep(60 * rank); sys.exit('error: of the first')", 1, ["of the first"], []),
        ("print(f'warning of {rank}', file=sys.stderr)", None, ["of 0"], ["of 1"]),
    ],
)
def test_rank_to_run_ends_all_ranks_when_one_fails(
    monkeypatch, capfd, code, status, heard, quiet
) -> None:
    imports = "import os, sys, time; rank = int(os.environ['RANK'])"
    monkeypatch.setattr(sys, "orig_argv", ["python", "-c", f"{imports}; {code}"])
    begin = time.monotonic()
    ended = None
    try:
        assert rank_to_run(compute(), distributed(devices=2), trains=True) is None
    except SystemExit as error:
        ended = error.code
    assert ended == status
    assert time.monotonic() - begin < 50
    errors = capfd.readouterr().err
    assert all(errors.count(text) == 1 for text in heard)
    assert not any(text in errors for text in quiet)


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_ranks_end_with_the_process_that_started_them(tmp_path, sent) -> None:
    code = (
        "import os, pathlib, time\n"
        "if 'RANK' not in os.environ:\n"
        "    from stages.training import launch\n"
        "    launch._run_ranks(2)\n"
        "pathlib.Path(os.environ['RANK']).write_text(str(os.getpid()))\n"
        "time.sleep(600)"
    )
    environment = {key: value for key, value in os.environ.items() if key != "RANK"}
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    try:
        files = [tmp_path / "0", tmp_path / "1"]
        until(lambda: all(file.exists() and file.read_text() for file in files))
        ranks = [int(file.read_text()) for file in files]
        assert all(lives(rank) for rank in ranks)
        parent.send_signal(sent)
        assert parent.wait(timeout=60) != 0
        until(lambda: not any(lives(rank) for rank in ranks))
    finally:
        parent.kill()


def until(true) -> None:
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


# The stage ---------------------------------------------------------------------------------------


@pytest.fixture
def study(tmp_path, monkeypatch) -> Params:
    """The smoke study with its decoder alone and two processes, in a folder with its inputs."""
    path = with_values(tmp_path, SMALL)
    monkeypatch.chdir(tmp_path)
    write_corpus()
    params = alone(load(path), RUN)
    write_inputs(params)
    return params


def start(*command: str, **variables: str) -> subprocess.Popen[str]:
    """A process in the folder of the study, with this project's stages."""
    unset = ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
    environment = {key: value for key, value in os.environ.items() if key not in unset}
    return subprocess.Popen(
        [warm_python.commands() / "python", "-m", *command],
        # As in dvc.yaml: threads that wait do not spin.
        env=environment | {"GOMP_SPINCOUNT": "1000"} | variables,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(*processes: subprocess.Popen[str]) -> str:
    """Returns the errors that processes wrote, and checks that all ended well."""
    errors = [process.communicate(timeout=500)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), errors
    return "".join(errors)


def with_distributed(study: Params, **changes: object) -> Params:
    """Returns the study with changed settings of its processes, and writes its plans."""
    study = study.model_copy(update={"distributed": distributed(**changes)})
    write_plans(study)
    return study


@pytest.mark.slow
@pytest.mark.usefixtures("unranked")
def test_pretrain_gives_the_same_however_its_processes_start(study) -> None:
    """Two ranks of our own, of torchrun or of srun (these two sharded) equal one process."""
    threads = torch.get_num_threads()
    run_stage(with_distributed(study), pretrain, RUN)
    torch.set_num_threads(threads)
    expected, metrics = load_file(WEIGHTS), read_json(WEIGHTS.parent / "metrics.json")
    fingerprint = read_json(WEIGHTS.parent / "run.json")["fingerprint"]

    def check(strategy: str) -> None:
        weights = load_file(WEIGHTS)
        for name, weight in expected.items():
            other = weights[name]
            if name.endswith("key_value.bias"):
                # The softmax ignores what all keys have in common: the gradient of their bias is a
                # rounding error, which Adam turns into a whole step.
                weight, other = (bias.chunk(2)[1] for bias in (weight, other))
            torch.testing.assert_close(other, weight, rtol=1e-4, atol=2e-5, msg=name)
        account = read_json(WEIGHTS.parent / "metrics.json")
        assert account["pretrain_flops"] == metrics["pretrain_flops"]
        assert account["validation_loss"] == pytest.approx(metrics["validation_loss"], rel=1e-5)
        record = read_json(WEIGHTS.parent / "run.json")
        assert record["fingerprint"] == fingerprint, "what one process has saved, two go on with"
        about = record["settings"]["distributed"]
        assert (about["devices"], about["strategy"]) == (2, strategy)
        shutil.rmtree(WEIGHTS.parent)
        shutil.rmtree(".scratch/checkpoints")

    with_distributed(study, devices=2)
    assert ended(start("stages.pretrain", RUN)) == ""
    check("ddp")
    with_distributed(study, devices=2, strategy="fsdp")
    ended(
        start(
            *("torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
            *("-m", "stages.pretrain", RUN),
        )
    )
    check("fsdp")
    slurm = {
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_NODELIST": "localhost",
    }
    ended(
        *(
            start("stages.pretrain", RUN, **slurm, SLURM_PROCID=str(i), SLURM_LOCALID=str(i))
            for i in range(2)
        )
    )
    check("fsdp")


@pytest.mark.slow
@pytest.mark.usefixtures("unranked")
def test_pretrain_reports_a_mistake_of_all_ranks_once(study) -> None:
    shutil.rmtree("data/encoded/prose/unigram/validation")
    few = encode(documents()[:1], small_tokenizer())
    saved(few, Path("data/encoded/prose/unigram/validation"), max_tokens=4)
    assert study.distributed.devices == 2
    process = start("stages.pretrain", RUN)
    _, errors = process.communicate(timeout=500)
    assert process.returncode == 2
    assert errors.count(f"error: pretrain.runs.{RUN}.corpus") == 1
    assert "Traceback" not in errors
