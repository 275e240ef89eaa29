"""The error of a planned study: each combination of model, task and method of finished studies is
timed from the others of its kind, by weights x steps x learning rates. Prints Markdown.

    python benchmarks/plan.py reports ANOTHER_PROJECT/reports

Of 12 studies, before the models were those of transformers, the sum of the trainings was planned to
within 1% in the median and 6% at worst (``further``: 6,399 s, planned 6,800 s).
"""

import sys
from collections import defaultdict
from math import log2
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from stages.evaluation.records import CLASSICAL, read_texts  # noqa: E402

# A combination of model, task and method (of pretraining: a model alone), with its kind, its work
# and its seconds.
Combination = tuple[tuple[str, ...], float, float]


def main() -> None:
    errors = []
    rows = ["| study | trainings (s) | planned | off |", "|---|---|---|---|"]
    for folder in map(Path, sys.argv[1:]):
        seconds, planned = totals(combinations(folder))
        if seconds:
            errors.append(abs(planned / seconds - 1))
            off = f"{planned / seconds - 1:+.0%}"
            rows.append(f"| {folder.name} | {seconds:.0f} | {planned:.0f} | {off} |")
    print(
        f"The sum of a study's trainings is planned to within {median(errors):.0%} in the median\n"
        f"of {len(errors)} studies, {max(errors):.0%} at worst (`python benchmarks/plan.py`).\n\n"
        "Each combination of model, task and method is timed from the others of its kind (method,\n"
        "architecture, like size) in the same study, by weights x steps x learning rates tried;\n"
        "one without its like is left out.\n"
    )
    print("\n".join(rows))


def combinations(folder: Path) -> list[Combination]:
    """Returns the combinations of the tables of a report."""
    keys = ("model", "task", "method", "label_budget", "pretrain_seed", "finetune_seed")
    costs = {tuple(row[k] for k in keys): row for row in read_texts(folder / "costs.csv")}
    work, seconds = defaultdict[tuple[str, ...], float](float), defaultdict(float)
    for trial in read_texts(folder / "trials.csv"):
        cost = costs.get(tuple(trial[k] for k in keys))
        if cost is None or trial["method"] == CLASSICAL:
            continue
        has_steps = float(trial["lr"] or 0) > 0
        steps = float(trial["num_steps"]) * float(trial["num_tries"]) if has_steps else 1.0
        kind = (trial["architecture"], str(round(log2(float(trial["num_params"])))))
        place = (trial["method"], *kind, trial["model"], trial["task"])
        work[place] += float(trial["num_params"]) * steps
        seconds[place] += float(cost["wall_time_s"])
        if float(trial["pretrain_tokens"] or 0) and cost["pretrain_wall_time_s"]:
            # All trials of a checkpoint repeat its pretraining: the last one counts.
            place = ("pretraining", *kind, trial["model"], trial["pretrain_seed"])
            work[place] = float(trial["num_pretrained_params"]) * float(trial["pretrain_tokens"])
            seconds[place] = float(cost["pretrain_wall_time_s"])
    return [(place, work[place], seconds[place]) for place in work]


def totals(known: list[Combination]) -> tuple[float, float]:
    """Returns the seconds of the combinations that have their like, as measured and as planned."""
    measured = planned = 0.0
    for place, work, seconds in known:
        # Other seeds of a pretraining are not its like: a plan is made before any of them.
        like = [
            (w, s)
            for other, w, s in known
            if other[:3] == place[:3]
            and other != place
            and (place[0] != "pretraining" or other[3] != place[3])
        ]
        if like:
            measured += seconds
            planned += work * sum(s for _, s in like) / sum(w for w, _ in like)
    return measured, planned


if __name__ == "__main__":
    main()
