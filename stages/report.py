"""Compare all trials of the study: reports/."""

from stages.core import paths
from stages.core.artifacts import replacing, write_json
from stages.core.plans import ReportPlan
from stages.core.process import run_stage
from stages.evaluation.records import write_table
from stages.findings.results import Results, load
from stages.reporting import csvs, pages
from stages.reporting.view import View
from stages.tracking.view import reconcile


def main(plan: ReportPlan) -> str:
    results = load(plan.params)
    write(results)
    reconcile(plan.params)
    return str(paths.REPORTS / "index.html")


def write(results: Results) -> None:
    """Writes everything in reports/: numbers, tables, pictures and pages."""
    view = View(results, labels(results))
    for name, rows in csvs.files(results).items():
        write_table(paths.REPORTS / f"{name}.csv", csvs.COLUMNS[name], rows)
    for name, numbers in (("metrics", csvs.metrics), ("summary", csvs.summary)):
        with replacing(paths.REPORTS / f"{name}.json") as path:
            write_json(path, numbers(results))
    with replacing(paths.REPORTS / "tables") as folder:  # drops the earlier tables
        folder.mkdir()
        for table in pages.all_tables(view, times=False).values():
            (folder / f"{table.name}.csv").write_text(table.csv(), encoding="utf-8")
            (folder / f"{table.name}.tex").write_text(table.latex(), encoding="utf-8")
    pictures = pages.pictures(view)
    with replacing(paths.REPORTS / "figures") as folder:
        for kind in ("more", "measured"):
            (folder / kind).mkdir(parents=True)
        (folder / "comparison.svg").write_text(
            pictures["comparison"].svg(dark=True), encoding="utf-8"
        )
        for picture in pictures.values():
            picture.save(folder / picture.folder)
    for name, text in (
        ("comparison.md", pages.markdown(view)),
        ("index.html", pages.html(view, pictures)),
        ("answer.txt", pages.terminal(view)),
    ):
        with replacing(paths.REPORTS / name) as path:
            path.write_text(text, encoding="utf-8")


def labels(results: Results) -> dict[str, str]:
    """Returns the display names of those models that have one."""
    runs = results.params.models.items()
    return {name: entry.label for name, entry in runs if entry.label}


if __name__ == "__main__":
    run_stage(main, ReportPlan)
