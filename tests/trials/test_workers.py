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
def test_each_job_has_its_result_or_its_mistake(at_once: int) -> None:
    found = dict(workers.each(process_of, [1, -2, 3, 4], at_once=at_once))
    assert found.keys() == {1, -2, 3, 4}
    mistake = found.pop(-2)
    assert isinstance(mistake, ValueError) and str(mistake) == "-2 is below 0"
    results = [result for result in found.values() if not isinstance(result, ValueError)]
    assert sorted(job for job, _ in results) == [1, 3, 4]
    here = {process == os.getpid() for _, process in results}
    assert here == {at_once == 1}
    assert len({process for _, process in results}) == (1 if at_once == 1 else 3)


def test_a_process_that_dies_costs_its_own_job() -> None:
    found = dict(workers.each(process_of, [1, 99, 98, 4], at_once=2))
    assert "signal 9" in str(found[99]) and "exit status 3" in str(found[98])
    assert not isinstance(found[1], ValueError) and not isinstance(found[4], ValueError)


def is_imported(module: str) -> bool:
    return module in sys.modules


def test_what_jobs_import_late_is_there_before_they_begin(monkeypatch) -> None:
    """Where they are forks."""
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    assert dict(workers.each(is_imported, ["colorsys"], at_once=2)) == {"colorsys": False}
    found = workers.each(is_imported, ["colorsys"], at_once=2, late_imports=("colorsys",))
    assert dict(found) == {"colorsys": sys.platform == "linux"}


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


def test_jobs_run_side_by_side_and_begin_in_their_order(tmp_path: Path) -> None:
    # The first two wait for each other. The first then waits until all others have ended.
    first, second, third, last, go = (tmp_path / name for name in ["1", "2", "3", "4", "go"])
    jobs = [(first, go), (second, first), (third, None), (last, None)]
    found = []
    for _, result in workers.each(meets, jobs, at_once=2):
        found.append(result)
        if result == "4":
            go.touch()
    assert found == ["2", "3", "4", "1"]


def test_none_is_left_when_the_caller_stops() -> None:
    before = {*psutil.Process().children()}
    jobs = workers.each(naps, [0.1, 60.0, 60.0], at_once=2)
    assert next(jobs)[0] == 0.1
    jobs.close()
    assert not {*psutil.Process().children()} - before


@pytest.mark.slow
def test_none_is_left_when_the_caller_is_killed(tmp_path: Path) -> None:
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
