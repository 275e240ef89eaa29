import json
import re

import pytest
from mlflow.entities import Run

from stages.core import paths
from stages.core.params import Params
from stages.evaluation.records import read_texts
from stages.tracking.view import reconcile
from tests.tracking.tracked_study import (
    client,
    current,
    id_of,
    name_of,
    write_evaluation,
    write_report,
    write_table,
    write_timings,
)

pytestmark = pytest.mark.slow


def test_saved_views_list_runs_that_have_their_columns(params: Params) -> None:
    """The links that the command prints are in the experiment's note, too."""
    pages = reconcile(params)
    leaderboards = ["Leaderboard of tag", "Leaderboard of section"]
    assert [*pages] == ["Scores", *leaderboards, "Pretraining", "The report"]
    experiment = client().get_experiment_by_name("smoke")
    assert experiment
    report = pages.pop("The report")
    assert report in experiment.tags["mlflow.note.content"]
    page = f"/runs/{id_of(current()['comparison'])}?workflowType=machine_learning"
    assert report.endswith(page)  # else MLflow opens its pages for language-model applications
    for title, page in pages.items():
        key = re.findall(r"viewStateShareKey=(\w+)", page)[0]
        kept = json.loads(experiment.tags[f"mlflow.sharedViewState.{key}"])
        state = json.loads(kept["state"])
        assert kept["name"] == title and page in experiment.tags["mlflow.note.content"]
        runs = listed(state)
        columns = {f"metrics.`{key}`" for run in runs for key in run.data.metrics}
        columns |= {f"tags.`{key}`" for run in runs for key in run.data.tags}
        assert runs and set(state["selectedColumns"]) <= columns, title


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
    assert "tags.`against_baselines`" in state["selectedColumns"]
    assert [run.data.tags.get("against_baselines") for run in runs] == ["It leads.", None, None]


def test_leaderboard_shows_score_and_gain_without_scrolling(params: Params) -> None:
    """A page of 1440 pixels leaves 1180 to the table, of which MLflow takes 140 for the date. The
    interval of the gain follows the gain and precedes the costs."""
    write_timings()
    write_report("The encoder leads.")
    reconcile(params)
    state = state_of("leaderboard_tag")
    widths = [state["columnWidths"][column] for column in state["columnOrder"]]
    columns = [re.findall("`(.*)`", column)[0] for column in state["columnOrder"]]
    gains = ["gain_over_scratch", "gain_over_scratch_low", "gain_over_scratch_high"]
    first = ["Run Name", "score", "score_low", "score_high", *gains, "cost/wall_time_s"]
    assert columns[: len(first)] == first
    assert sum(widths[: first.index(gains[1])]) <= 1180 - 140


def test_the_empty_experiment_of_mlflow_links_the_study(params: Params) -> None:
    page = reconcile(params)["Scores"]
    default = client().get_experiment_by_name("Default")
    assert default and f"[smoke]({page})" in default.tags["mlflow.note.content"]
    client().delete_experiment(default.experiment_id)  # by someone whom it disturbs
    assert reconcile(params)["Scores"] == page


def state_of(title: str) -> dict:
    experiment = client().get_experiment_by_name("smoke")
    assert experiment
    return json.loads(json.loads(experiment.tags[f"mlflow.sharedViewState.{title}"])["state"])


def test_scores_begin_with_a_column_in_which_baselines_have_a_value(params: Params) -> None:
    """The best run on the first task is first."""
    write_evaluation("tag", shift=0.1)
    write_report("The encoder leads.")
    reconcile(params)
    state = state_of("scores")
    first, second, *_ = state["selectedColumns"]
    assert (first, second) == ("metrics.`score/tag/best`", "metrics.`score/section/best`")
    scores = {name_of(run): run.data.metrics.get("score/tag/best") for run in listed(state)}
    assert [*scores][0] == "encoder_mlm" and scores["encoder_mlm"] == pytest.approx(0.465)
    assert scores["tfidf"] == pytest.approx(0.415)
    kinds = {name_of(run): run.data.tags["kind"] for run in listed(state)}
    assert kinds == {"encoder_mlm": "run", "decoder_causal": "run", "tfidf": "baseline"}
    # One method with one label budget: other columns would repeat the best scores.
    columns = [column for column in state["selectedColumns"] if column.startswith("metrics")]
    assert columns == [first, second] and "tags.`kind`" in state["selectedColumns"]


def test_scores_have_columns_of_methods_and_budgets_if_there_are_several(params: Params) -> None:
    path = paths.EVALUATED / "tag/trials.csv"
    rows = read_texts(path)
    write_table(path, rows + [row | {"label_budget": "100"} for row in rows])
    reconcile(params)
    columns = state_of("scores")["selectedColumns"]
    assert {"metrics.`score/tag/full/50`", "metrics.`score/tag/full/100`"} <= {*columns}


def test_curves_are_of_runs_that_are_listed(params: Params) -> None:
    """MLflow hides child runs and their curves in a list that is sorted by time. The link opens
    the charts."""
    assert "compareRunsMode=CHART" in reconcile(params)["Pretraining"]
    state = state_of("pretraining")
    assert state["orderByKey"].startswith("metrics.")
    assert {run.data.tags["kind"] for run in listed(state)} == {"pretraining"}
    charts = [chart["metricKey"] for chart in state["compareRunCharts"]]
    assert charts == ["train/loss", "train/validation_loss"]


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
