"""The smoke study end to end: real DVC on a real git repository."""

import csv
import json

import pytest
from ruamel.yaml import YAML

from stages.core.artifacts import read_json
from stages.core.study_file import load
from tests.project import (
    ROOT,
    SHORTER,
    Project,
    clone_of_working_tree,
    recommented,
)

pytestmark = pytest.mark.slow

AFTER_THE_NOTEBOOK = """
import json

again = run_study("../studies/smoke.yaml")  # as it was
both = [found.scores.query("model == 'encoder_mlm'") for found in (tables, more)]
one = again.scores.query("task == 'tag' and model == 'encoder_mlm' and method == 'full'")
print(json.dumps({
    "trials_of_a_score": [int(scores["num_trials"].max()) for scores in both],
    "trials": [len(tables.trials), len(more.trials)],
    "mean": list(one["mean"]),
}))
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The smoke study, which each test takes as the test before has left it."""
    project = clone_of_working_tree(tmp_path_factory.mktemp("study") / "project", SHORTER)
    assert project.repro()
    return project


def test_report_has_every_trial(study) -> None:
    params = load(study.folder / "params.yaml")
    with (study.folder / "reports" / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    keys = {
        (r["model"], r["task"], r["method"], r["label_budget"], r["finetune_seed"]) for r in rows
    }
    assert len(keys) == len(rows)
    trials = [key for key in keys if key[0] in params.runs]
    cells = len(params.runs) * len(params.tasks) * len(params.finetune.methods)
    assert len(trials) == cells * len(params.finetune.seeds) * len(params.finetune.label_budgets)
    baselines = {(run, task) for run, task, *_ in keys if run not in params.runs}
    assert baselines == {
        ("majority", "tag"),
        ("majority", "section"),
        ("crf", "tag"),
        ("tfidf", "section"),
    }
    assert all(0 <= float(row["value"]) <= 1 for row in rows)
    for name in ("index.html", "comparison.md", "figures/comparison.svg", "metrics.json"):
        assert (study.folder / "reports" / name).stat().st_size > 500


def test_test_labels_are_read_by_evaluation_alone(study) -> None:
    """Fine-tuning depends on the examples, and test examples have no label."""
    lock = YAML(typ="safe").load((study.folder / "dvc.lock").read_text())["stages"]
    readers = {
        name.partition("@")[0]
        for name, stage in lock.items()
        if any("test_labels" in dep["path"] for dep in stage.get("deps", []))
    }
    assert readers == {"evaluate"}
    for task in ("tag", "section"):
        text = (study.folder / f"data/tasks/{task}/examples/test.jsonl").read_text()
        rows = [json.loads(line) for line in text.splitlines()]
        assert rows and not any({"label", "tags"} & row.keys() for row in rows)


def test_weights_of_a_frozen_backbone_are_not_stored_again(study) -> None:
    weights = study.folder / "data/finetuned/tag/encoder_mlm/weights"
    probe = weights / "linear_probe-50-1-1.safetensors"
    assert probe.stat().st_size < 10_000 < (weights / "full-50-1-1.safetensors").stat().st_size
    assert not (weights / "full-50-1-2.safetensors").exists()  # keep_weights: first_seed


def test_notebook_trains_what_a_seed_adds_and_has_the_tables_of_the_report(study, tmp_path) -> None:
    """Its cells run in one process in the folder of the notebook, as Jupyter runs them."""
    cells = read_json(study.folder / "docs" / "notebook.ipynb")["cells"]
    script = tmp_path / "cells.py"
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    script.write_text("\n\n".join([*sources, AFTER_THE_NOTEBOOK]))
    before = num_stored(study)
    lines = study.run("sh", "-c", f"cd docs && exec python {script}").splitlines()
    assert "refused" in lines
    shown = json.loads(lines[-1])
    assert shown["trials_of_a_score"] == [1, 2] and shown["trials"][0] < shown["trials"][1]
    params = load(ROOT / "studies" / "smoke.yaml")
    groups = len(params.runs) * len(params.tasks) * len(params.finetune.methods)
    assert num_stored(study) - before == groups * len(params.finetune.label_budgets)
    metrics = read_json(study.folder / "reports" / "metrics.json")
    mean = metrics["tag"]["encoder_mlm"]["full"]["50"]["mean"]
    assert shown["mean"] == [mean]  # of the report that the last cell leaves


def num_stored(study: Project) -> int:
    code = "from stages.trials.store import root; print(len([*root().glob('*/trial.json.gz')]))"
    return int(study.run("python", "-c", code))


def test_comments_and_docstrings_rerun_nothing(study) -> None:
    """Every module is edited, so that every stage reads an edited one."""
    before = study.outputs()
    for file in (study.folder / "stages").rglob("*.py"):
        file.write_text(recommented(file.read_text(encoding="utf-8")), encoding="utf-8")
    assert study.pending() == ["resolve"]
    assert study.repro() == ["resolve"]
    assert study.outputs() == before


def test_mistakes_stop_everything_before_anything_runs(study) -> None:
    before = study.outputs()
    study.edit("models", "decoder_causal", "objective", value="casual")
    study.edit("models", "encoder_mlm", "objective", value={"name": "mlm", "mask_porb": 0.2})
    output = study.run("dvc", "repro", check=False)
    assert "models.decoder_causal.objective.name" in output and "did you mean 'causal'" in output
    assert "models.encoder_mlm.objective.mask_porb" in output
    assert "did you mean 'mask_prob'" in output and "Traceback" not in output
    assert "Running stage" not in output.replace("Running stage 'resolve'", "")
    assert study.outputs() == before
