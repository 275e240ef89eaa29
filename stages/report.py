"""Compare all trials of the study: reports/."""

from pathlib import Path

from tqdm import tqdm

from stages.artifacts import remove, replacing, write_json
from stages.evaluation.trials import write_table
from stages.params import Params
from stages.process import run_stage
from stages.reporting import costs, figures, page, tables
from stages.reporting.results import load
from stages.training.tracking import reconcile

REPORTS = Path("reports")


def main(params: Params) -> None:
    results = load(params)
    write_table(REPORTS / "trials.csv", tables.TRIALS, tables.trials(results))
    write_table(REPORTS / "costs.csv", costs.COLUMNS, costs.rows(results))
    contrasts = [contrast.row() for contrast in results.contrasts]
    write_table(REPORTS / "contrasts.csv", tables.CONTRASTS, contrasts)
    with replacing(REPORTS / "metrics.json") as path:
        write_json(path, tables.metrics(results))

    more = REPORTS / "figures" / "more"
    remove(more)  # of runs and tasks that are no more
    drawn = {
        name: figures.draw(
            picture,
            svg=(REPORTS / "figures" if name == "comparison" else more) / f"{name}.svg",
            png=more / f"{name}.png",
        )
        for name, picture in tqdm(figures.pictures(results).items(), desc="figures", disable=None)
    }
    for name, text in (
        ("comparison.md", page.markdown(results)),
        ("index.html", page.html(results, drawn)),
    ):
        with replacing(REPORTS / name) as path:
            path.write_text(text, encoding="utf-8")
    reconcile(params)


if __name__ == "__main__":
    run_stage(main)
