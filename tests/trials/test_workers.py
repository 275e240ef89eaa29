"""Processes that work side by side."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
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
    return job, os.getpid()


@pytest.mark.parametrize("at_once", [1, 2])
def test_each_yields_the_result_or_the_mistake_of_every_job(at_once: int) -> None:
    by_job = dict(workers.each(process_of, [1, -2, 3, 4], at_once=at_once))
    assert str(by_job.pop(-2)) == "-2 is below 0"
    results = [result for result in by_job.values() if not isinstance(result, ValueError)]
    assert sorted(job for job, _ in results) == [1, 3, 4]
    assert {process == os.getpid() for _, process in results} == {at_once == 1}


def test_each_ends_with_an_error_if_a_process_is_killed() -> None:
    with pytest.raises(BrokenProcessPool):
        [*workers.each(process_of, [99, 1, 2, 3], at_once=2)]


def test_each_leaves_no_process_when_the_caller_is_killed() -> None:
    script = "import time; from stages.trials import workers;"
    script += "[*workers.each(time.sleep, [61.25, 61.25], at_once=2)]"
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
