"""Compares the time that `make plan` estimates for each stage with the time that it took. Estimates
are made from a calibration alone, as before anything has run, and from the times of another run.
Run by hand in a project whose study has run; the result is in plan.md.

    python benchmarks/plan.py --earlier ANOTHER_CLONE_THAT_RAN_IT > benchmarks/plan.md
"""

import argparse
import sys
from collections import defaultdict
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))

from stages.core import paths
from stages.core.artifacts import read_json
from stages.core.process import TIMES
from stages.core.study_file import load
from stages.planning import speed
from stages.planning.estimate import made
from stages.sources import installed_docs

LONG_S = 10.0
BOUND = 0.3  # the largest error of an estimate that counts as close


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--earlier", type=Path, required=True, help="the project of another run")
    earlier = parser.parse_args().earlier
    taken = {path.stem: read_json(path)["wall_time_s"] for path in sorted(TIMES.glob("*.json"))}
    ways = {
        "by a calibration": estimates(list(taken), Path("data/nothing"), data=Path("data")),
        "by another run": estimates(list(taken), earlier, data=earlier / "data"),
    }
    rows = []
    for stage, seconds in sorted(taken.items(), key=lambda item: -item[1]):
        if seconds > LONG_S:
            row: dict[str, object] = {"stage": stage, "took (s)": round(seconds, 1)}
            for way, estimated in ways.items():
                is_known = stage in estimated
                row[f"{way} (s)"] = round(estimated[stage], 1) if is_known else "-"
                row[f"{way}, off"] = f"{estimated[stage] / seconds - 1:+.0%}" if is_known else "-"
            rows.append(row)
    for way, estimated in ways.items():
        off = [estimated[s] / t - 1 for s, t in taken.items() if t > LONG_S and s in estimated]
        within = sum(abs(each) <= BOUND for each in off)
        print(f"Estimated {way}: {within} of {len(off)} stages of over {LONG_S:.0f} s within 30 %.")
    print()
    print(pd.DataFrame(rows).to_markdown(index=False))


def estimates(stages: list[str], project: Path, *, data: Path) -> dict[str, float]:
    """Returns the seconds that ``make plan`` estimates for each stage from the times of another
    project, without stages that have no estimate."""
    speed.TIMES = project / TIMES
    installed_docs.PARSED = Path("data/nothing")  # as before the study ran
    paths.TIMINGS = project / "data" / "timings"
    paths.PRETRAINED, paths.FINETUNED = data / "pretrained", data / "finetuned"
    estimate = made(load(), stages)
    seconds_by_stage: dict[str, float] = defaultdict(float)
    for run in estimate.pretrain:
        if run.seconds is not None:
            seconds_by_stage[f"pretrain@{run.run}"] += run.seconds
    for trial in estimate.finetune:
        if trial.seconds is not None:
            seconds_by_stage[f"finetune@{trial.task}"] += trial.seconds
    return seconds_by_stage | {o.stage: o.seconds for o in estimate.others if o.seconds is not None}


if __name__ == "__main__":
    main()
