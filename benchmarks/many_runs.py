"""Measures what a study of many runs and tasks spends outside its trainings: 60 runs with a few
hundred weights in their blocks, 9 tasks, real DVC. Prints Markdown; run by hand, the result is in
many_runs.md.

    python -m benchmarks.many_runs > benchmarks/many_runs.md

Trainings and evaluations are as short as possible here. The time outside them does not depend on
their length, so it is compared with the trainings in the tables of the default study.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd
from ruamel.yaml import YAML

from stages.core.artifacts import read_json
from tests.project import ROOT, Project, clone_of_working_tree

COSTS = ROOT / "reports/costs.csv"  # of the default study
SIDE_BY_SIDE = 2  # trials, as the smoke study sets it
MODEL = {"num_layers": 1, "d_model": 16, "num_heads": 1, "d_ff": 16}
ARCHITECTURES = {"modernbert": "mlm", "phi": "causal", "bart": "denoising"}
SHARE, NO_OP_S, CHECK_S = 0.1, 3, 3  # goals for time outside trainings and two commands


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--tasks", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        project = clone_of_working_tree(Path(folder, "project"))
        write(project, study(project.params(), options.runs, options.tasks))
        first = seconds(project, "dvc", "repro")
        stages = len(project.lock())
        again = statistics.median(seconds(project, "dvc", "repro") for _ in range(5))
        check = statistics.median(
            seconds(project, sys.executable, "-m", "stages.resolve") for _ in range(5)
        )
        inside = trained(project.folder)
    table(options, stages, first, again, check, inside)


def study(smoke: dict[str, Any], num_runs: int, num_tasks: int) -> dict[str, Any]:
    """Returns the smoke study with ``num_runs`` runs of all architectures, pretrained and from
    scratch, and ``num_tasks`` tasks, each with its own rows."""
    kinds, runs = list(smoke["tasks"].items()), {}
    for number in range(num_runs):
        name, objective = list(ARCHITECTURES.items())[number % 3]
        scratch = number % 2 == 1
        runs[f"{name}_{number}"] = {
            "corpus": "none" if scratch else "prose",
            "architecture": {"name": name} | MODEL,
            "objective": "none" if scratch else objective,
            "seeds": [number],
        }
    tasks = {}
    for number in range(num_tasks):
        name, entry = kinds[number % len(kinds)]
        tasks[f"{name}_{number}"] = entry | {"seed": number, "num_train": 100, "num_test": 50}
    method = smoke["finetune"]["methods"]["full"]
    shorter = method | {"training": method["training"] | {"num_epochs": 1}}
    training = smoke["pretrain"]["training"] | {"num_steps": 2, "num_validations": 1}
    return smoke | {
        "study": "many_runs",
        "tasks": tasks,
        "pretrain": {"training": training},
        "models": runs,
        "finetune": smoke["finetune"] | {"methods": {"full": shorter}, "seeds": [1]},
    }


def write(project: Project, params: dict[str, Any]) -> None:
    with (project.folder / "params.yaml").open("w") as file:
        YAML().dump(params, file)


def seconds(project: Project, *command: str) -> float:
    began = time.perf_counter()
    subprocess.run(
        command, cwd=project.folder, env=project.environment, stdout=subprocess.DEVNULL, check=True
    )
    return time.perf_counter() - began


def trained(folder: Path) -> dict[str, list[float]]:
    """Returns the seconds of each pretraining and of each trial with its evaluation."""
    timings = folder / "data/timings"
    return {
        "pretraining": [
            read_json(path)["wall_time_s"] for path in timings.glob("pretrain/*/*.json")
        ],
        "trial": [
            second
            for path in timings.glob("finetune/*/*.csv")
            for second in pd.read_csv(path)["wall_time_s"]
        ],
    }


def table(
    options: argparse.Namespace,
    stages: int,
    first: float,
    again: float,
    check: float,
    inside: dict[str, list[float]],
) -> None:
    outside = first - sum(inside["pretraining"]) - sum(inside["trial"]) / SIDE_BY_SIDE
    costs = pd.read_csv(COSTS)
    columns = {"pretraining": "pretrain_wall_time_s", "trial": "wall_time_s"}
    real = {kind: costs[column].dropna().median() for kind, column in columns.items()}
    trainings = len(inside["pretraining"]) * real["pretraining"]
    trainings += len(inside["trial"]) * real["trial"] / SIDE_BY_SIDE
    share = outside / (outside + trainings)
    print("# A study of many runs and tasks: what is not training\n")
    print(
        f"`python -m benchmarks.many_runs`: {options.runs} runs and {options.tasks} tasks, "
        f"{stages} stages of DVC, {len(inside['trial'])} trials, two side by side.\n"
    )
    print("| what | measured | at most |\n|---|---|---|")
    print(f"| first `dvc repro` | {first:.0f} s | |")
    for kind, times in inside.items():
        print(f"| the sum of its {len(times)} {kind}s | {sum(times):.0f} s | |")
    print(f"| outside of both | {outside:.0f} s | |")
    lengths = ", ".join(f"{seconds:.0f} s per {kind}" for kind, seconds in real.items())
    print(f"| its share, were they as long as in the default study | {share:.1%} | {SHARE:.0%} |")
    print(f"| `dvc repro` with nothing to do, median of 5 | {again:.1f} s | {NO_OP_S} s |")
    print(f"| the root stage, median of 5 | {check:.1f} s | {CHECK_S} s |")
    print(f"\nMedians of the default study on the machine of its tables: {lengths}.")


if __name__ == "__main__":
    main()
