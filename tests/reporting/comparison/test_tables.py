import pytest

from stages.evaluation.statistics import ROWS
from stages.reporting.comparison.results import Results
from stages.reporting.comparison.tables import MEANS, by_axis, by_task, metrics
from tests.synthetic_study import METRICS, RUNS


def test_every_run_and_fitting_baseline_stands_in_a_tasks_table(results: Results) -> None:
    for task in METRICS:
        baselines = ["majority", "window" if task == "tag" else "tfidf"]
        table = by_task(results, task)
        assert [name for _, name, _ in table.rows] == [*RUNS, *baselines]
        assert table.columns == ["full, 200 labels", "linear_probe, 200 labels"]


def test_the_best_of_each_column_is_marked_and_its_interval_holds_its_mean(
    results: Results,
) -> None:
    table = by_task(results, "type")
    for column in zip(*(scores for _, _, scores in table.rows), strict=True):
        present = [score for score in column if score]
        best = max(score.mean for score in present)
        assert [score.best for score in present] == [score.mean == best for score in present]
        for score in present:
            assert score.low is not None and score.low < score.mean < (score.high or 0)
    bases = {cell.group: cell.mean.basis for cell in results.cells}
    assert {name for name, basis in bases.items() if basis == ROWS} == {"majority"}


def test_baselines_stand_in_every_table_of_an_axis(results: Results) -> None:
    for axis in MEANS:
        for table in by_axis(results, axis, "full"):
            kinds = [kind for kind, _, _ in table.rows]
            assert kinds[-3:] == ["baseline"] * 3 and kinds[:2] == ["run", "run"]


def test_runs_pretrained_and_from_scratch_are_families_of_their_own(results: Results) -> None:
    families = {
        t.described: [n for _, n, _ in t.rows[:-3]]
        for t in by_axis(results, "architecture", "full")
    }
    assert families == {
        "pretrained": ["encoder_mlm", "decoder_causal"],
        "from scratch": ["encoder_scratch", "decoder_scratch"],
    }


def test_metrics_are_numbers_below_task_run_method_and_budget(results: Results) -> None:
    found = metrics(results)["tag"]["encoder_mlm"]["full"]["200"]
    values = [
        t.value
        for t in results.trials
        if (t.task, t.run, t.method) == ("tag", "encoder_mlm", "full")
    ]
    assert found["mean"] == pytest.approx(sum(values) / 5, abs=1e-6)
    assert found["low"] < found["mean"] < found["high"]
    assert set(map(type, found.values())) == {float, int}
    assert "low" in metrics(results)["tag"]["majority"]["classical"]["200"]
