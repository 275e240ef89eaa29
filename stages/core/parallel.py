"""Work on the parts of something large by processes side by side, in the order of the parts."""

import gc
import os
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, TypeVar

from stages.core.process import die_with_parent

PART_BYTES = 2**20  # of a part: some tenths of a second of work
HERE_BYTES = 2**23  # some seconds of work; less is done sooner than processes start
LARGE_BYTES = 2**26  # of a part that is not sent to another process, which would double its memory
WAITING_BYTES = 2**21  # for each process: parts that it works on or that wait, and their results
MOST_PROCESSES = 16  # more would wait for the one that reads and writes for them
P = TypeVar("P")
R = TypeVar("R")


def cores() -> int:
    """How many cores this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))  # which a scheduler may have cut
    return os.cpu_count() or 1


def visible_gpus() -> list[str]:
    """Of this machine; without importing torch, which would keep memory on each of them."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name for name in visible.split(",") if name]
    if not shutil.which("nvidia-smi"):
        return []
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    lines = listed.stdout.splitlines() if listed.returncode == 0 else []
    return [str(index) for index, line in enumerate(lines) if line.startswith("GPU ")]


def in_order(
    work: Callable[[P], R],
    parts: Iterable[P],
    size: Callable[[P], int],
    *,
    processes: int | None = None,
) -> Generator[R, None, None]:
    """``work(part)`` for each part, in the order of the parts whatever the number of processes.

    ``size`` is the bytes of a part. The first ``HERE_BYTES`` are worked on here; if there are more,
    processes are started, one for each core, and as many parts are read ahead as keep them busy.
    (``Executor.map`` and ``multiprocessing.Pool.imap`` read all of them.)

    Raises what ``work`` raises at the first part where it does, and ValueError if a process was
    killed.
    """
    processes = min(cores(), MOST_PROCESSES) if processes is None else processes
    parts = iter(parts)
    done = 0
    for part in parts:
        done += size(part)
        with _without_collection():
            result = work(part)
        yield result
        del result
        if done >= HERE_BYTES and processes > 1:
            break
    else:
        return
    # A forked child starts at once and shares what was loaded; it runs none of the threads that
    # may be here.
    context = get_context("fork" if sys.platform == "linux" else "spawn")
    pool = ProcessPoolExecutor(processes, context, initializer=_start, initargs=(work,))
    try:
        yield from _ordered(pool, work, parts, size, WAITING_BYTES * processes)
    except BrokenProcessPool:
        raise ValueError(
            "a process of this stage was killed, perhaps for want of memory; run `dvc repro` again"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def grouped(items: Iterable[P], size: Callable[[P], int]) -> Iterator[list[P]]:
    """Items side by side, so many that each group has ``PART_BYTES``."""
    group: list[P] = []
    total = 0
    for item in items:
        group.append(item)
        total += size(item)
        if total >= PART_BYTES:
            yield group
            group, total = [], 0
    if group:
        yield group


def _ordered(
    pool: ProcessPoolExecutor,
    work: Callable[[P], R],
    parts: Iterator[P],
    size: Callable[[P], int],
    most_waiting: int,
) -> Iterator[R]:
    waiting: deque[tuple[int, Future[R]]] = deque()
    total = 0

    def next_result() -> R:
        nonlocal total
        number, future = waiting.popleft()
        total -= number
        return future.result()

    for part in parts:
        number = size(part)
        is_large = number > LARGE_BYTES
        while waiting and (is_large or total + number > most_waiting):
            yield next_result()
        if is_large:
            yield work(part)
        else:
            waiting.append((number, pool.submit(_do, part)))
            total += number
        del part  # while the next one is read
    while waiting:
        yield next_result()


@contextmanager
def _without_collection() -> Iterator[None]:
    """Work on text makes many objects, hardly one in a cycle; to look for cycles takes a third of
    the time of encoding."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


_work: Callable[[Any], Any]  # of a process of the pool


def _start(work: Callable[[Any], Any]) -> None:
    global _work
    _work = work
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends at once and says nothing
    gc.disable()


def _do(part: Any) -> Any:
    return _work(part)
