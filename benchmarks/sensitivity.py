"""What the learning rate and the steps of fine-tuning decide in `studies/sensitivity.yaml`.

Reads only the scores of its trials, not what the report makes of them.

    python benchmarks/sensitivity.py > benchmarks/sensitivity.md
"""

from pathlib import Path

import pandas as pd

TRIALS = Path(__file__).parent / "studies" / "sensitivity" / "trials.csv"
METHODS = {
    "full": "1e-3, 150 steps",
    "low_rate": "3e-4",
    "high_rate": "3e-3",
    "long": "450 steps",
}
EFFECTS = {
    "the encoder gains from pretraining": ("encoder_mlm", "encoder_scratch"),
    "the decoder gains from pretraining": ("decoder_causal", "decoder_scratch"),
    "encoder less decoder, pretrained": ("encoder_mlm", "decoder_causal"),
    "encoder less decoder, from scratch": ("encoder_scratch", "decoder_scratch"),
}


def main() -> None:
    trials = pd.read_csv(TRIALS)
    means = 100 * trials.pivot_table(
        index=["task", "run"], columns="method", values="value", sort=False
    )
    print("Made by `benchmarks/sensitivity.py` from the trials of `studies/sensitivity.yaml`:")
    print("means of three seeds in points.\n")
    print("| task | run | 1e-3, 150 steps | 3e-4 | 3e-3 | 450 steps |")
    print("|---|---|---|---|---|---|")
    runs = sorted({run for pair in EFFECTS.values() for run in pair})
    tasks = [*trials.task.unique()]
    for task in tasks:
        for run in runs:
            score = means.loc[task, run]
            changes = (f"{score[name] - score['full']:+.1f}" for name in [*METHODS][1:])
            print(f"| {task} | `{run}` | {score['full']:.1f} | {' | '.join(changes)} |")
    print("\nThe last three columns are changes. Effects with each setting, for all runs alike:\n")
    print(f"| effect | task | {' | '.join(METHODS.values())} | signs differ |")
    print("|---|---|---|---|---|---|---|")
    for effect, (one, other) in EFFECTS.items():
        by_task = {
            task: [means.loc[task, one][m] - means.loc[task, other][m] for m in METHODS]
            for task in tasks
        }
        average = [sum(values) / len(tasks) for values in zip(*by_task.values(), strict=True)]
        for task, values in {**by_task, "average": average}.items():
            differ = "yes" if min(values) < 0 < max(values) else "no"
            print(f"| {effect} | {task} | {' | '.join(f'{v:.1f}' for v in values)} | {differ} |")


if __name__ == "__main__":
    main()
