import json
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from stages.core import paths
from stages.core.params import Params
from stages.evaluation.records import read_texts
from stages.tracking import records, study, trials
from stages.tracking.view import _commit, reconcile
from tests.tracking.tracked_study import (
    RUNS,
    client,
    current,
    curve,
    everything,
    id_of,
    inputs,
    name_of,
    shown,
    write_evaluation,
    write_pretraining,
    write_report,
    write_table,
    write_timings,
)

pytestmark = pytest.mark.slow

CELL = "encoder_mlm full tag 50"
TRIAL = f"{CELL} seed 1, fine-tuning seed 2"


def test_reconcile_shows_what_the_files_say(params: Params) -> None:
    assert reconcile(params)
    runs = current()
    assert Counter(run.data.tags["kind"] for run in runs.values()) == {
        "run": 2,
        "pretraining": 2,
        "baseline": 1,
        "trials": 3 * 2,
        "trial": 3 * 2 * 2,
        "comparison": 1,
    }
    parent, cell, trial = runs["encoder_mlm"], runs[CELL], runs[TRIAL]
    pretraining = runs["encoder_mlm seed 1"]
    assert parents(cell, pretraining) == {id_of(parent)} and parents(trial) == {id_of(cell)}
    assert curve(pretraining, "train/loss") == [(step, 7 - step / 8) for step in range(1, 9)]
    assert curve(pretraining, "train/validation_loss") == [(8, 5.5)]
    assert curve(trial, "score") == [(0, 0.42)] and trial.data.metrics["train/best_epoch"] == 1.0
    assert curve(trial, "train/validation_metric") == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert curve(trial, "train/loss") == [(1, 2.0), (2, 1.0), (3, pytest.approx(2 / 3))]
    assert cell.data.params["finetune.training.lr"] == "0.001"
    assert parent.data.params["training.lr"] == "0.003"
    files = {file.path for file in client().list_artifacts(id_of(runs["comparison"]))}
    assert {"comparison.md", "index.html", "trials.csv", "figures"} <= files


def test_reconcile_shows_the_answer_and_the_effects_of_the_report(params: Params) -> None:
    answer = (
        "# Which?\n\nThe encoder leads ([audit](#audit)). [What the names mean](#names).\n\n"
        "![scores](figures/comparison.svg)\n"
    )
    write_report(f"{answer}More.")
    reconcile(params)
    report = current()["comparison"]
    note = report.data.tags["mlflow.note.content"].split("\n\n")
    assert note[:2] == ["Which?", "The encoder leads (audit)."]
    assert "0.05 is 5 points" in note[2] and "`index.html`" in note[3]
    place = "full/50/encoder_mlm/encoder_scratch"
    gain, size = f"effect/pretrained/{place}", f"effect/size/{place}"
    expected = {gain: 0.05, f"{gain}_low": 0.01, f"{gain}_high": 0.09, size: 0.05}
    assert report.data.metrics == expected


def test_reconcile_draws_curves_of_training_alone(params: Params) -> None:
    """Points at step 0 are single numbers; other points are steps or epochs."""
    reconcile(params)
    for run in current().values():
        drawn = {key for key in run.data.metrics if [step for step, _ in curve(run, key)] != [0]}
        assert all(key.startswith("train/") for key in drawn), run.info.run_name
        assert not drawn or run.data.tags["kind"] in ("pretraining", "trial")


def test_reconcile_gives_parents_the_scores_and_intervals_of_the_report(params: Params) -> None:
    reconcile(params)
    answers, cell = (current()[name].data.metrics for name in ("encoder_mlm", CELL))
    printed = json.loads(Path("reports/metrics.json").read_text())["tag"]["encoder_mlm"]["full"]
    assert answers["score/tag/full/50"] == cell["score"] == printed["50"]["mean"]
    assert answers["score/tag/full/50_low"] == cell["score_low"] == printed["50"]["low"]
    assert answers["score/tag/full/50_high"] == cell["score_high"] == printed["50"]["high"]
    assert answers["gain_over_scratch/tag/full/50_low"] == cell["gain_over_scratch_low"] == 0.01
    baseline = current()["tfidf"].data.metrics
    assert "score/tag/classical/50" in baseline
    assert not any(key.endswith(("_low", "_high")) for key in baseline)  # the report has none
    written = {"score", "train", "cost", "gain_over_scratch"}
    assert {key.split("/")[0] for key in {**answers, **baseline}} <= written


