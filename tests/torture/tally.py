"""Counts of one kind of attempts, and the faults among them."""

import random
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from tqdm import tqdm

from tests.project import ROOT

KEPT = ROOT / ".scratch/torture"  # inputs that led to a fault
TRACEBACK = "Traceback (most recent call last)"
# A refusal begins with a path in params.yaml or a file, or names a file.
PATH = re.compile(r"[^\s:]+( line \d+)?: |.*\S[./]\S+: |.*'[^']*/[^']*'")


@dataclass(frozen=True)
class Fault:
    """One broken promise: what happened, and the command that shows it again."""

    what: str
    repeat: str


@dataclass
class Tally:
    """Attempts of one kind, with what came of them."""

    kind: str
    seed: int
    num_tried: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def count(self, outcome: str) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    def fault(self, number: int, what: str, *, kept: str = "") -> None:
        """Notes a fault of attempt ``number`` and the command that repeats it: ``kept``, or one
        with the seed and the number of the attempt."""
        self.count("fault")
        again = f"python -m tests.torture --seed {self.seed} --case {self.kind}:{number}"
        fault = Fault(" ".join(what.split())[:400], kept or again)
        self.faults.append(fault)
        tqdm.write(f"{self.kind}: {fault.what}\n    {fault.repeat}", file=sys.stderr)

    def numbers(self, numbers: range, seconds: float) -> Iterator[tuple[int, random.Random]]:
        """Yields each number with its own random generator, under a progress bar, and ends after
        ``seconds``. An attempt depends on the seed and its number alone."""
        ends = time.monotonic() + seconds
        for number in tqdm(numbers, desc=self.kind, disable=None):
            if time.monotonic() > ends:
                break
            self.num_tried += 1
            yield number, random.Random(f"{self.seed}-{self.kind}-{number}")


def message_fault(code: int | None, printed: str) -> str:
    """Returns what is wrong with the end of a command, or nothing: a traceback, an exit status
    other than 0 and 2, or a refusal without a path."""
    lines = printed.strip().splitlines()
    if TRACEBACK in printed:
        return f"traceback: {lines[-1]}"
    if code not in (0, 2):
        return f"exit status {code}: {lines[-1] if lines else 'nothing printed'}"
    if code == 2:
        refusals = [line for line in lines if line.startswith("error: ")]
        if not refusals:
            return f"exit status 2 without a message: {printed[-200:]}"
        if not PATH.match(refusals[0].removeprefix("error: ")):
            return f"refusal without a path: {refusals[0]}"
    return ""
