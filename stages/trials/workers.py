"""Processes that run in parallel, one job after the other."""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from typing import TypeVar

from stages.core.ending import die_with_parent

J = TypeVar("J")
R = TypeVar("R")

IMPORTED_BY_TRAININGS = (  # by models, tokenizers, probes and AdamW, when they need them
    *("stages.models._transformer", "transformers.processing_utils"),
    *("transformers.models.auto.tokenization_auto", "sklearn.linear_model", "torch._dynamo"),
)


def each(
    work: Callable[[J], R], jobs: Sequence[J], *, at_once: int
) -> Iterator[tuple[J, R | ValueError]]:
    """Yields each job with its result, or with the ValueError that it raised (a user's mistake), as
    soon as it has ended. If ``at_once`` is 1, the jobs run in this process. A process runs several
    jobs, one after the other, and its peak memory on a CPU is the highest of all its jobs so far.

    Raises what else a job raises, and BrokenProcessPool if a process is killed.
    """
    if at_once == 1:
        for job in jobs:
            yield job, _outcome(partial(work, job))
        return
    # A forked child starts fast. Forking is safe here: this process has started no threads before.
    context = get_context("fork" if sys.platform == "linux" else "spawn")
    number = min(at_once, len(jobs)) or 1
    with ProcessPoolExecutor(number, context, _begin, (os.getpid(),)) as pool:
        ends = {pool.submit(work, job): job for job in jobs}
        for end in as_completed(ends):
            yield ends[end], _outcome(end.result)


def _begin(parent: int) -> None:
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends waiting jobs, too


def _outcome(result: Callable[[], R]) -> R | ValueError:
    try:
        return result()
    except ValueError as error:
        return error
