"""The process of a stage: its command line, its exit status, its lock and its end."""

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
TIMES = paths.SCRATCH / "times"  # duration of each stage's last run here, by its name in DVC
WAIT_S = 30.0  # wait for a process that runs the same stage; it dies soon if its parent was killed
# A full disk, an exhausted quota, a file that is too large.
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
PR_SET_PDEATHSIG = 1  # an option of Linux' prctl
# Looked up on import, since nothing may be loaded after a fork of a process with threads.
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def run_stage(
    main: Callable[..., None],
    *names: str,
    repeats: Callable[..., list[Mapping[str, Any]]] = lambda raw, *keys: [],
    rank: Callable[..., int | None] = lambda params, *keys: 0,
) -> None:
    """Runs a stage file: parses its positional ``names`` and exits with 2 on a user's mistake.

    In dvc.yaml the names are followed by the values that the stage uses, because DVC reruns a stage
    when its command changes. (With ``params:`` entries DVC would read params.yaml again for each
    stage, which takes longer than everything else it does.) ``repeats(raw, *keys)`` returns these
    values. If they differ from params.yaml, the file was edited while DVC ran, and DVC would record
    a result under the wrong settings: the stage refuses to run.

    ``rank(params, *keys)`` returns the rank of this process among the processes of the stage, or
    None if others have done its work. The first process takes the lock for all.
    """
    module = sys.modules[main.__module__]
    stage = module.__spec__.name if module.__spec__ else module.__name__
    parser = argparse.ArgumentParser(
        prog=f"python -m {stage}",
        description=(module.__doc__ or "").strip(),
        epilog="The flags after the names repeat params.yaml for DVC; omit them in a call by hand.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for name in names:
        parser.add_argument(name, help=f"the {name}, by its name in params.yaml")
    arguments, rest = parser.parse_known_args()
    keys = [getattr(arguments, name) for name in names]

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
    # Skips Python's teardown, which takes half a second once torch is loaded.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _write_time(stage: str, keys: list[str], seconds: float) -> None:
    """Writes the stage's duration for `make plan`. It is no result, so it is no output of the
    stage."""
    name = "@".join([stage.rpartition(".")[2], *(["-".join(keys)] if keys else [])])
    with replacing(TIMES / f"{name}.json") as path:
        write_json(path, {"wall_time_s": round(seconds, 3)})


def exit_on_mistake(main: Callable[[], None]) -> None:
    """Runs ``main`` and turns a ValueError (a user's mistake) and a full disk into a message and
    exit status 2."""
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
    """Makes the kernel kill this process when its parent dies (on Linux).

    Otherwise a stage would outlive a killed DVC and write at the same time as the next one.
    """
    if _prctl:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def flags(*values: Settings) -> list[str]:
    """Returns the command-line flags that DVC generates for these values in ``cmd``
    (``${...}``)."""
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
