"""Compares the memory that `make plan` estimates for each training with the peak of its process.

Run by hand in a project whose study has run; it prints a row of the table in plan.md.

    python benchmarks/plan_memory.py
"""

import sys
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))

from stages.core import paths
from stages.core.study_file import load
from stages.planning.estimate import made

BOUND = 1.5  # the largest factor of an estimate that counts as close


def main() -> None:
    paths.TIMINGS = Path("data/nothing")  # measurements would replace estimates
    estimate = made(load(), [])
    costs = pd.read_csv(paths.REPORTS / "costs.csv")
    ratios = dict[str, float]()
    peaks = costs.groupby("run").pretrain_peak_memory_bytes.max()
    for run in estimate.pretrain:
        if run.memory_bytes is not None:
            ratios[run.run] = run.memory_bytes / peaks[run.run]
    peaks = costs.groupby(["run", "method", "task"]).peak_memory_bytes.max()
    for trial in estimate.finetune:
        key = (trial.run, trial.method, trial.task)
        if trial.memory_bytes is not None and key in peaks:
            ratios[" ".join(key)] = trial.memory_bytes / peaks[key]
    by_training = pd.Series(ratios)
    within = by_training.between(1 / BOUND, BOUND).sum()
    print(
        f"| {estimate.params.study} | {len(by_training)} | {within} | {by_training.min():.2f} "
        f"| {by_training.median():.2f} | {by_training.max():.2f} |"
    )
    for key, ratio in by_training[~by_training.between(1 / BOUND, BOUND)].items():
        print(f"{key}: {ratio:.2f}", file=sys.stderr)


if __name__ == "__main__":
    main()
