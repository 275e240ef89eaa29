"""Processes that work side by side."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from stages.trials import workers

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow  # they start processes


def process_of(job: int) -> tuple[int, int]:
    if job < 0:
        raise ValueError(f"{job} is below 0")
    if job == 99:
        os.kill(os.getpid(), signal.SIGKILL)
    if job == 98:
        os._exit(3)
    return job, os.getpid()


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_each_yields_the_result_or_the_mistake_of_every_job(at_once: int) -> None:
    by_job = dict(workers.each(process_of, [1, -2, 3, 4], at_once=at_once))
    assert by_job.keys() == {1, -2, 3, 4}
    mistake = by_job.pop(-2)
    assert isinstance(mistake, ValueError) and str(mistake) == "-2 is below 0"
    results = [result for result in by_job.values() if not isinstance(result, ValueError)]
    assert sorted(job for job, _ in results) == [1, 3, 4]
    assert {process == os.getpid() for _, process in results} == {at_once == 1}
    assert len({process for _, process in results}) == (1 if at_once == 1 else 3)


def test_each_loses_only_the_job_of_a_process_that_dies() -> None:
    by_job = dict(workers.each(process_of, [1, 99, 98, 4], at_once=2))
    assert "exit code -9" in str(by_job[99]) and "exit code 3" in str(by_job[98])
    assert not isinstance(by_job[1], ValueError) and not isinstance(by_job[4], ValueError)


def naps(job: float) -> float:
    time.sleep(job)
    return job


def meets(name_and_awaited: tuple[Path, Path | None]) -> str:
    own, awaited = name_and_awaited
    own.touch()
    deadline = time.monotonic() + 60
    while awaited is not None and not awaited.exists():
        if time.monotonic() > deadline:
            raise ValueError(f"{awaited.name} did not come")
        time.sleep(0.01)
    return own.name


def test_each_runs_jobs_in_parallel_and_in_their_order(tmp_path: Path) -> None:
    # The second waits until the first has begun, and the first until the last has ended.
    first, second, third, last, go = (tmp_path / name for name in ["1", "2", "3", "4", "go"])
    jobs = [(first, go), (second, first), (third, None), (last, None)]
    ended = []
    for _, result in workers.each(meets, jobs, at_once=2):
        ended.append(result)
        if result == "4":
            go.touch()
    assert ended == ["2", "3", "4", "1"]


def test_each_leaves_no_process_when_the_caller_stops() -> None:
    before = {*psutil.Process().children()}
    jobs = workers.each(naps, [0.1, 60.0, 60.0], at_once=2)
    assert next(jobs)[0] == 0.1
    jobs.close()
    assert not {*psutil.Process().children()} - before


@pytest.mark.slow
def test_each_leaves_no_process_when_the_caller_is_killed(tmp_path: Path) -> None:
    script = (
        "from tests.trials.test_workers import workers, naps;"
        "[*workers.each(naps, [61.25, 61.25], at_once=2)]"
    )
    caller = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT)
    children: list[psutil.Process] = []
    while len(children) < 2:
        assert caller.poll() is None
        time.sleep(0.05)
        children = psutil.Process(caller.pid).children()
    caller.kill()
    caller.wait()
    gone, alive = psutil.wait_procs(children, timeout=10)
    assert len(gone) == 2 and not alive
