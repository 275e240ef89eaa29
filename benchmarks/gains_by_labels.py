"""What pretraining gains with few and with many labels, in `studies/label_budgets.yaml`.

Reads only the scores of its trials, not what the report makes of them. A seed draws the same labels
for all runs, so gains are paired by seed. Intervals are those of a t test over seeds; unlike the
report's they do not cover the test rows.

    python benchmarks/gains_by_labels.py > benchmarks/gains_by_labels.md

It reads `benchmarks/studies/label_budgets/trials.csv`.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import t

FOLDER = Path(__file__).parent / "studies" / "label_budgets"
SCRATCH = "encoder_scratch"
PRETRAINED = ("encoder_mlm", "all_minilm")


def with_interval(values: Sequence[float]) -> str:
    """Returns the mean in points with its 95 % interval over seeds."""
    points = 100 * np.asarray(values)
    half = t.ppf(0.975, len(points) - 1) * points.std(ddof=1) / len(points) ** 0.5
    return f"{points.mean():.1f} ({points.mean() - half:.1f} to {points.mean() + half:.1f})"


def main() -> None:
    trials = pd.read_csv(FOLDER / "trials.csv")
    trials = trials[trials.method == "full"]
    budgets = sorted({int(budget) for budget in trials.label_budget})
    few, many = budgets[0], budgets[-1]
    print(
        "Made by `benchmarks/gains_by_labels.py` from the trials of `studies/label_budgets.yaml`."
    )
    print(f"\n{trials.pretrain_seed.nunique()} seeds. In points, with 95 % intervals over seeds.\n")
    print(
        f"| task | over `{SCRATCH}` | {' | '.join(f'{budget} labels' for budget in budgets)} "
        f"| with {few} less with {many} |"
    )
    print("|---" * (len(budgets) + 3) + "|")
    for task in trials.task.unique():
        of_task = trials[trials.task == task]
        scores = of_task.pivot(
            index="pretrain_seed", columns=["run", "label_budget"], values="value"
        )
        for run in PRETRAINED:
            gains = {budget: scores[run][budget] - scores[SCRATCH][budget] for budget in budgets}
            shown = [with_interval(gains[budget]) for budget in budgets]
            shrunk = with_interval(gains[few] - gains[many])
            print(f"| {task} | `{run}` | {' | '.join(shown)} | {shrunk} |")


if __name__ == "__main__":
    main()