def test_reconcile_tags_new_runs_with_the_commit(params: Params) -> None:
    for command in ("init -q", "add params.yaml", "-c user.name=a -c user.email=b commit -qm c"):
        Path("params.yaml").touch()
        subprocess.run(["git", *command.split()], check=True)
    _commit.cache_clear()
    reconcile(params)
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout
    commits = {run.data.tags["mlflow.source.git.commit"] for run in current().values()}
    assert commits == {head.strip()}
    _commit.cache_clear()


def test_reconcile_tags_what_a_run_is(params: Params) -> None:
    reconcile(params)
    run = {"study": "smoke", "run": "encoder_mlm", "architecture": "encoder", "size": "2x64"}
    run |= {"objective": "mlm", "corpus": "prose", "pretrained": "true"}
    cell = run | {"task": "tag", "method": "full", "label_budget": "50"}
    trial = cell | {"pretrain_seed": "1", "finetune_seed": "2"}
    baseline = {"run": "tfidf", "pretrained": "false", "objective": "none", "corpus": "none"}
    runs = current()
    for name, tags in (("encoder_mlm", run), (CELL, cell), (TRIAL, trial), ("tfidf", baseline)):
        assert runs[name].data.tags.items() >= tags.items(), name
    assert not runs[CELL].data.tags.keys() & {"pretrain_seed", "finetune_seed"}
    query = "tags.architecture = 'encoder' and tags.task = 'tag' and tags.finetune_seed = '2'"
    matches = client().search_runs([runs["comparison"].info.experiment_id], query)
    assert [name_of(match) for match in matches] == [TRIAL]


def test_reconcile_describes_each_run(params: Params) -> None:
    """A description has two paragraphs."""
    reconcile(params)
    runs = current()
    notes = {name: run.data.tags["mlflow.note.content"] for name, run in runs.items()}
    assert all(len(notes[name].split("\n\n")) == 2 for name in notes if name != "comparison")
    assert notes["encoder_mlm"].startswith("All seeds of `encoder_mlm`: its scores")
    assert "mlm on prose" in notes["encoder_mlm seed 1"]
    assert "Leaderboard of tag" in notes[CELL]
    assert "with pretraining seed 1 and fine-tuning seed 2." in notes[TRIAL]
    assert notes["tfidf"].startswith("The baseline `tfidf`: its scores")
    drawn = notes["tfidf classical tag 50 seed 1, fine-tuning seed 2"]
    assert "with the labelled rows of seeds 1 and 2." in drawn  # nothing was pretrained
    assert not any("{" in note for note in notes.values())


def test_reconcile_describes_an_external_system_without_labelled_rows(params: Params) -> None:
    """Such a system is a baseline that tried nothing."""
    path = paths.EVALUATED / "tag/trials.csv"
    write_table(path, [row | {"num_tries": 0} for row in read_texts(path)])
    reconcile(params)
    trial = current()["tfidf classical tag 50 seed 1, fine-tuning seed 1"]
    assert "external system `tfidf`" in trial.data.tags["mlflow.note.content"]


def test_reconcile_keeps_a_description_that_a_user_edited(params: Params) -> None:
    reconcile(params)
    key, edit = "mlflow.note.content", "The trial that we shipped."
    client().set_tag(id_of(current()[TRIAL]), key, edit)
    reconcile(params)
    assert current()[TRIAL].data.tags[key] == edit


def test_reconcile_shows_how_long_a_run_took_with_all_below_it_and_on_what(params: Params) -> None:
    write_timings()
    reconcile(params)
    runs = current()
    times = {"encoder_mlm": 14, "encoder_mlm seed 1": 6, CELL: 8, TRIAL: 5}
    for name, seconds in times.items():
        info = runs[name].info
        assert info.end_time and info.end_time - info.start_time == 1000 * seconds
    for name in ("encoder_mlm seed 1", CELL, TRIAL):
        assert runs[name].data.tags.items() >= {"hardware": "AMD EPYC", "threads": "1"}.items()
        assert "cost/threads" not in runs[name].data.metrics
    assert "hardware" not in runs["encoder_mlm"].data.tags
    assert {runs[name].info.end_time for name in ("tfidf", "comparison")} == {None}  # unknown


def test_reconcile_logs_data_that_a_run_read_as_its_inputs(params: Params) -> None:
    """A corpus is added once DVC has restored it."""
    shutil.move("data/corpora", "elsewhere")
    reconcile(params)
    assert inputs(current()["encoder_mlm seed 1"]) == []
    shutil.move("elsewhere", "data/corpora")
    reconcile(params)
    runs = current()
    assert inputs(runs["encoder_mlm seed 1"]) == [("all", "c" * 16)]
    assert inputs(runs["tfidf classical tag 50"]) == inputs(runs[CELL])
    assert inputs(runs["tfidf classical section 50"]) != inputs(runs[CELL])
    readers = client().search_runs([runs["comparison"].info.experiment_id], "dataset.name = 'all'")
    assert {name_of(run) for run in readers} == {f"{run} seed 1" for run in RUNS}
    assert len(shown()) == len(runs)


