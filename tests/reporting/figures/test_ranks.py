from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from stages.reporting.comparison.results import Results
from stages.reporting.figures import ranks
from tests.synthetic_study import METRICS, RUNS


def cells_of(results: Results, task: str) -> dict[str, tuple[int, str]]:
    """What the heat map shows: run -> rank and score."""
    rows = ranks.ranks(results)["datasets"]["labels_200"]
    return {row["run"]: (row["rank"], row["score"]) for row in rows if row["task"] == task}


def test_equals_share_the_best_of_their_places() -> None:
    assert ranks.ranked([0.5, 0.9, 0.5, 0.1]) == [2, 1, 2, 4]
    assert ranks.ranked([0.3]) == [1] and ranks.ranked([]) == []
    assert ranks.ranked([0.1 + 0.2, 0.3]) == [1, 1]  # but for the rounding of a mean


@given(st.lists(st.integers(0, 5), max_size=12))
def test_a_rank_is_one_more_than_the_number_of_betters(merits: list[int]) -> None:
    descending = sorted(merits, reverse=True)
    assert ranks.ranked(merits) == [1 + descending.index(merit) for merit in merits]


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
    panel = ranks.ranks(results)["hconcat"][0]
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
