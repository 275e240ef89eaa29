"""Kills ``dvc repro`` of a small study at random moments and while DVC writes. A last, complete run
must end with the files of an uninterrupted run."""

import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.project import Project, tiny_study
from tests.torture.results import difference, hashes_of
from tests.torture.tally import KEPT, TRACEBACK, Tally

PER_ROUND = 6  # kills of one clone, before its results are compared
ENDS_S = 5.0  # a process that is left after this time outlives its DVC
HUNG_S = 900.0
WRITTEN = (".dvc/tmp/rwlock", "dvc.lock")  # files of DVC that a kill can cut off
# What DVC then prints; docs/mlflow_and_dvc.md explains how to recover.
DOCUMENTED = ("Unable to read RWLock-file", "'./dvc.lock' validation failed", "rwlock")
DOCUMENTED += ("join() argument must be str",)


def kill_runs(
    numbers: range,
    seed: int,
    seconds: float,
    *,
    targets: tuple[str, ...] = (),
    cold: bool = True,
) -> Tally:
    """Kills runs of the stages ``targets``, all by default. If ``cold``, processes start as a user
    starts them; else they are forks, which start sooner and have no group of their own."""
    tally = Tally("kills", seed)
    with tempfile.TemporaryDirectory() as name:
        study = _study(Path(name, "study"))
        uninterrupted = _copied(study, Path(name, "uninterrupted"), cold)
        began = time.monotonic()
        uninterrupted.run("dvc", "repro", *targets)
        took = time.monotonic() - began
        expected = hashes_of(uninterrupted.folder)
        round_ = None
        first = numbers.start - numbers.start % PER_ROUND
        for number, rng in tally.numbers(range(first, numbers.stop), seconds):
            if round_ is None:
                folder = Path(name, f"round-{number}")
                round_ = Round(_copied(study, folder, cold), tally, targets, cold)
            is_killed = round_.kill(number, rng, took)
            if not is_killed or number % PER_ROUND == PER_ROUND - 1:
                round_.end(number, expected)
                round_ = None
        if round_ is not None:
            round_.end(number, expected)
    return tally


def _study(folder: Path) -> Project:
    """Returns the tiny study with trainings that take seconds, and two seeds of both kinds."""
    project = tiny_study(folder)
    project.edit("pretrain", "training", "num_steps", value=300)
    project.edit("pretrain", "training", "num_validations", value=4)
    project.edit("pretrain", "seeds", value=[1, 2])
    project.edit("finetune", "seeds", value=[1, 2])
    project.commit("longer trainings")
    return project


def _copied(study: Project, folder: Path, cold: bool) -> Project:
    shutil.copytree(study.folder, folder, symlinks=True)
    project = Project(folder, cold=cold)
    project.environment["CHECKPOINT_SECONDS"] = "0.2"
    return project