def test_reconcile_logs_nothing_twice_but_in_a_new_store(
    params: Params, another_store: str
) -> None:
    reconcile(params)
    first = everything()
    assert reconcile(params)
    assert everything() == first and len(shown()) == len(first)
    os.environ["MLFLOW_TRACKING_URI"] = another_store
    reconcile(params)
    assert everything() == first


def test_reconcile_shows_a_moved_project_its_own_files(params: Params, tmp_path: Path) -> None:
    """The original is gone, and its path is a prefix of the new one."""
    reconcile(params)
    before = everything()
    here = Path.cwd()
    moved = shutil.copytree(here, tmp_path / "a study, moved")
    shutil.rmtree(here)
    os.chdir(moved)
    reconcile(params)
    assert everything() == before and len(shown()) == len(before)
    assert len(client().search_experiments()) == 2  # this one and MLflow's own
    run = current()["comparison"]
    assert run.info.artifact_uri and run.info.artifact_uri.startswith(moved.as_uri())
    kept = Path(client().download_artifacts(id_of(run), "comparison.md"))
    assert kept.read_text() == Path("reports/comparison.md").read_text()


def test_reconcile_adds_runs_to_a_database_of_an_older_form(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        for module in (records, study, trials):
            older.setattr(module, "FORM", "1")
        reconcile(params)
    before = {id_of(run) for run in shown()}
    reconcile(params)
    assert not before & {id_of(run) for run in current().values()}
    assert len(shown()) == 2 * len(before) and len(current()) == len(before)


def test_reconcile_shows_a_study_of_many_trials_by_groups(
    params: Params, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(study, "MAX_TRIALS", 11)
    reconcile(params)
    kinds = Counter(run.data.tags["kind"] for run in shown())
    assert kinds["trials"] == 6 and kinds["trial"] == 0
    assert "reports/trials.csv has all" in capsys.readouterr().err


def test_reconcile_completes_what_was_interrupted(
    params: Params, another_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconcile(params)
    whole = everything()
    os.environ["MLFLOW_TRACKING_URI"] = another_store
    for step in ("update_run", "log_inputs", "log_artifact"):
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(MlflowClient, step, interrupt)
            reconcile(params)
        assert "comparison" not in current()
    reconcile(params)
    assert everything() == whole


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_reconcile_keeps_superseded_runs_but_not_as_current(params: Params) -> None:
    reconcile(params)
    before = current()
    write_pretraining("encoder_mlm", "another")
    write_evaluation("tag", shift=0.1)
    reconcile(params)
    changed = {name for name, run in current().items() if run.info.run_id != id_of(before[name])}
    of_cells = [CELL, "encoder_mlm full section 50"]  # trained anew from it, with equal scores
    of_trials = [f"{cell} seed 1, fine-tuning seed {seed}" for cell in of_cells for seed in (1, 2)]
    assert changed == {"encoder_mlm", "encoder_mlm seed 1", *of_cells, *of_trials}
    assert len(shown()) == len(before) + len(changed)
    assert "score_low" not in current()[CELL].data.metrics  # the report is older than these trials

    write_pretraining("encoder_mlm", "a" * 8)  # as restored from DVC's cache
    write_evaluation("tag")
    reconcile(params)
    assert {name: id_of(run) for name, run in current().items()} == {
        name: id_of(run) for name, run in before.items()
    }


def test_reconcile_retires_a_run_that_params_no_longer_list(params: Params) -> None:
    reconcile(params)
    fewer = {name: run for name, run in params.runs.items() if name != "decoder_causal"}
    reconcile(params.model_copy(update={"runs": fewer}))
    assert not {name for name in current() if name.startswith("decoder_causal")}


def test_reconcile_shows_what_an_unfinished_study_has(params: Params) -> None:
    for folder in ("data/evaluated", "data/pretrained/decoder_causal", "reports"):
        shutil.rmtree(folder)
    assert reconcile(params)
    assert set(current()) == {"encoder_mlm", "encoder_mlm seed 1"}


def parents(*runs: Run) -> set[str]:
    return {run.data.tags["mlflow.parentRunId"] for run in runs}
