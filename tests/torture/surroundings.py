"""Stages on a full disk, with a closed output and with inputs that cannot be read."""

import os
import random
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.project import Project, tiny_study
from tests.torture.results import difference, hashes_of
from tests.torture.tally import Tally, message_fault

SLOWEST_S = 5.0  # CPU time of stages.resolve
STOPPED_S = 60.0
STORES = ("checkpoints", "trials", "pretrain")  # emptied, so that stages compute their outputs
FULL_AFTER = (0, 4_000, 100_000)  # bytes of one file
OUTPUTS = {
    "stdout is closed": ">&-",
    "stdout and stderr are closed": ">&- 2>&-",
    "stdin is closed": "<&-",
    "stdout is full": ">/dev/full",
    "nobody reads stdout": "| true",
}
INPUTS = {  # a file, and the commands that read it
    "params.yaml": ("stages.resolve", "stages.commands.plan"),
    "topics.txt": ("stages.resolve", "stages.prepare_corpus prose"),
    "rows/train.jsonl": (
        "stages.resolve",
        "stages.prepare_task loudness",
        "stages.commands.new --force -- rows/train.jsonl",
    ),
}


@dataclass(frozen=True)
class Attempt:
    """One command in bad surroundings."""

    what: str
    command: str
    file_bytes: int | None = None  # the largest file that can be written
    damage: Callable[[Path], object] | None = None
    path: str = ""  # of the input that is damaged
    # A stage whose standard error is closed cannot say why it is refused.
    is_silent: bool = False


def link_to_itself(file: Path) -> None:
    file.unlink()
    file.symlink_to(file.name)


def into_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def into_fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "is missing": Path.unlink,
    "is a link to itself": link_to_itself,
    "is a folder": into_folder,
    "is a pipe": into_fifo,
    "is closed to its reader": lambda file: file.chmod(0),
    "is empty": lambda file: file.write_bytes(b""),
    "is no UTF-8": lambda file: file.write_bytes(b"\xff\xfe\x00" + file.read_bytes()),
    "is cut": lambda file: file.write_bytes(file.read_bytes()[:-40]),
}
# Root reads any file unless it gives up these capabilities.
AS_A_USER = "setpriv --bounding-set=-dac_override,-dac_read_search "


def attempts(commands: list[str]) -> Iterator[Attempt]:
    """Yields all attempts with the commands of a study's stages."""
    for command in commands:
        for size in FULL_AFTER:
            yield Attempt(f"disk full after {size} bytes", command, file_bytes=size)
        for what, redirected in OUTPUTS.items():
            whole = f"({command}) {redirected}"
            if redirected.startswith("|"):
                whole = f"set -o pipefail; ({command}) {redirected}"
            yield Attempt(what, whole, is_silent="2>&-" in redirected)
    for path, modules in INPUTS.items():
        for what, damage in DAMAGES.items():
            for module in modules:
                prefix = AS_A_USER if os.getuid() == 0 and "closed" in what else ""
                command = f"{prefix}python -m {module}"
                yield Attempt(f"{path} {what}", command, damage=damage, path=path)


def disturb_stages(
    numbers: range,
    seed: int,
    seconds: float,
    *,
    targets: tuple[str, ...] = (),
    cold: bool = True,
) -> Tally:
    """Disturbs the stages ``targets`` and the stages before them, all by default, in a fixed random
    order. If ``cold``, processes start as a user starts them; else they are forks."""
    tally = Tally("faults", seed)
    with tempfile.TemporaryDirectory() as name:
        project = tiny_study(Path(name, "study"))
        project.repro(*targets)
        commands = [stage["cmd"] for stage in project.lock().values()]
        every = [*attempts(commands)]
        random.Random(0).shuffle(every)
        project = Project(project.folder, cold=cold)
        pristine = Path(name, "pristine")
        shutil.copytree(project.folder, pristine, symlinks=True)
        for number, _ in tally.numbers(
            range(numbers.start, min(numbers.stop, len(every))), seconds
        ):
            attempt = every[number]
            code, printed, took = run(project, attempt)
            problem = message_fault(code, printed)
            if attempt.is_silent and code == 2:
                problem = ""
            if "stages.resolve" in attempt.command and took > SLOWEST_S:
                problem = problem or f"took {took:.1f} s"
            files = difference(hashes_of(project.folder), hashes_of(pristine))
            if files and not problem and not attempt.path:  # other inputs give other results
                problem = f"results differ: {files}"
            if files or attempt.path:
                shutil.rmtree(project.folder)
                shutil.copytree(pristine, project.folder, symlinks=True)
            if problem:
                tally.fault(number, f"{attempt.what}: {_short(attempt.command)}: {problem}")
            else:
                tally.count("refused" if code == 2 else "done")
    return tally


def run(project: Project, attempt: Attempt) -> tuple[int, str, float]:
    """Returns the exit status, the output and the CPU time of an attempt."""
    for store in STORES:
        shutil.rmtree(project.folder / ".scratch" / store, ignore_errors=True)
    if attempt.damage is not None:
        attempt.damage(project.folder / attempt.path)

    def limit() -> None:
        if attempt.file_bytes is not None:
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (attempt.file_bytes, hard))

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # A pipe takes the output, since the limit would hold for a file, too.
    process = subprocess.Popen(
        ["bash", "-c", attempt.command],
        cwd=project.folder,
        env=project.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=limit,
    )
    try:
        printed, _ = process.communicate(timeout=STOPPED_S)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        code, printed = 124, f"no end in {STOPPED_S:.0f} s"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return code, printed, took


def _short(command: str) -> str:
    """Returns a command without the variables that it sets."""
    return command[max(0, command.find("python -m")) :]
