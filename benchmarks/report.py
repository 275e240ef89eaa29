"""Measures the wall time of `report` with MLflow and the size of the page, on synthetic studies of
about 500 and 5,000 trials. Prints a Markdown table.

    python benchmarks/report.py
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.synthetic_study import RUNS, raw_params, repeated, write_study

ROOT = Path(__file__).parents[1]
STUDIES = {  # label budgets, fine-tuning seeds, number of pretraining seeds
    "500": ([200], [*range(1, 7)], 2),
    "5,000": ([200, 1000, 4000], [*range(1, 11)], 4),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="of each study, interleaved")
    repeats = parser.parse_args().repeats
    times: dict[str, list[float]] = {name: [] for name in STUDIES}
    about: dict[str, dict[str, Any]] = {}
    for _ in tqdm(range(repeats), desc="repeats", disable=None):
        for name in STUDIES:
            with tempfile.TemporaryDirectory() as folder:
                seconds, about[name] = measured(name, Path(folder))
            times[name].append(seconds)
    rows = [{**about[name], "median (s)": statistics.median(times[name])} for name in STUDIES]
    print(
        "The command `python -m stages.report` on a synthetic study that is new to MLflow,\n"
        f"on 2 cores; median of {repeats} runs, interleaved.\n"
    )
    print(pd.DataFrame(rows).to_markdown(index=False, floatfmt=(".0f", ".0f", ".0f", ".1f", ".1f")))


def measured(name: str, folder: Path) -> tuple[float, dict[str, Any]]:
    budgets, seeds, pretrainings = STUDIES[name]
    raw = raw_params(repeated(RUNS, pretrainings))
    raw["finetune"] |= {"label_budgets": budgets, "seeds": seeds}
    before = Path.cwd()
    os.chdir(folder)  # what a study reads is relative to its folder
    try:
        write_study(folder, raw)
    finally:
        os.chdir(before)
    begin = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "stages.report"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
    )
    seconds = time.monotonic() - begin
    reports = folder / "reports"
    return seconds, {
        "trials": len((reports / "trials.csv").read_text().splitlines()) - 1,
        "contrasts": len((reports / "contrasts.csv").read_text().splitlines()) - 1,
        "pictures": len([*(reports / "figures").rglob("*.svg")]),
        "page (MB)": (reports / "index.html").stat().st_size / 1e6,
    }


if __name__ == "__main__":
    main()
