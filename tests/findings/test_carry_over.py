"""Carry-over from smaller experiments: cases with a known share, and studies."""

from dataclasses import replace

import numpy as np
import pytest

from stages.core.keys import RunKey
from stages.core.seeding import stream
from stages.findings.carry_over import CarryOver, carry_over, kept_orders
from stages.findings.ranking import ALL_TASKS
from stages.findings.results import Results
from stages.reporting.words.appendix import carry_over as appendix
from stages.reporting.words.files import COLUMNS, carry_over_row
from tests.study_results import loaded_in
from tests.synthetic_study import METRICS, RUNS, raw_params, repeated, run

SMALL = {
    "decoder_small": run("decoder", "causal", d_model=96),
    "scientific_small": run("encoder", "mlm", "scientific", d_model=96),
}


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Three seeds of each run, two label budgets, and three runs with two sizes."""
    raw = raw_params(repeated(RUNS | SMALL, 3))
    raw["finetune"] |= {"label_budgets": [100, 200], "seeds": [1]}
    return loaded_in(tmp_path_factory.mktemp("several"), raw)


def column(*scores: float) -> np.ndarray:
    """Scores of one seed."""
    return np.array([scores], dtype=float).T


@pytest.mark.parametrize(
    ("smaller", "larger", "expected"),
    [
        ((1, 2, 3), (10, 20, 30), (3, [1.0])),
        ((3, 2, 1), (10, 20, 30), (3, [0.0])),
        ((2, 1, 3), (10, 20, 30), (3, [2 / 3])),
        ((1, 1, 2), (10, 20, 30), (3, [2.5 / 3])),  # a tie in the smaller one is half right
        ((1, 2, 3), (10, 10, 30), (2, [1.0])),  # a tie in the larger one has no order
        ((1, 1, 1), (10, 20, 30), (3, [0.5])),
        ((1, 2, 3), (10, 10, 10), (0, [])),
        ((1,), (10,), (0, [])),
    ],
)
def test_kept_orders_of_one_seed(smaller, larger, expected) -> None:
    num_pairs, shares = kept_orders(column(*smaller), column(*larger))
    assert (num_pairs, shares) == (expected[0], pytest.approx(expected[1]))


def test_kept_orders_judges_a_seed_by_the_others() -> None:
    """Each seed agrees with its own larger experiment, not with the others' mean."""
    smaller = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    larger = np.array([[9.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    assert kept_orders(smaller, larger) == (1, [0.0, 0.0, 0.0])


@pytest.mark.slow
def test_kept_orders_of_equally_good_runs_are_chance() -> None:
    """Simulates 2,000 studies of five runs with three seeds; both experiments share checkpoints.
    50 % of the orders are kept; with the judged seed in the mean, 59 % would be."""
    rng, means, with_own = stream(1, "equally good"), [], []
    a, b = np.triu_indices(5, k=1)
    for _ in range(2000):
        checkpoint = rng.normal(size=(5, 3))
        smaller, larger = (checkpoint + rng.normal(size=(5, 3)) for _ in range(2))
        means.append(np.mean(kept_orders(smaller, larger)[1]))
        order = np.sign(larger.mean(axis=1)[a] - larger.mean(axis=1)[b])
        with_own.append(np.mean(np.sign(smaller[a] - smaller[b]) == order[:, None]))
    assert np.mean(means) == pytest.approx(0.5, abs=0.02)
    assert np.mean(with_own) == pytest.approx(0.59, abs=0.02)


def rows_of(results: Results, growth: str) -> list[CarryOver]:
    return [row for row in results.carry_over if row.growth == growth]


def test_carry_over_compares_all_runs_at_two_label_budgets(several: Results) -> None:
    rows = {(row.task, row.method): row for row in rows_of(several, "label budget")}
    assert {task for task, _ in rows} == {*METRICS, ALL_TASKS}
    for method in several.scores.methods:
        shares = []
        for task in METRICS:
            row = rows[task, method]
            assert (row.smaller, row.larger, row.label_budget) == ("100", "200", "")
            assert row.runs == (*RUNS, *SMALL) and row.num_pairs == 36
            assert (row.over, len(row.shares)) == ("seeds", 3)
            assert row.share is not None and 0.5 < row.share <= 1  # runs truly differ
            shares.append(row.share)
        mean = rows[ALL_TASKS, method]
        assert mean.share == pytest.approx(np.mean(shares))
        assert (mean.over, len(mean.shares), mean.num_pairs) == ("tasks", 3, 108)


def test_carry_over_compares_runs_at_two_sizes(several: Results) -> None:
    rows = rows_of(several, "size")
    assert len({row.task for row in rows}) == len(METRICS) + 1
    for row in rows:
        assert (row.smaller, row.larger) == ("d_model=96", "d_model=192")
        assert row.label_budget in ("100", "200") and len(row.runs) == 3
        assert row.num_pairs == (9 if row.task == ALL_TASKS else 3)
        assert set(row.runs) == {"encoder_mlm", "decoder_causal", "encoder_scientific"}


def test_carry_over_of_one_run_at_two_sizes_has_no_share(results: Results) -> None:
    rows = rows_of(results, "size")
    assert len(rows) == len(METRICS) * len(results.scores.methods)
    assert all(row.num_pairs == len(row.shares) == 0 and row.share is None for row in rows)
    assert all(carry_over_row(row)["share"] == "" for row in rows)


def test_carry_over_compares_losses_of_one_objective_and_text(several: Results) -> None:
    rows = rows_of(several, "share of pretraining steps")
    assert {row.runs for row in rows} == {
        ("encoder_mlm", "encoder_small"),
        ("decoder_causal", "decoder_small"),
        ("encoder_scientific", "scientific_small"),
    }
    assert [row.smaller for row in rows[:4]] == ["0.2", "0.4", "0.6", "0.8"]
    for row in rows:  # every curve has the same shape, so that no order changes
        at_end = {
            run: [several.progress[RunKey(run, seed)].history[-1].loss for seed in (1, 2, 3)]
            for run in row.runs
        }
        judged, other = (np.array(at_end[run]) for run in row.runs)
        expected = kept_orders(-np.stack([judged, other]), -np.stack([judged, other]))[1]
        assert row.share == pytest.approx(np.mean(expected))
        assert (row.larger, row.num_pairs, row.task, row.method) == ("1", 1, "", "")


def test_carry_over_where_all_scores_tie_has_no_share(study_of) -> None:
    raw = raw_params(repeated(RUNS, 2))
    raw["finetune"] |= {"label_budgets": [100, 200], "seeds": [1]}
    results = study_of(raw=raw, score=0.5)
    rows = rows_of(results, "label budget")
    assert {row.task for row in rows} == {*METRICS}
    for row in rows:
        assert (row.task != ALL_TASKS, row.num_pairs, row.share) == (True, 0, None)


def test_carry_over_is_written_and_shown(several: Results) -> None:
    for row in map(carry_over_row, several.carry_over):
        assert row.keys() == {*COLUMNS["carry_over"]}
    part = appendix(several.carry_over, 0.95)
    (rows,) = part.tables.values()
    assert len(rows) == len(several.carry_over) and part.notes
    assert any("(" in row["same order"] and "%" in row["same order"] for row in rows)


def test_carry_over_of_nothing_smaller_is_nothing(results: Results) -> None:
    one = replace(results.scores, groups=results.scores.groups[:1])
    assert carry_over(one, [], results.progress) == []
    part = appendix([], 0.95)
    assert not any(part.tables.values()) and not part.notes
