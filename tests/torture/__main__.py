"""Many attempts to break what the project promises, and a table of the faults.

    make torture                                  # all in about an hour, on two idle cores
    python -m tests.torture --kills 20 --structural 4000 --textual 2000
    python -m tests.torture --seed 7 --case kills:17

structural  edits of keys and values of the committed studies, checked as in stages.resolve
textual     edits of the text of these studies
hostile     folders of checkpoints: the named ones, then some that are changed at random
faults      stages on a full disk, with closed outputs, and with inputs that cannot be read
kills       `dvc repro` of a small study, killed, and run to its end

A fault is a traceback; an exit status other than 0 or 2; a refusal without a path; more than 5 s of
CPU time in stages.resolve (1 s in this process); a file of data/ or reports/ that differs, except
measurements; a process that outlives its DVC; code of a checkpoint that runs. Exits with 1 if there
is a fault. Equal seeds make equal attempts, but kills also depend on the machine's speed.
"""

import argparse
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator

os.environ["HF_HUB_OFFLINE"] = "1"  # before the hub is imported: no attempt may download

from tests.torture.edits import edit_structures, edit_texts
from tests.torture.hostile import open_folders
from tests.torture.kills import kill_runs
from tests.torture.surroundings import disturb_stages
from tests.torture.tally import Tally

KINDS: dict[str, tuple[Callable[[range, int, float], Tally], int]] = {
    "structural": (edit_structures, 20_000),
    "textual": (edit_texts, 10_000),
    "hostile": (open_folders, 300),
    "faults": (disturb_stages, 200),
    "kills": (kill_runs, 300),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.torture",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for kind, (_, number) in KINDS.items():
        parser.add_argument(
            f"--{kind}", type=int, metavar="N", default=number, help=f"{number} by default"
        )
    parser.add_argument("--seconds", type=float, metavar="S", help="the most of each kind")
    parser.add_argument(
        "--seed", type=int, default=time.time_ns() % 10**6, help="random by default"
    )
    parser.add_argument("--case", metavar="KIND:NUMBER", help="one attempt alone")
    options = parser.parse_args()
    ranges = {kind: range(getattr(options, kind)) for kind in KINDS}
    if options.case:
        kind, _, number = options.case.partition(":")
        if kind not in KINDS or not number.isdigit():
            parser.error(f"--case {options.case}: must be one of {', '.join(KINDS)}, and a number")
        ranges = {kind: range(int(number), int(number) + 1)}
    # A shell's background process ignores Ctrl-C, and so would the runs that are interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print(f"seed {options.seed}", flush=True)
    tallies = list[Tally]()
    for kind, numbers in ranges.items():
        if numbers:
            tallies.append(KINDS[kind][0](numbers, options.seed, options.seconds or math.inf))
            print(f"{kind}: {tallies[-1].num_tried} tried", file=sys.stderr, flush=True)
    print(*table(tallies), sep="\n")
    raise SystemExit(any(tally.faults for tally in tallies))


def table(tallies: list[Tally]) -> Iterator[str]:
    """Yields the lines of a table in Markdown, then each fault with how to repeat it."""
    yield "| kind | tried | faults | of all |"
    yield "|---|---|---|---|"
    for tally in tallies:
        outcomes = ", ".join(
            f"{number:,} {name}" for name, number in sorted(tally.outcomes.items())
        )
        yield f"| {tally.kind} | {tally.num_tried:,} | {len(tally.faults):,} | {outcomes} |"
    for tally in tallies:
        for fault in tally.faults:
            yield f"\n{tally.kind}: {fault.what}\n    {fault.repeat}"


if __name__ == "__main__":
    main()
