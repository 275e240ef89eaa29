"""Metrics and plots of DVC, clones and workers: real DVC on a real git repository."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import vl_convert
from ruamel.yaml import YAML

from stages.core.artifacts import read_json
from tests.project import Project, finished_tiny_study, tiny_study

pytestmark = pytest.mark.slow

MEASURED = (  # times, not results
    *("data/timings", "reports/costs.csv", "reports/index.html", "reports/answer.txt"),
    "reports/figures/measured",
    "reports/summary.json",
)
REPORTS = ("index.html", "trials.csv", "comparison.md", "figures/comparison.svg")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Returns a study with committed results."""
    project = finished_tiny_study(tmp_path_factory.mktemp("study") / "project")
    project.commit("results")
    return project


def test_metrics_show_is_the_flat_summary_and_any_other_file_by_name(study: Project) -> None:
    summary = read_json(study.folder / "reports/summary.json")
    assert [*summary] == ["loudness.score", "loudness.lead", "minutes"]

    def shown(*arguments: str) -> Any:
        files = json.loads(study.run("dvc", "metrics", "show", "--json", *arguments))
        return {path: file["data"] for path, file in files[""]["data"].items()}

    assert shown() == {"reports/summary.json": summary}
    scores = "reports/metrics.json"
    assert shown(scores) == {scores: read_json(study.folder / scores)}


def test_plots_show_draws_every_plot_of_dvc_yaml(study: Project) -> None:
    output = study.run("dvc", "plots", "show")
    assert "failed" not in output.casefold()
    page = (study.folder / "dvc_plots/index.html").read_text()
    specs = map(json.loads, re.findall(r"var spec = (.*);", page))  # empty without data
    drawn = {spec["title"]["text"]: vl_convert.vegalite_to_svg(spec) for spec in specs if spec}
    plots = YAML(typ="safe").load((study.folder / "dvc.yaml").read_text())["plots"]
    loss, *others = [name for plot in plots for name in plot]
    assert [*drawn] == [f"{loss}/encoder_mlm/1.csv", *others]
    words = ("tokens", "encoder_scratch, full", "majority", "noisy", "mean probability")
    for word, picture in zip(words, drawn.values(), strict=True):
        assert word in picture and 'aria-roledescription="' in picture


def test_clone_that_pulls_runs_nothing_and_has_the_same_report(
    study: Project, tmp_path: Path
) -> None:
    study.run("dvc", "remote", "add", "--default", "--force", "shared", str(tmp_path / "remote"))
    study.run("dvc", "push", "--quiet")
    study.commit("a remote")
    clone = Project(tmp_path / "clone")
    url = study.folder.as_uri()
    study.run("git", "clone", "--quiet", "--depth", "1", url, str(clone.folder))
    clone.run("dvc", "pull", "--quiet")
    assert clone.pending() == []
    assert "nothing" in clone.run("python", "-m", "stages.commands.plan").casefold()
    assert clone.repro() == []
    for name in REPORTS:
        ours, theirs = (project.folder / "reports" / name for project in (study, clone))
        assert ours.read_bytes() == theirs.read_bytes()


def test_two_workers_in_another_folder_leave_the_same_results(
    study: Project, tmp_path: Path
) -> None:
    """All results but measured times are equal, and so is the order of entries in dvc.lock."""
    other = tiny_study(tmp_path / "other")
    output = other.run("python", "-m", "stages.commands.repro", "--jobs", "2")
    assert "Data and pipelines are up to date." in output
    logs = {file.stem for file in (other.folder / ".scratch/logs").iterdir()}
    assert len([name for name in logs if name.startswith("trials@")]) == 4  # runs times methods
    assert logs >= {*study.lock()} - {"resolve"}
    assert [*other.lock()] == [*study.lock()]
    before, after = study.outputs(), other.outputs()
    for path in before:
        assert before[path] == after[path] or path.startswith(MEASURED), path
