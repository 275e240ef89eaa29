"""Metrics and plots of DVC, clones, workers, and a pretraining that ends with its DVC and goes on
later: real DVC on a real git repository."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import vl_convert
from ruamel.yaml import YAML

from stages.core.artifacts import read_json
from tests.project import Project, finished_tiny_study, tiny_study
from tests.small_study import files_of

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


# Kills and signals, of processes that are a user's: these change the study

STAGE = "pretrain@encoder_mlm"
FOLDERS = ("pretrained", "progress/history", "progress/rates", "progress/samples")
OUTPUTS = tuple(f"{folder}/encoder_mlm/" for folder in FOLDERS)


def started(study: Project, *arguments: str, seconds: int) -> subprocess.Popen[bytes]:
    """Starts ``dvc repro``; the pretraining saves its state after each ``seconds``."""
    return subprocess.Popen(
        ["dvc", "repro", *arguments],
        cwd=study.folder,
        env=Project(study.folder, cold=True).environment | {"CHECKPOINT_SECONDS": str(seconds)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def wait_for(states: Path, pattern: str, dvc: subprocess.Popen[bytes]) -> None:
    while not any(states.glob(pattern)):
        assert dvc.poll() is None, "it ended before it could be interrupted"
        time.sleep(0.01)


def test_killed_pretraining_ends_as_if_it_had_not_been_killed(study: Project) -> None:
    """``kill -9`` of DVC alone, at the second learning rate of the second seed, ends its stage too.
    The weights, histories and samples of all seeds are those of an uninterrupted run, and the first
    seed is not trained again."""
    study.edit("pretrain", "seeds", value=[1, 2])
    study.edit("pretrain", "training", "num_steps", value=24)
    study.edit("pretrain", "training", "lr", value=[1e-3, 3e-3])
    study.repro("record_inputs@models")

    def outputs() -> dict[str, bytes]:
        files = files_of(study.folder / "data").items()
        return {name: content for name, content in files if name.startswith(OUTPUTS)}

    states = study.folder / ".scratch/pretrain/encoder_mlm"
    store = study.folder / ".scratch/checkpoints"
    others = {*store.iterdir()}
    running = started(study, STAGE, seconds=0)
    wait_for(states, "2/1/[!.]*.safetensors", running)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert outputs() == {}
    (first,) = {*store.iterdir()} - others
    trained_at = first.stat().st_mtime_ns
    assert study.repro(STAGE) == [STAGE]
    assert first.stat().st_mtime_ns == trained_at
    assert not any(states.rglob("*.safetensors"))
    resumed = outputs()
    weights = {f"{OUTPUTS[0]}{seed}/model.safetensors" for seed in (1, 2)}
    assert weights <= resumed.keys()
    for entry in [*store.iterdir()]:
        entry.rename(entry.with_name(f"not-{entry.name}"))
    assert study.repro("--force", "--single-item", STAGE) == [STAGE]
    assert outputs() == resumed


def test_signal_saves_the_training(study: Project) -> None:
    """Ctrl-C reaches DVC and its stage, here of a pretraining that takes hours."""
    study.edit("pretrain", "training", "num_steps", value=6_000_000)
    study.edit("pretrain", "training", "lr", value=1e-3)
    study.repro("record_inputs@models")
    states = study.folder / ".scratch/pretrain/encoder_mlm"
    dvc = started(study, "--single-item", STAGE, seconds=3)
    try:
        wait_for(states, "1/[!.]*.safetensors", dvc)
        (stage,) = psutil.Process(dvc.pid).children()
        shutil.rmtree(states)  # without a signal, the next state is saved three seconds later
        os.killpg(dvc.pid, signal.SIGINT)
        assert not psutil.wait_procs([stage], timeout=5)[1], "it has not ended"
    finally:
        if dvc.poll() is None:
            os.killpg(dvc.pid, signal.SIGKILL)
        dvc.wait()
    assert any(states.glob("1/[!.]*.safetensors"))
