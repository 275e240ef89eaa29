import json

import pytest
from mlflow.entities import Run

from stages.core.params import Params
from stages.tracking.view import reconcile
from tests.tracking.tracked_study import client, name_of, write_evaluation, write_report

pytestmark = pytest.mark.slow


def test_saved_views_list_runs_that_have_their_columns(params: Params) -> None:
    """The links that the command prints are in the experiment's note, too."""
    pages = reconcile(params)
    leaderboards = ["Leaderboard of tag", "Leaderboard of section"]
    assert [*pages] == ["Scores", *leaderboards, "Pretraining"]
    experiment = client().get_experiment_by_name("smoke")
    assert experiment
    for title, page in pages.items():
        key = page.rpartition("viewStateShareKey=")[2]
        kept = json.loads(experiment.tags[f"mlflow.sharedViewState.{key}"])
        state = json.loads(kept["state"])
        assert kept["name"] == title and page in experiment.tags["mlflow.note.content"]
        runs = listed(state)
        known = {f"metrics.`{key}`" for run in runs for key in run.data.metrics}
        known |= {f"tags.`{key}`" for run in runs for key in run.data.tags}
        assert runs and set(state["selectedColumns"]) <= known, title


def test_leaderboard_begins_with_the_best_run_of_a_task(params: Params) -> None:
    write_evaluation("tag", shift=0.1)
    write_report("The encoder leads.")
    reconcile(params)
    experiment = client().get_experiment_by_name("smoke")
    assert experiment
    kept = json.loads(experiment.tags["mlflow.sharedViewState.leaderboard_tag"])
    state = json.loads(kept["state"])
    runs = listed(state)
    assert [round(run.data.metrics["score"], 6) for run in runs] == [0.465, 0.415, 0.415]
    assert name_of(runs[0]) == "encoder_mlm full tag 50"


def listed(state: dict) -> list[Run]:
    """The runs that a view lists, in its order."""
    order = [f"{state['orderByKey']} {'ASC' if state['orderByAsc'] else 'DESC'}"]
    experiment = client().get_experiment_by_name("smoke")
    assert experiment
    place = [experiment.experiment_id]
    return [*client().search_runs(place, state["searchFilter"], order_by=order)]


def test_leaderboard_goes_with_its_task(params: Params) -> None:
    reconcile(params)
    tasks = {key: task for key, task in params.tasks.items() if key != "tag"}
    reconcile(params.model_copy(update={"tasks": tasks}))
    experiment = client().get_experiment_by_name("smoke")
    assert experiment
    views = {key for key in experiment.tags if key.startswith("mlflow.sharedViewState.leader")}
    assert views == {"mlflow.sharedViewState.leaderboard_section"}
