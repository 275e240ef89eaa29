"""Processes that run in parallel, each with one job."""

import os
import sys
from collections.abc import Callable, Generator, Sequence
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from stages.core.ending import die_with_parent

J = TypeVar("J")
R = TypeVar("R")

IMPORTED_BY_TRIALS = ("sklearn.linear_model", "torch._dynamo")  # probes and AdamW load them


def each(
    work: Callable[[J], R], jobs: Sequence[J], *, at_once: int, late_imports: Sequence[str] = ()
) -> Generator[tuple[J, R | ValueError], None, None]:
    """Yields each job with its result as soon as it has ended, while the other jobs go on. The
    result is a ValueError if the job raised one (a user's mistake), or if its process was killed
    or ended by another error.

    Each job has a process of its own, so that the memory that one job held does not count in the
    peak of the next, and a killed process costs only its own job. (ProcessPoolExecutor and
    multiprocessing.Pool keep their processes, and a killed one breaks or blocks them.) If
    ``at_once`` is 1, the jobs run in this process.

    ``late_imports`` are modules that most jobs import when they need them. They are imported once,
    in this process, because a forked child has the modules of its parent.
    """
    if at_once == 1:
        for job in jobs:
            yield job, _result(work, job)
        return
    # A forked child starts fast. Forking is safe here: this process has started no threads before.
    context = get_context("fork" if sys.platform == "linux" else "spawn")
    if jobs and sys.platform == "linux":
        for name in late_imports:
            import_module(name)
    waiting = list(reversed(jobs))
    running = dict[Any, tuple[J, BaseProcess]]()  # by the pipe's end that gets the result
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                receiver, sender = context.Pipe(duplex=False)
                job = waiting.pop()
                process = context.Process(target=_child, args=(work, job, sender, os.getpid()))
                process.start()
                sender.close()  # else a dead child would go unnoticed
                running[receiver] = job, process
            ended: list[Any] = wait([*running])
            for receiver in ended:
                job, process = running.pop(receiver)
                try:
                    result = receiver.recv()
                except EOFError:
                    process.join()
                    result = ValueError(f"its process ended with exit code {process.exitcode}")
                receiver.close()
                process.join()
                yield job, result
    finally:
        for _, process in running.values():
            process.kill()
            process.join()


def _child(work: Callable[[J], R], job: J, sender: Any, parent: int) -> None:
    die_with_parent(parent)
    sender.send(_result(work, job))


def _result(work: Callable[[J], R], job: J) -> R | ValueError:
    try:
        return work(job)
    except ValueError as error:
        return error
