from dataclasses import replace

from stages.reporting.comparison.results import Results
from stages.reporting.figures.rank_map import rank_map
from tests.synthetic_study import METRICS, RUNS


def cells_of(results: Results, task: str) -> dict[str, tuple[int, str]]:
    """What the heat map shows: run -> rank and score."""
    rows = rank_map(results)["datasets"]["labels_200"]
    return {row["run"]: (row["rank"], row["score"]) for row in rows if row["task"] == task}


def test_every_run_and_baseline_stands_there_with_its_best_method(results: Results) -> None:
    found = cells_of(results, "type")
    assert set(found) == {*RUNS, "majority", "tfidf"}  # window fits no classification
    assert sorted(rank for rank, _ in found.values()) == list(range(1, 10))
    full = results.cell("encoder_mlm", "type", "full", "200")
    probe = results.cell("encoder_mlm", "type", "linear_probe", "200")
    assert full and probe and full.merit > probe.merit
    assert found["encoder_mlm"][1] == f"{100 * full.mean.value:.1f}"
    assert found["majority"] == (9, "4.0")


def test_rows_are_in_the_order_of_params_and_baselines_are_below(results: Results) -> None:
    panel = rank_map(results)["hconcat"][0]
    assert panel["layer"][0]["encoding"]["y"]["scale"]["domain"] == [
        *RUNS,
        *("majority", "tfidf", "window"),
    ]
    assert panel["layer"][0]["encoding"]["x"]["scale"]["domain"] == list(METRICS)


def test_where_lower_is_better_the_lowest_is_first(results: Results) -> None:
    trials = [replace(trial, metric="bits_per_byte") for trial in results.trials]
    found = cells_of(replace(results, trials=trials), "type")
    assert found["majority"] == (1, "0.040") and found["tfidf"][0] == len(found)
    probe = replace(results, trials=trials).cell("encoder_mlm", "type", "linear_probe", "200")
    assert probe and found["encoder_mlm"][1] == f"{probe.mean.value:.3f}"  # the lower of the two


def test_a_study_in_which_all_agree_has_one_rank(results: Results) -> None:
    trials = [replace(trial, value=0.5) for trial in results.trials]
    found = cells_of(replace(results, trials=trials), "tag")
    assert {rank for rank, _ in found.values()} == {1}
