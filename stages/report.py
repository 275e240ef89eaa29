"""Compare all trials of the study: reports/."""

from tqdm import tqdm

from stages.core import paths
from stages.core.artifacts import remove, replacing, write_json
from stages.core.params import Params
from stages.core.process import run_stage
from stages.evaluation.records import write_table
from stages.exporting import mlflow_model
from stages.reporting.comparison import (
    answer,
    corpora,
    costs,
    estimates,
    questions,
    ranking,
    tables,
)
from stages.reporting.comparison.results import load
from stages.reporting.figures import gallery
from stages.reporting.page import pages
from stages.tracking.view import reconcile


def main(params: Params) -> None:
    results = load(params)
    write_table(paths.REPORTS / "trials.csv", tables.TRIALS, tables.trials(results))
    write_table(paths.REPORTS / "costs.csv", costs.COLUMNS, costs.rows(results))
    write_table(paths.REPORTS / "corpora.csv", corpora.COLUMNS, corpora.rows(results))
    for name, columns, found in (
        ("answer", answer.COLUMNS, answer.rows(results)),
        ("estimates", estimates.COLUMNS, estimates.rows(results)),
        ("agreement", estimates.AGREEMENT, estimates.agreement_rows(results)),
        ("questions", questions.COLUMNS, [question.row() for question in results.questions]),
        ("ranks", ranking.COLUMNS, ranking.rows(results)),
    ):
        write_table(paths.REPORTS / f"{name}.csv", columns, found)
    contrasts = [contrast.row() for contrast in results.contrasts]
    write_table(paths.REPORTS / "contrasts.csv", tables.CONTRASTS, contrasts)
    with replacing(paths.REPORTS / "metrics.json") as path:
        write_json(path, tables.metrics(results))

    more = paths.REPORTS / "figures" / "more"
    remove(more)  # figures of runs and tasks that no longer exist
    drawn = {
        name: gallery.draw(
            picture,
            svg=(paths.REPORTS / "figures" if name == "comparison" else more) / f"{name}.svg",
            png=more / f"{name}.png",
        )
        for name, picture in tqdm(gallery.pictures(results).items(), desc="figures", disable=None)
    }
    for name, text in (
        ("comparison.md", pages.markdown(results)),
        ("index.html", pages.html(results, drawn)),
    ):
        with replacing(paths.REPORTS / name) as path:
            path.write_text(text, encoding="utf-8")
    reconcile(params, loader=mlflow_model.__name__)


if __name__ == "__main__":
    run_stage(main)
