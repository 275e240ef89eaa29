"""The process of a stage or a command: its command line, its lock, its exit status and its end."""

import argparse
import os
import platform
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from stages.core import paths
from stages.core.artifacts import replacing, write_json
from stages.core.ending import die_with_parent
from stages.core.plans import Plan, read_plan

LOCKS = paths.SCRATCH / "locks"
TIMES = paths.SCRATCH / "times"  # duration of each stage's last run here, by its name in DVC
TRACEBACKS = paths.SCRATCH / "tracebacks"  # of unexpected errors
WAIT_S = 30.0  # for a lock: a killed process may take some seconds to end
MOST_CHARACTERS = 500  # of an unexpected error's message


def run_stage(
    main: Callable[..., str | None],
    kind: type[Plan],
    *names: str,
    number: tuple[str, str] | None = None,
    rank: Callable[[Any], int | None] = lambda plan: 0,
) -> None:
    """Runs a stage file: parses the command line, reads the plan (of type ``kind``), calls
    ``main(plan, *keys)`` and prints the line that it returns on what the stage produced. ``keys``
    are the values of the positional arguments ``names``. ``number`` has the name and the help text
    of an option for a whole number, which ``main`` gets as a keyword argument, None by default.

    ``rank(plan)`` returns the rank of this process among the processes of the stage, or None if
    nothing is left for it to do. The process of rank 0 takes the lock for all.
    """
    stage, parser = _parser(main, names)
    if number:
        parser.add_argument(f"--{number[0].replace('_', '-')}", type=int, help=number[1])
    options = vars(parser.parse_args())
    keys = [options.pop(name) for name in names]
    purpose = re.split(r"[:.](?: |$)", parser.description or "")[0]  # up to a colon or full stop

    def run() -> None:
        plan = read_plan(kind, stage, *([] if kind.is_shared else keys))
        if (this := rank(plan)) == 0:
            part = [str(value) for value in options.values() if value is not None]
            _locked(lambda: main(plan, *keys, **options), stage, [*keys, *part], purpose)
        elif this is not None:
            main(plan, *keys, **options)

    _run(run)


def run_root(main: Callable[[], None]) -> None:
    """Runs the root stage. It prints nothing but mistakes, because it is also run by hand to check
    params.yaml."""
    stage, parser = _parser(main, ())
    parser.parse_args()
    _run(lambda: _locked(main, stage, []))


def _parser(
    main: Callable[..., object], names: tuple[str, ...]
) -> tuple[str, argparse.ArgumentParser]:
    """Returns the name of a stage and the parser of its command line."""
    module = sys.modules[main.__module__]
    stage = (module.__spec__.name if module.__spec__ else module.__name__).rpartition(".")[2]
    parser = argparse.ArgumentParser(
        prog=f"python -m stages.{stage}",
        description=" ".join((module.__doc__ or "").split()),
        allow_abbrev=False,
    )
    for name in names:
        parser.add_argument(name, help=f"the {name}, by its name in params.yaml")
    return stage, parser


def _locked(main: Callable[[], str | None], stage: str, keys: list[str], purpose: str = "") -> None:
    """Runs a stage under the stage's lock and records how long it took. With a ``purpose``, prints
    the purpose at the beginning, and the time and the result at the end."""
    with hold(LOCKS / f"{'-'.join([stage, *keys])}.lock"):
        begin = time.monotonic()
        if purpose:
            print(f"{purpose} ({' '.join([stage, *keys])})", flush=True)
        result = main()
        seconds = time.monotonic() - begin
        if purpose:
            print(f"Done in {seconds:.1f} s" + (f": {result}" if result else ""), flush=True)
        name = "@".join([stage, *(["-".join(keys)] if keys else [])])
        with replacing(TIMES / f"{name}.json") as path:  # for `make plan`; DVC does not track it
            write_json(path, {"wall_time_s": round(seconds, 3)})


def _run(main: Callable[[], object]) -> None:
    die_with_parent()
    try:
        exit_on_mistake(main)
    except KeyboardInterrupt:  # Ctrl-C: no traceback, and the status that a shell expects
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


def exit_on_mistake(main: Callable[[], object], *, reader_may_end: bool = False) -> None:
    """Runs ``main``. A ValueError, which is a user's mistake, becomes a line and exit status 2; any
    other error becomes a line that names the file with its traceback, and exit status 1.

    If the reader of the output ends (``| head``), so does a command with ``reader_may_end``,
    without an error.
    """
    if reader_may_end:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        main()
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except Exception as error:
        TRACEBACKS.mkdir(parents=True, exist_ok=True)
        file = TRACEBACKS / f"{Path(sys.argv[0]).stem}-{os.getpid()}.txt"
        file.write_text(traceback.format_exc(), encoding="utf-8")
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:MOST_CHARACTERS]
        print(f"error: {reason} (traceback: {file})", file=sys.stderr)
        raise SystemExit(1) from None


@contextmanager
def hold(file: Path) -> Iterator[None]:
    """Locks a file within the context, and writes into it which process holds it.

    Raises ValueError if another process holds it for longer than ``WAIT_S``.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(file)
    try:
        lock.acquire(timeout=WAIT_S)
    except Timeout:
        raise refusal(file) from None
    try:
        write_holder(file)
        yield
    finally:
        lock.release()


def write_holder(file: Path) -> None:
    """Writes into a lock file that this process holds it."""
    file.write_text(f"process {os.getpid()} on {platform.node()}", encoding="utf-8")


def refusal(file: Path) -> ValueError:
    """Returns the error that names the process that holds a lock, and what to do."""
    holder = file.read_text(encoding="utf-8") or "another process"
    pid = next(filter(str.isdigit, holder.split()), "PID")
    return ValueError(
        f"{holder} holds {file}; wait until it ends, or end it (`kill {pid}`), and run this again"
    )
