import json

import pytest
from mlflow.entities import Run

from stages.core.params import Params
from stages.tracking.view import reconcile
from tests.tracking.tracked_study import client, name_of, write_evaluation, write_report

pytestmark = pytest.mark.slow


def test_its_views_show_runs_that_have_their_columns(params: Params) -> None:
    """Each by the link that the command prints, in the menu "Views" and in the note."""
    pages = reconcile(params)
    assert [*pages][:3] == ["Scores", "Leaderboard of tag", "Leaderboard of section"]
    experiment = client().get_experiment_by_name("smoke")
    assert experiment
    for title, page in pages.items():
        key = page.rpartition("viewStateShareKey=")[2]
        kept = json.loads(experiment.tags[f"mlflow.sharedViewState.{key}"])
        state = json.loads(kept["state"])
        assert kept["name"] == title and page in experiment.tags["mlflow.note.content"]
        found = listed(state)
        known = {f"metrics.`{key}`" for run in found for key in run.data.metrics}
        known |= {f"tags.`{key}`" for run in found for key in run.data.tags}
        assert found and set(state["selectedColumns"]) <= known, title
    assert len(experiment.tags["mlflow.note.content"]) <= 1500


def test_the_best_run_of_a_task_leads_its_leaderboard(params: Params) -> None:
    write_evaluation("tag", shift=0.1)
    write_report("The encoder leads.")
    reconcile(params)
    experiment = client().get_experiment_by_name("smoke")
    assert experiment
    kept = json.loads(experiment.tags["mlflow.sharedViewState.leaderboard_tag"])
    state = json.loads(kept["state"])
    found = listed(state)
    assert [round(run.data.metrics["score"], 6) for run in found] == [0.465, 0.415, 0.415]
    assert name_of(found[0]) == "encoder_mlm full tag 50"


def listed(state: dict) -> list[Run]:
    """The runs that a view lists, in its order."""
    order = [f"{state['orderByKey']} {'ASC' if state['orderByAsc'] else 'DESC'}"]
    experiment = client().get_experiment_by_name("smoke")
    assert experiment
    place = [experiment.experiment_id]
    return [*client().search_runs(place, state["searchFilter"], order_by=order)]
