"""Compares studies with one job and with two: wall time, and how long kinds of work waited. Prints
Markdown.

    python -m benchmarks.jobs

One job has all threads: each pretraining takes all of them, and one trial per thread runs at a
time. Two jobs have one thread each. The studies are the default study with one pretraining seed of
each run, and a study of 40 fine-tunings of models from scratch. Each starts without a store and
without results, but with the parsed installed packages.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.many_runs import write
from stages.core.study_file import read_yaml
from tests.project import ROOT, clone_of_working_tree

THREADS = 2
ENDED = re.compile(
    r"^ *\d+/\d+ +(\d+):(\d\d)  ([^:(]+?)(?:: .*)?(?:  \(.*\))?$"
)  # matches lines of the scheduler
NEEDS = """
from stages.core.study_file import load
from stages.planning.pending import pending
from stages.scheduling.units import units
params = load()
work = units(params, pending(params))
titles = {unit.name: unit.title for unit in work}
for unit in work:
    print(unit.title, *(titles[name] for name in unit.needs), sep="\\t")
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", nargs="+", choices=STUDIES, default=list(STUDIES))
    options = parser.parse_args()
    default = read_yaml(ROOT / "studies/default.yaml")
    print("# One job and two\n")
    print("| study | jobs | threads of a job | wall time (s) | to one job |\n|---|---|---|---|---|")
    waits = []
    for name in options.studies:
        alone = 0.0
        for jobs in (1, THREADS):
            took, ended, needs = run(STUDIES[name](default), jobs)
            alone = alone or took
            print(
                f"| {name} | {jobs} | {THREADS // jobs} | {took:.0f} | {took / alone:.2f} |",
                flush=True,
            )
            if ended:
                waits.append(waited(name, ended, needs))
    print("\n".join(["", *waits]))


def one_seed(study: dict[str, Any]) -> dict[str, Any]:
    return study | {"pretrain": study["pretrain"] | {"seeds": [1]}}


def fine_tunings(study: dict[str, Any]) -> dict[str, Any]:
    """Returns a study of two runs, two tasks and ten seeds."""
    tuned, runs = study["finetune"], study["models"]
    full = {"training": tuned["methods"]["full"]["training"]}
    scratch = {
        "encoder_scratch": runs["encoder_mlm"] | {"corpus": "none", "objective": "none"},
        "decoder_scratch": runs["decoder_scratch"],
    }
    return study | {
        "pretrain": {"seeds": [1], "matched": "none"},
        "models": scratch,
        "tasks": {name: study["tasks"][name] for name in ("tag", "section")},
        "baselines": ["majority"],
        "finetune": tuned | {"methods": {"full": full}, "seeds": list(range(1, 11))},
    }


STUDIES = {"default, one pretraining seed": one_seed, "40 fine-tunings": fine_tunings}


def run(
    study: dict[str, Any], jobs: int
) -> tuple[float, dict[str, tuple[float, float]], dict[str, list[str]]]:
    """Returns seconds in all, when each unit started and ended, and the units that it needed."""
    with tempfile.TemporaryDirectory() as folder:
        project = clone_of_working_tree(Path(folder, "project"))
        threads = study["compute"] | {"threads": THREADS // jobs}
        write(project, study | {"compute": threads})
        printed = project.run(sys.executable, "-c", NEEDS) if jobs > 1 else ""
        needs = {
            name: others for name, *others in (line.split("\t") for line in printed.splitlines())
        }
        began, ended = time.perf_counter(), dict[str, tuple[float, float]]()
        command = [sys.executable, "-m", "stages.commands.repro", "--jobs", str(jobs)]
        process = subprocess.Popen(
            command, cwd=project.folder, env=project.environment, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout
        for line in process.stdout:
            if matched := ENDED.match(line):
                end = time.perf_counter() - began
                ended[matched[3]] = (end - 60 * int(matched[1]) - int(matched[2]), end)
        if process.wait():
            raise SystemExit(f"{' '.join(command)} failed")
        return time.perf_counter() - began, ended, needs


def waited(
    study: str, ended: Mapping[str, tuple[float, float]], needs: Mapping[str, list[str]]
) -> str:
    """Returns a table of how long each kind of unit ran, and waited for a worker once ready."""
    kinds = defaultdict[str, list[tuple[float, float]]](list)
    for name, (start, end) in ended.items():
        ready = max((ended[each][1] for each in needs[name] if each in ended), default=0.0)
        kinds[name.partition("@")[0]].append((end - start, max(start - ready, 0.0)))
    rows = [
        f"| {kind} | {len(times)} | {sum(ran for ran, _ in times):.0f} | "
        f"{sum(wait for _, wait in times) / len(times):.0f} | {max(w for _, w in times):.0f} |"
        for kind, times in kinds.items()
    ]
    head = (
        f"Two jobs, {study}: seconds that units ran, and that they were ready before a worker took "
        "them.\n\n| kind of unit | units | ran, in all | waited, on the mean | at most |\n"
        "|---|---|---|---|---|"
    )
    return "\n".join([head, *rows, ""])


if __name__ == "__main__":
    main()
