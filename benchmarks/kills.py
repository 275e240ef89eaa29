"""What a kill costs. Stages run on two workers; at a random moment one process is killed by signal
9: a worker, DVC, a stage's command, or the process that schedules. A call that fails is made again.
Results and dvc.lock must be those of one undisturbed `dvc repro`.

    python -m benchmarks.kills --kills 30
"""

import argparse
import contextlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil
from ruamel.yaml import YAML

from stages.commands.heal import heal
from stages.scheduling import clusters, lock_order
from stages.scheduling.schedule import complete
from stages.scheduling.unit import LOGS, Unit

NUM_LAYERS, WIDTH = 3, 3
LONGEST_S = 20.0  # from the first stage to the kill
KINDS = ("scheduler", "worker", "dvc", "command")
ROOT = Path(__file__).parents[1]
DVC = [sys.executable, "-m", "dvc"]
STAGE = """\
import sys, time
sys.path.insert(0, {root!r})
from stages.core.process import die_with_parent
die_with_parent()
text = "".join(open(name).read() for name in sys.argv[2:])
time.sleep(0.5)
open(sys.argv[1], "w").write(sys.argv[1] + " of (" + text + ")")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), asked.kills, random.Random(asked.seed))


def measure(folder: Path, num_kills: int, chance: random.Random) -> None:
    whole = folder / "whole"
    write(whole)
    subprocess.run([*DVC, "repro", "-q"], cwd=whole, check=True)
    with contextlib.chdir(whole):
        order = lock_order.entries()
    expected, counts = contents(whole), Counter[tuple[str, str]]()
    for number in range(num_kills):
        study = folder / f"killed_{number}"
        write(study)
        kind = KINDS[number % len(KINDS)]
        outcome = disturbed(study, order, kind, chance)
        outcome += "" if contents(study) == expected else ", other results"
        print(f"{number + 1}/{num_kills} {kind}: {outcome}", file=sys.stderr)
        counts[kind, outcome] += 1
        shutil.rmtree(study)
    print("| killed | what came of it | times |\n|---|---|---|")
    for (kind, outcome), times in sorted(counts.items()):
        print(f"| {kind} | {outcome} | {times} |")


def disturbed(study: Path, order: list[str], kind: str, chance: random.Random) -> str:
    script = f"import os; from benchmarks.kills import run; os.chdir({str(study)!r}); run({order})"
    call = [sys.executable, "-c", script]
    with (study / "printed").open("wb") as printed:
        first = subprocess.Popen(call, cwd=ROOT, stdout=printed, stderr=subprocess.STDOUT)
    after, began, killed = chance.uniform(0, LONGEST_S), None, False
    while first.poll() is None:
        time.sleep(0.02)
        if began is None and any((study / LOGS).glob("*")):
            began = time.monotonic()
        due = began is not None and time.monotonic() - began > after
        if due and not killed and (found := of_kind(first.pid, kind)):
            chance.choice(found).kill()
            killed = True
    again = 0
    while first.returncode:
        again += 1
        print(*(study / "printed").read_text().splitlines()[-2:], sep="\n", file=sys.stderr)
        first = subprocess.run(call, cwd=ROOT, capture_output=True)
    if not killed:
        return "it ended before"
    return "went on by itself" if not again else f"goes on with call {again + 1}"


def of_kind(scheduler: int, kind: str) -> list[psutil.Process]:
    root = psutil.Process(scheduler)
    if kind == "scheduler":
        return [root]
    marks = {"worker": "spawn_main", "dvc": "--wait-for-lock", "command": "stage.py"}
    found = list[psutil.Process]()
    for process in root.children(recursive=True):
        try:
            if any(marks[kind] in part for part in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def run(order: list[str]) -> None:
    """What `python -m stages.commands.repro --jobs 2` does, with this graph."""
    heal()
    units = [Unit(name, (*needs,)) for name, needs in graph().items()]
    with lock_order.of_one_run(order), clusters.local(2) as client:
        complete(client, units, lambda: units, mend=heal)


def graph() -> dict[str, list[str]]:
    """The stages of each layer need those of the one before."""
    needs = dict[str, list[str]]()
    for layer in range(NUM_LAYERS):
        before = [f"s{layer - 1}{i}" for i in range(WIDTH)] if layer else []
        needs |= {f"s{layer}{i}": before for i in range(WIDTH)}
    return needs


def write(folder: Path) -> None:
    folder.mkdir()
    (folder / "stage.py").write_text(STAGE.format(root=str(ROOT)))
    stages = {
        name: {
            "cmd": " ".join([sys.executable, "stage.py", name, *needs]),
            "deps": needs,
            "outs": [name],
        }
        for name, needs in graph().items()
    }
    YAML().dump({"stages": stages}, folder / "dvc.yaml")
    for command in (["git", "init", "-q"], [*DVC, "init", "-q"]):
        subprocess.run(command, cwd=folder, check=True)


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in (*graph(), "dvc.lock")}


if __name__ == "__main__":
    main()
