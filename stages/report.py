"""Compare all trials of the study: reports/."""

import sys

from tqdm import tqdm

from stages.core import paths
from stages.core.artifacts import replacing, write_json
from stages.core.plans import ReportPlan
from stages.core.process import run_stage
from stages.evaluation.records import write_table
from stages.exporting import mlflow_model
from stages.findings.results import load
from stages.reporting.figures import gallery
from stages.reporting.page import pages
from stages.reporting.words import files
from stages.tracking.view import reconcile


def main(plan: ReportPlan) -> str:
    params = plan.params
    results = load(params)
    for name, rows in files.files(results).items():
        write_table(paths.REPORTS / f"{name}.csv", files.COLUMNS[name], rows)
    for name, numbers in (("metrics", files.metrics), ("summary", files.summary)):
        with replacing(paths.REPORTS / f"{name}.json") as path:
            write_json(path, numbers(results))

    if not gallery.can_draw():
        print(
            "No figure is drawn: a limit of this process (`ulimit -v`) allows too little address "
            "space. Everything else is written. To draw them, run `dvc repro --force "
            "--single-item report` without the limit.",
            file=sys.stderr,
        )
    pictures = tqdm(gallery.pictures(results).items(), desc="figures", disable=None)
    with replacing(paths.REPORTS / "figures") as folder:  # drops the earlier figures
        more = folder / "more"
        more.mkdir(parents=True)
        drawn = {
            name: gallery.draw(
                picture,
                svg=(folder if name == "comparison" else more) / f"{name}.svg",
                png=more / f"{name}.png",
            )
            for name, picture in pictures
        }
    for name, text in (
        ("comparison.md", pages.markdown(results)),
        ("index.html", pages.html(results, drawn)),
    ):
        with replacing(paths.REPORTS / name) as path:
            path.write_text(text, encoding="utf-8")
    reconcile(params, loader=mlflow_model.__name__)
    return f"{paths.REPORTS / 'index.html'}, with {len(drawn)} figures"


if __name__ == "__main__":
    run_stage(main, ReportPlan)
