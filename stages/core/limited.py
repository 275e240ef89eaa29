"""Runs work on untrusted files in a separate process with limits of time and memory."""

import json
import os
import resource
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from stages.core.ending import die_with_parent

T = TypeVar("T", int, str, None)


def limited(work: Callable[[], T], *, seconds: float, num_bytes: int, what: str) -> T:
    """Returns ``work()``, a number, a text or None, computed in a forked process that may run for
    ``seconds`` and use ``num_bytes`` more memory than this process. On systems other than Linux,
    ``work`` runs in this process without limits.

    Raises the ValueErrors of ``work``, and ValueError with a message that begins with ``what`` for
    any other error and for work that exceeds a limit.
    """
    if sys.platform != "linux":
        return work()
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        os.close(reader)
        _child(work, writer, parent, num_bytes, what)
    os.close(writer)
    with open(reader, encoding="utf-8") as pipe:
        try:
            is_done = bool(select.select([pipe], [], [], seconds)[0])
            text = pipe.read() if is_done else ""
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    if not is_done:
        raise ValueError(f"{what} took more than {seconds:.0f} s")
    if not text:
        raise ValueError(f"{what} ended its process, perhaps for lack of memory")
    answer = json.loads(text)
    if "error" in answer:
        raise ValueError(answer["error"])
    return answer["result"]


def _child(work: Callable[[], T], writer: int, parent: int, num_bytes: int, what: str) -> None:
    """Runs the work, writes its answer and ends this process."""
    try:
        die_with_parent(parent)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):  # hides what libraries print about the files
            os.dup2(nowhere, stream)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + num_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            answer: dict[str, object] = {"result": work()}
        except ValueError as error:
            answer = {"error": str(error)}
        except MemoryError:
            answer = {"error": f"{what} took more than {num_bytes / 2**30:.0f} GB of memory"}
        except BaseException as error:  # libraries raise errors of many types for damaged files
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            answer = {"error": f"{what} failed: {reason}"}
        with open(writer, "w", encoding="utf-8") as pipe:
            pipe.write(json.dumps(answer))
    finally:
        os._exit(0)