@dataclass
class Round:
    """One clone, whose runs are killed one after another."""

    project: Project
    tally: Tally
    targets: tuple[str, ...]
    cold: bool

    def kill(self, number: int, rng: random.Random, took: float) -> bool:
        """Starts a run and kills it. Returns False if the run succeeded first, and else True."""
        ways = ("group", "dvc", "stage", "terminate", "interrupt") if self.cold else ("dvc",)
        way = rng.choice(ways)
        moment = rng.choice(("time", "time", *WRITTEN, "partial"))
        is_due = self._moment(moment, rng, took)
        log = self.project.folder.parent / "printed"
        with log.open("w") as output:
            run = subprocess.Popen(
                ["dvc", "repro", *self.targets],
                cwd=self.project.folder,
                env=self.project.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        while run.poll() is None and not is_due():
            time.sleep(0.001)
        what = f"{way} at {moment}"
        if run.poll() is not None:
            self._judge(number, run.returncode, log.read_text(errors="replace"), f"before {what}")
            return run.returncode != 0
        _send(way, run, rng)
        with suppress(subprocess.TimeoutExpired):
            # DVC itself ends when its stage was killed, and waits for the stage after a signal.
            run.wait(ENDS_S if way in ("group", "dvc") else 60)
        left = _left(run.pid)
        for process in left:
            self.tally.fault(number, f"{what}: outlives its DVC: {_command(process)}")
            with suppress(psutil.Error):
                process.kill()
        run.wait()
        printed = log.read_text(errors="replace")
        if TRACEBACK in printed and way != "stage":
            self.tally.fault(number, f"{what}: traceback: {printed.strip().splitlines()[-1]}")
        self.tally.count(f"{way} killed" if way in ("group", "dvc", "stage") else f"{way}d")
        return True

    def _moment(self, moment: str, rng: random.Random, took: float) -> Callable[[], bool]:
        """Returns a function that returns True when the run is to be killed."""
        begin = time.monotonic()
        after = rng.uniform(0.3, 0.4 * took)
        if moment == "time":
            return lambda: time.monotonic() - begin > after
        folder, remaining, seen = self.project.folder, rng.choice((0, 1, 3, 6)), set[object]()

        def changed() -> bool:
            """Whether enough changes, or new half-written files, were seen, or the time is over."""
            nonlocal remaining
            if moment == "partial":
                state: object = tuple((folder / "data").glob("*/.*.partial"))
            else:
                with suppress(OSError):
                    status = (folder / moment).stat()
                    state = (status.st_mtime_ns, status.st_size)
                    if state not in seen and not seen:
                        seen.add(state)  # as it was before the run
                        return False
                    if state not in seen:
                        seen.add(state)
                        remaining -= 1
                return remaining < 0 or time.monotonic() - begin > took
            if state and state not in seen:
                seen.add(state)
                remaining -= 1
            return remaining < 0 or time.monotonic() - begin > took

        return changed

    def end(self, number: int, expected: dict[str, str]) -> None:
        """Runs the study to its end, and compares the results."""
        for _ in range(2):
            code, printed = self._command("dvc", "repro", *self.targets)
            if code == 0:
                break
            self._judge(number, code, printed, "the run after it")
        results = hashes_of(self.project.folder)
        if files := difference(results, expected):
            self.tally.fault(number, f"results differ: {files}")
            for top in ("data", "reports"):
                kept = KEPT / f"kills-{self.tally.seed}-{number}" / top
                shutil.copytree(self.project.folder / top, kept, dirs_exist_ok=True)
        shutil.rmtree(self.project.folder)

    def _judge(self, number: int, code: int, printed: str, what: str) -> None:
        """Notes a run that failed by itself as a fault, unless the failure is documented and the
        documented command mends it."""
        if code == 0:
            return
        if any(words in printed for words in DOCUMENTED) and TRACEBACK not in printed:
            code, output = self._command("python", "-m", "stages.commands.heal")
            if code == 0:
                self.tally.count("mended by heal")
                return
            printed += output
        self.tally.fault(number, f"{what}: exit status {code}: {printed.strip()[-250:]}")

    def _command(self, *command: str) -> tuple[int, str]:
        try:
            done = subprocess.run(
                command,
                cwd=self.project.folder,
                env=self.project.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=HUNG_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return 124, f"no end in {HUNG_S:.0f} s"
        return done.returncode, done.stdout


def _send(way: str, run: subprocess.Popen[bytes], rng: random.Random) -> None:
    """Kills a run, or one of its processes, as ``way`` says."""
    with suppress(ProcessLookupError, psutil.Error):
        if way == "group":
            os.killpg(run.pid, signal.SIGKILL)
        elif way == "interrupt":  # as Ctrl-C in a terminal
            os.killpg(run.pid, signal.SIGINT)
        elif way == "stage" and (children := psutil.Process(run.pid).children(recursive=True)):
            rng.choice(children).kill()
        else:
            run.send_signal(signal.SIGTERM if way == "terminate" else signal.SIGKILL)


def _left(session: int) -> list[psutil.Process]:
    """Returns the processes of a session that do not end within ``ENDS_S``."""
    until = time.monotonic() + ENDS_S
    while living := [process for process in psutil.process_iter() if _is_in(process, session)]:
        if time.monotonic() > until:
            break
        time.sleep(0.05)
    return living


def _is_in(process: psutil.Process, session: int) -> bool:
    try:
        return os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE
    except (OSError, psutil.Error):
        return False


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return "?"
