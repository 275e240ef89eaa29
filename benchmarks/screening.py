"""What `finetune.screen` would have kept of a study that fine-tuned every run.

For each estimate and number of runs, prints the choice and that of the whole study, and what the
screen loses and saves.

    python -m benchmarks.screening [PROJECT]    # a folder in which a study has run

benchmarks/screening.md has three studies.

Scores are means over all seeds; the choice is the run and method with the best one, from scratch
included, which no screen leaves out. The loss at random is the mean over all sets of equally many
runs. The saved time is the time of trials, less the measured time of the estimates of all runs;
runs are pretrained before screening, so no pretraining is saved.
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import get_args

import pandas as pd

from stages.core.params import Params, Run, Screen
from stages.core.study_file import load
from stages.evaluation.estimates import EstimateRecord
from stages.evaluation.metrics import merit, scale_of
from stages.evaluation.screening import LAYERS, candidates, screened_out

KEEP = (1, 2, 3, 5)
ESTIMATES: tuple[str, ...] = get_args(Screen.model_fields["by"].annotation)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "project", type=Path, nargs="?", default=Path(), help="default: the current folder"
    )
    project = parser.parse_args().project
    params = load(project / "params.yaml")
    if params.finetune.screen is not None:
        raise SystemExit("finetune.screen is set: not every run was fine-tuned; leave it out")
    runs = params.runs
    trials, costs, estimates = (
        pd.read_csv(project / f"reports/{name}.csv") for name in ("trials", "costs", "estimates")
    )
    rows = pd.DataFrame(
        row
        for task in params.tasks
        for row in screens(
            runs,
            trials[(trials["task"] == task) & trials["run"].isin([*runs])],
            costs[(costs["task"] == task) & costs["run"].isin([*runs])],
            records_of(estimates[estimates["task"] == task]),
            seconds_of_estimates(project, task),
        )
    )
    print(rows.to_markdown(index=False, disable_numparse=True))
    print(f"\n{summary(params, rows)}")


def records_of(table: pd.DataFrame) -> list[EstimateRecord]:
    """Returns the estimates that have a value, of the layer that is used for screening."""
    with_value = table[(table["layers"] == LAYERS) & table["value"].notna()]
    return [
        EstimateRecord(
            run=row.run,
            pretrain_seed=int(row.pretrain_seed),
            estimate=row.estimate,
            layers=row.layers,
            value=float(row.value),
            layer=None,
            num_rows=int(row.num_rows),
            num_states=int(row.num_states),
            flops=int(row.flops),
            reason="",
        )
        for row in with_value.itertuples()
    ]


def seconds_of_estimates(project: Path, task: str) -> float:
    path = project / "data/timings/estimates" / f"{task}.csv"
    return float(pd.read_csv(path)["wall_time_s"].sum()) if path.exists() else 0.0


def screens(
    runs: dict[str, Run],
    trials: pd.DataFrame,
    costs: pd.DataFrame,
    records: Sequence[EstimateRecord],
    estimating_s: float,
) -> Iterator[dict[str, str]]:
    """Yields a row of one task for each label budget, estimate and number of kept runs."""
    metric, task = trials["metric"].iloc[0], trials["task"].iloc[0]
    shown = scale_of(metric).shown
    pretrained = {*candidates(runs)}
    all_s = costs["wall_time_s"].sum()
    judged = trials.assign(merit=[merit(metric, value) for value in trials["value"]])
    for budget, some in judged.groupby("label_budget"):
        means = some.groupby(["run", "method"])["merit"].mean()
        best_of = means.groupby("run").max()
        whole = means.idxmax()
        for by in ESTIMATES:
            for keep in KEEP:
                screen = Screen.model_validate({"by": by, "keep": keep})
                left_out = {screened.run for screened in screened_out(screen, runs, records)}
                if not left_out:
                    continue
                kept = means[~means.index.get_level_values("run").isin(left_out)]
                blind = blind_losses(best_of, pretrained, keep)
                saved = costs[costs["run"].isin(left_out)]["wall_time_s"].sum() - estimating_s
                trained = trials["run"].isin(left_out).mean()
                yield {
                    "task": task,
                    "labels": str(budget),
                    "by": by,
                    "keep": str(keep),
                    "of the study": " ".join(whole),
                    "of the screen": " ".join(kept.idxmax()),
                    "lost": shown(means.max() - kept.max()),
                    "at random": shown(fmean(blind)),
                    "trials saved": f"{trained:.0%}",
                    "time saved": f"{saved / all_s:.0%}",
                    "time of the study": f"{all_s:.0f} s",
                    "with the screen": f"{all_s - saved:.0f} s",
                }


def blind_losses(best_of: pd.Series, pretrained: set[str], keep: int) -> list[float]:
    """Returns what each set of ``keep`` pretrained runs would lose, if runs from scratch are kept
    in addition."""
    always = [value for run, value in best_of.items() if run not in pretrained]
    others = [value for run, value in best_of.items() if run in pretrained]
    kept = combinations(others, min(keep, len(others)))
    return [max(best_of) - max(*some, *always, -float("inf")) for some in kept]


def summary(params: Params, rows: pd.DataFrame) -> str:
    """Returns in how many tasks each screen kept the choice of the study."""
    right = rows.assign(right=rows["of the study"] == rows["of the screen"])
    lines = [f"Study `{params.study}`: in how many of its tasks the choice is that of the study.\n"]
    table = right.groupby(["by", "keep"], sort=False)["right"].agg(["sum", "count"]).reset_index()
    table["right"] = [f"{r} of {n}" for r, n in zip(table["sum"], table["count"], strict=True)]
    wide = table.pivot(index="by", columns="keep", values="right").reindex(ESTIMATES)
    return "\n".join([*lines, wide.dropna(how="all").to_markdown()])


if __name__ == "__main__":
    main()
