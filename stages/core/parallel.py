"""Parallel work on the parts of something large, with results in the order of the parts."""

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

from stages.core.ending import die_with_parent
from stages.core.params import Compute, Distributed

PART_BYTES = 2**20  # size of a part: some tenths of a second of work
HERE_BYTES = 2**23  # some seconds of work in this process; other processes pay off beyond that
LARGE_BYTES = 2**26  # a larger part is not sent to a process, which would double its memory
WAITING_BYTES = 2**21  # per process: parts in work, or whose result is not yielded yet
MOST_PROCESSES = 16  # more processes would wait for the one that reads and writes
P = TypeVar("P")
R = TypeVar("R")


def cores() -> int:
    """Returns the number of cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))  # a scheduler may allow only some
    return os.cpu_count() or 1


def visible_gpus() -> list[str]:
    """Returns the GPUs that this process may use. Does not use torch, which would occupy memory on
    each GPU."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name for name in visible.split(",") if name]
    if not shutil.which("nvidia-smi"):
        return []
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    lines = listed.stdout.splitlines() if listed.returncode == 0 else []
    return [str(index) for index, line in enumerate(lines) if line.startswith("GPU ")]


def most_jobs(compute: Compute, distributed: Distributed) -> int:
    """Returns the largest number of jobs that share neither a GPU nor a core."""
    if compute.device != "cpu" and (gpus := visible_gpus()):
        return len(gpus) if distributed.devices == 1 else 1  # each of several jobs sees one GPU
    return max(cores() // compute.threads, 1)


def in_order(
    work: Callable[[P], R],
    parts: Iterable[P],
    size: Callable[[P], int],
    *,
    processes: int | None = None,
) -> Generator[R, None, None]:
    """Yields ``work(part)`` for each part, in the order of the parts, however many processes work.

    ``size`` returns the bytes of a part. This process works on the first ``HERE_BYTES``. For more,
    one process per core is started, and enough parts are read ahead to keep the processes busy.
    (``Executor.map`` and ``multiprocessing.Pool.imap`` read all parts at once.)

    Raises the error of ``work`` at the first part that fails, and ValueError if a process was
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
    # A forked child starts at once and shares loaded modules. It runs none of the threads of this
    # process.
    context = get_context("fork" if sys.platform == "linux" else "spawn")
    pool = ProcessPoolExecutor(processes, context, initializer=_start, initargs=(work, os.getpid()))
    try:
        yield from _ordered(pool, work, parts, size, WAITING_BYTES * processes)
    except BrokenProcessPool:
        raise ValueError(
            "a process of this stage was killed, perhaps for lack of memory; run `dvc repro` again"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def grouped(
    items: Iterable[P], size: Callable[[P], int], least: int | None = None
) -> Iterator[list[P]]:
    """Yields groups of consecutive items. A group is complete when its sizes add up to at least
    ``least``, by default PART_BYTES; the last group may be smaller."""
    least = PART_BYTES if least is None else least
    group: list[P] = []
    total = 0
    for item in items:
        group.append(item)
        total += size(item)
        if total >= least:
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
        del part  # frees its memory while the next part is read
    while waiting:
        yield next_result()


@contextmanager
def _without_collection() -> Iterator[None]:
    """Switches garbage collection off. Work on text makes many objects, hardly any of them in
    cycles, and looking for cycles would take a third of the time of encoding."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


_work: Callable[[Any], Any]  # set in each process of the pool


def _start(work: Callable[[Any], Any], parent: int) -> None:
    global _work
    _work = work
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends at once, without a traceback
    gc.disable()


def _do(part: Any) -> Any:
    return _work(part)
