"""A stage's process: its command line, its exit status, its lock and its end."""

import argparse
import ctypes
import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from filelock import FileLock, Timeout

from stages.core import paths
from stages.core.artifacts import replacing, write_json
from stages.core.components import Settings
from stages.core.params import PATH, load, read_yaml

LOCKS = paths.SCRATCH / "locks"
TIMES = paths.SCRATCH / "times"  # of each stage's last run here, by its name in DVC
WAIT_S = 30.0  # for a process that runs the same stage; it dies soon if its parent was killed
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}  # the disk, one's share of it, a file
PR_SET_PDEATHSIG = 1  # of Linux' prctl
# Looked up here: after a fork of a process with threads, nothing may be loaded.
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def run_stage(
    main: Callable[..., None],
    *names: str,
    repeats: Callable[..., list[Mapping[str, Any]]] = lambda raw, *keys: [],
    rank: Callable[..., int | None] = lambda params, *keys: 0,
) -> None:
    """Run a stage file: parse its positional ``names``, exit with 2 on a user's mistake.

    dvc.yaml repeats the values a stage uses behind the names, since DVC reruns a stage when its
    command changes (and reads params.yaml anew for each stage that lists ``params:``, which takes
    longer than all else it does). ``repeats(raw, *keys)`` says which values those are; if they
    differ from params.yaml, the file was edited while DVC ran, and DVC would record a result
    under the wrong settings: refused.

    ``rank(params, *keys)`` says which of several processes of the stage this one is; None if others
    have done its work. The first takes the lock for all.
    """
    module = sys.modules[main.__module__]
    stage = module.__spec__.name if module.__spec__ else module.__name__
    parser = argparse.ArgumentParser(
        prog=f"python -m {stage}",
        description=(module.__doc__ or "").strip(),
        epilog="Flags behind the names repeat params.yaml for DVC; by hand, leave them out.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for name in names:
        parser.add_argument(name, help=f"the {name}, by its name in params.yaml")
    known, rest = parser.parse_known_args()
    keys = [getattr(known, name) for name in names]

    def checked() -> None:
        params = load()
        if rest:
            expected = flags(*repeats(read_yaml(PATH), *keys))
            if rest != expected:
                here = " ".join(sorted(set(rest) ^ set(expected)))
                raise ValueError(f"{PATH} differs from this command ({here}); run `dvc repro`")
        if (this := rank(params, *keys)) != 0:
            if this is not None:
                main(params, *keys)
            return
        LOCKS.mkdir(parents=True, exist_ok=True)
        lock = LOCKS / f"{'-'.join([stage, *keys])}.lock"
        try:
            with FileLock(lock, timeout=WAIT_S):
                begin = time.monotonic()
                main(params, *keys)
                _write_time(stage, keys, time.monotonic() - begin)
        except Timeout:
            raise ValueError(f"another process runs this stage; it holds {lock}") from None

    die_with_parent()
    exit_on_mistake(checked)
    # Without Python's own teardown, which takes half a second once torch is loaded.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _write_time(stage: str, keys: list[str], seconds: float) -> None:
    """For `make plan`; no result, so it is no output of the stage."""
    name = "@".join([stage.rpartition(".")[2], *(["-".join(keys)] if keys else [])])
    with replacing(TIMES / f"{name}.json") as path:
        write_json(path, {"wall_time_s": round(seconds, 3)})


def exit_on_mistake(main: Callable[[], None]) -> None:
    """Run ``main``; a ValueError (a user's mistake) is printed as it is, exit status 2. So is what
    the system says of a disk that is full."""
    try:
        main()
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except OSError as error:
        if error.errno not in FULL:
            raise
        print(f"error: {error}; nothing half-written is left", file=sys.stderr)
        raise SystemExit(2) from None


def die_with_parent() -> None:
    """Kill this process when its parent dies (on Linux).

    Otherwise a stage would outlive a killed DVC and write at the same time as the next one.
    """
    if _prctl:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def flags(*values: Settings) -> list[str]:
    """The command-line flags that DVC generates for these values in ``cmd`` (``${...}``)."""
    return [flag for value in values for flag in _flags(value, "")]


def _flags(values: Settings, prefix: str) -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flags(value, f"{prefix}{key}.")
        elif isinstance(value, bool):
            yield f"--{prefix}{key}" if value else f"--no-{prefix}{key}"
        else:
            yield f"--{prefix}{key}"
            yield from map(str, value if isinstance(value, list) else [value])
