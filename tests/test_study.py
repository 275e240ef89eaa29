"""The smoke study end to end: real DVC on a real git repository."""

import csv

import pytest

from stages.core.artifacts import read_jsonl
from stages.core.study_file import load
from tests.project import SHORTER, Project, clone_of_working_tree, recommented

pytestmark = pytest.mark.slow

BASELINES = {("majority", "tag"), ("majority", "section"), ("crf", "tag"), ("tfidf", "section")}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The smoke study, which each test takes as the test before has left it."""
    project = clone_of_working_tree(tmp_path_factory.mktemp("study") / "project", SHORTER)
    assert project.repro()
    return project


def test_report_has_every_trial(study: Project) -> None:
    params = load(study.folder / "params.yaml")
    with (study.folder / "reports/trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    names = ("model", "task", "method", "label_budget", "finetune_seed")
    keys = {tuple(row[name] for name in names) for row in rows}
    assert len(keys) == len(rows)
    trials = [key for key in keys if key[0] in params.models]
    cells = len(params.models) * len(params.tasks) * len(params.finetune.methods)
    assert len(trials) == cells * len(params.finetune.seeds) * len(params.finetune.label_budgets)
    assert {(run, task) for run, task, *_ in keys if run not in params.models} == BASELINES
    assert all(0 <= float(row["value"]) <= 1 for row in rows)
    for name in ("index.html", "comparison.md", "figures/comparison.svg", "metrics.json"):
        assert (study.folder / "reports" / name).stat().st_size > 500


def test_test_labels_are_read_by_evaluation_alone(study: Project) -> None:
    """Fine-tuning depends on the examples, and test examples have no label."""
    readers = {
        name.partition("@")[0]
        for name, stage in study.lock().items()
        if any("test_labels" in dep["path"] for dep in stage.get("deps", []))
    }
    assert readers == {"evaluate"}
    for task in ("tag", "section"):
        rows = read_jsonl(study.folder / f"data/tasks/{task}/examples/test.jsonl")
        assert rows and not any({"label", "tags"} & row.keys() for row in rows)


def test_weights_of_a_frozen_backbone_are_not_stored_again(study: Project) -> None:
    weights = study.folder / "data/finetuned/tag/encoder_mlm/weights"
    probe = weights / "linear_probe-50-1-1.safetensors"
    assert probe.stat().st_size < 10_000 < (weights / "full-50-1-1.safetensors").stat().st_size


def test_comments_and_docstrings_rerun_nothing(study: Project) -> None:
    """Every module is edited, so that every stage reads an edited one."""
    before = study.outputs()
    for file in (study.folder / "stages").rglob("*.py"):
        file.write_text(recommented(file.read_text(encoding="utf-8")), encoding="utf-8")
    assert study.pending() == ["resolve"]
    assert study.repro() == ["resolve"]
    assert study.outputs() == before


def test_mistakes_stop_everything_before_anything_runs(study: Project) -> None:
    before = study.outputs()
    study.edit("models", "decoder_causal", "objective", value="casual")
    study.edit("models", "encoder_mlm", "objective", value={"name": "mlm", "mask_porb": 0.2})
    output = study.run("dvc", "repro", check=False)
    assert "models.decoder_causal.objective.name" in output and "did you mean 'causal'" in output
    assert "models.encoder_mlm.objective.mask_porb" in output
    assert "did you mean 'mask_prob'" in output and "Traceback" not in output
    assert "Running stage" not in output.replace("Running stage 'resolve'", "")
    assert study.outputs() == before
