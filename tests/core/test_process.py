"""What stages read and write: whole files or none, text in UTF-8, the same random numbers; and the
process of a stage: its lock, its mistakes, its end by a signal or with its parent."""

import os
import signal
import subprocess
import sys
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch

from stages.core import process
from stages.core.artifacts import replacing, whole_contents, write_contents
from stages.core.parallel import cores, most_jobs, visible_gpus
from stages.core.params import Compute, Distributed
from stages.core.plans import Plan, path_of
from stages.core.process import exit_on_mistake, hold, run_stage
from stages.core.seeding import derive, stream, torch_stream
from stages.core.text_files import OTHER_FILES, text_lines


def test_replacing_keeps_the_old_if_the_new_is_not_finished(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    with pytest.raises(RuntimeError), replacing(target) as new:
        new.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old" and [*tmp_path.iterdir()] == [target]


def test_replacing_leaves_nothing_of_the_old_or_of_an_interrupted_writer(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    (tmp_path / ".folder.partial").mkdir()
    (tmp_path / ".folder.partial" / "left").touch()
    for name in ("a", "b"):
        with replacing(target) as new:
            new.mkdir()
            (new / name).touch()
    assert [path.name for path in target.iterdir()] == ["b"]
    with replacing(target) as new:
        new.write_text("a file in place of a folder")
    assert target.is_file() and [*tmp_path.iterdir()] == [target]


def test_whole_contents_are_none_if_a_file_is_lost_or_damaged(tmp_path: Path) -> None:
    file = tmp_path / "entry/below/a"
    file.parent.mkdir(parents=True)
    file.write_text("1")
    write_contents(tmp_path / "entry")
    assert whole_contents(tmp_path / "entry") == ["below/a"]
    file.write_text("2")
    assert whole_contents(tmp_path / "entry") is None
    file.unlink()
    assert whole_contents(tmp_path / "entry") is whole_contents(tmp_path) is None


@pytest.mark.parametrize("content", [*OTHER_FILES, "Größe".encode("cp1252"), b"a\0b"])
def test_text_lines_names_files_that_are_no_text(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(content + b"\n")
    with pytest.raises(ValueError, match="a.csv line 1: "):
        list(text_lines(tmp_path / "a.csv"))


def test_stream_depends_on_its_key_alone() -> None:
    """Also in another process: the number is from an earlier one."""
    keys: list[Any] = [(1, "ab", "c"), (1, "a", "bc"), (1, "a", 23), (12, "a", 3), (1, "a")]
    draws = [stream(*key).integers(2**40) for key in keys]
    assert draws == [stream(*key).integers(2**40) for key in keys]
    assert len({*draws}) == len(keys) == len({derive(*key) for key in keys})
    assert stream(7, "x", 3).integers(2**40) == 956909663061
    weights = [torch.rand(2, generator=torch_stream(seed, "w")) for seed in (1, 1, 2)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


# The process of a stage ---------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]


def test_exit_on_mistake_prints_one_line(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    """The traceback of an error that is no mistake of the user goes to a file."""
    monkeypatch.setattr(process, "TRACEBACKS", tmp_path)
    for fails, status, line in (
        (lambda: int("study: wrong"), 2, "error: invalid literal for int() with base 10"),
        (lambda: {}["lost"], 1, f"error: KeyError: 'lost' (traceback: {tmp_path}"),
    ):
        with pytest.raises(SystemExit) as ended:
            exit_on_mistake(fails)
        (printed,) = capsys.readouterr().err.splitlines()
        assert ended.value.code == status and printed.startswith(line)
        assert len([*tmp_path.glob("*")]) == (status == 1)


def main(plan: Plan, key: str, *, seed: int | None = None) -> str:
    return f"{key} of {plan.code}, seed {seed}"


@pytest.mark.parametrize(("options", "part"), [([], ""), (["--seed", "3"], "3")])
def test_run_stage_reads_its_plan_and_notes_the_time_of_its_part(
    options: list[str], part: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(process, "die_with_parent", lambda: None)
    monkeypatch.setattr(sys, "argv", ["stage", "own", *options])
    plan = path_of("test_process", "own")
    plan.parent.mkdir(parents=True)
    plan.write_text('{"code": {}}')
    run_stage(main, Plan, "key", number=("seed", "a seed"))
    begin, end = capsys.readouterr().out.splitlines()
    assert begin.endswith(f" ({' '.join(['test_process', 'own', part]).strip()})")
    assert end.endswith(f" s: own of {{}}, seed {part or None}")
    name = "-".join(filter(None, ["own", part]))
    assert [file.name for file in process.TIMES.iterdir()] == [f"test_process@{name}.json"]
    assert [file.name for file in process.LOCKS.iterdir()] == [f"test_process-{name}.lock"]


def _hold(file: Path, pipe: Any) -> None:
    with hold(file):
        pipe.send("held")
        pipe.recv()


def test_hold_names_the_process_that_it_waits_for(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(process, "WAIT_S", 0.2)
    file = tmp_path / "locks" / "a.lock"
    ours, theirs = get_context("fork").Pipe()
    other = get_context("fork").Process(target=_hold, args=(file, theirs))
    other.start()
    ours.recv()
    with pytest.raises(ValueError) as refused, hold(file):
        pass
    assert f"`kill {other.pid}`" in str(refused.value) and str(file) in str(refused.value)
    ours.send("end")
    other.join()
    with hold(file):
        assert f"process {os.getpid()} " in file.read_text()


def test_most_jobs_have_a_gpu_each_of_those_that_this_process_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or all of them, if a pretraining has several."""
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\n/bin/echo 'GPU 0: A (UUID: x)\nGPU 1: B (UUID: y)'\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpus() == ["0", "1"]
    assert [most_jobs(Compute(), Distributed(devices=number)) for number in (1, 2)] == [2, 1]
    for visible in ([], ["3", "4", "5"]):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(visible))
        assert visible_gpus() == visible
        assert most_jobs(Compute(), Distributed()) == (len(visible) or cores())


@pytest.mark.slow
@pytest.mark.parametrize(("variables", "dies"), [({"DVC_STAGE": "a"}, True), ({}, False)])
def test_importing_stages_ends_a_stage_whose_dvc_is_dead(variables: Any, dies: bool) -> None:
    """A stage that is run by hand, without DVC_STAGE, outlives its parent."""
    # The parent leads its own process group, as a DVC of a shell or a scheduler does.
    late = f"os.environ.update({variables}); print(os.getpid(), flush=True); time.sleep(0.3)"
    child = f"{late}; os.execv(sys.executable, [sys.executable, '-c', 'import stages; print(1)'])"
    parent = f"import os, sys, time\nos.setpgrp()\nif not os.fork(): exec({child!r})"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    environment.pop("DVC_STAGE", None)
    command = [sys.executable, "-c", f"{parent}\ntime.sleep(60)"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as dvc:
        assert dvc.stdout and int(dvc.stdout.readline()) != dvc.pid
        dvc.kill()
        dvc.wait()
        assert dvc.stdout.readline() == ("" if dies else "1\n")


@pytest.mark.slow
def test_held_signals_give_time_to_save() -> None:
    saves = """import os, signal; from stages.core.ending import held_signals
with held_signals() as came:
    os.kill(os.getpid(), signal.SIGTERM)
    print(*map(int, came), flush=True)
print("is not reached")"""
    done = subprocess.run([sys.executable, "-c", saves], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == (f"{int(signal.SIGTERM)}\n", -signal.SIGTERM)
