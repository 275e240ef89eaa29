"""Work spread over processes gives the results of one process, in the same order."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stages.core import parallel
from stages.core.parallel import grouped, in_order, visible_gpus

pytestmark = pytest.mark.slow  # these tests start processes


@pytest.fixture(autouse=True)
def processes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "HERE_BYTES", 1)


def square(number: int) -> tuple[int, int]:
    time.sleep(0.01 if number % 5 == 0 else 0)  # later numbers are done first
    return number**2, os.getpid()


def one(_: object) -> int:
    return 1


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_in_order_keeps_the_order_of_the_parts(processes: int) -> None:
    results = list(in_order(square, range(60), one, processes=processes))
    assert [result for result, _ in results] == [number**2 for number in range(60)]
    others = {process for _, process in results} - {os.getpid()}
    assert len(others) <= processes and bool(others) == (processes > 1)


def test_in_order_does_a_little_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "HERE_BYTES", 10)
    here = [process == os.getpid() for _, process in in_order(square, range(20), one, processes=2)]
    assert here == [True] * 10 + [False] * 10


def test_in_order_does_not_send_a_large_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "LARGE_BYTES", 5)
    results = [*in_order(square, range(12), lambda number: number, processes=2)]
    assert [result for result, _ in results] == [number**2 for number in range(12)]
    assert {process for _, process in results[6:]} == {os.getpid()}


def test_in_order_reads_no_more_than_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "WAITING_BYTES", 3)
    read = 0

    def parts() -> Iterator[int]:
        nonlocal read
        for number in range(1000):
            read += 1
            yield number

    for done, _ in enumerate(in_order(square, parts(), one, processes=2), 1):
        assert read - done <= 2 * 3 + 1


def fail_from_7(number: int) -> int:
    if number >= 7:
        raise ValueError(f"fault {number}")
    return number


@pytest.mark.parametrize("processes", [1, 2])
def test_in_order_raises_the_first_fault_after_what_is_before_it(processes: int) -> None:
    results = in_order(fail_from_7, range(30), one, processes=processes)
    assert [next(results) for _ in range(7)] == list(range(7))
    with pytest.raises(ValueError, match="^fault 7$"):
        next(results)


def end(number: int) -> int:
    if number == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_in_order_names_a_killed_process() -> None:
    with pytest.raises(ValueError, match="killed.*run `dvc repro` again"):
        list(in_order(end, range(1, 9), one, processes=2))


def test_grouped_has_at_most_so_many_bytes_in_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "PART_BYTES", 10)
    items = ["abc", "defgh", "ij", "klmnopqrstuvw", "x"]
    assert list(grouped(items, len)) == [items[:3], items[3:4], items[4:]]
    assert list(grouped([], len)) == []


@pytest.mark.parametrize(
    ("environment", "listed", "expected"),
    [
        ({"CUDA_VISIBLE_DEVICES": "3,5"}, None, ["3", "5"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, None, []),
        ({}, "GPU 0: A (UUID: x)\nGPU 1: B (UUID: y)", ["0", "1"]),
        ({}, None, []),
    ],
)
def test_visible_gpus(
    environment, listed, expected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if listed:
        command = tmp_path / "nvidia-smi"
        command.write_text(f"#!/bin/sh\n/bin/echo '{listed}'\n")
        command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert visible_gpus() == expected
