from dataclasses import replace
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest
from pandas import Series

from stages.core.artifacts import read_json
from stages.core.seeding import stream
from stages.findings.results import Results
from stages.findings.training_sets import MEASURES, spearman
from stages.reporting.formats import DASH
from stages.reporting.page import pages
from stages.reporting.words.appendix import Appendix
from stages.reporting.words.files import COLUMNS, corpus_rows
from stages.reporting.words.training_sets import (
    AMOUNTS,
    CORRELATIONS,
    LIKENESS,
    NAMES,
    training_sets,
)
from tests.synthetic_study import METRICS, RUNS, public, raw_params, run, text_bits_of

CORPORA = ("all", "all_half", "scientific", "deep_learning")
# What each adds to the score of its run.
GAINS: dict[str, float] = dict(zip(CORPORA, (0.2, 0.15, 0.1, 0.05), strict=True))


@pytest.fixture
def four(study_of) -> Results:
    """A study of one model on four training sets and from scratch, without noise."""
    runs = {name: run("encoder", "mlm", name) for name in CORPORA}
    raw = raw_params(runs | {"scratch": run("encoder", "none", "none")})
    raw["corpora"]["all_half"] = raw["corpora"]["all"]
    results, trials = study_of(raw=raw), []
    for trial in results.trials:
        value = 0.4 + GAINS.get(trial.run, 0) + trial.finetune_seed / 1000 * (trial.run == "all")
        trials.append(replace(trial, value=value))
    return replace(results, trials=trials)


def appendix(results: Results) -> Appendix:
    return training_sets(results.training_sets, results.scores, results.contrasts_of)


def test_each_run_stands_beside_its_corpus_and_its_gain(four: Results) -> None:
    rows = [*corpus_rows(four)]
    places = [(r["run"], r["task"], r["method"]) for r in rows]
    assert places == [*product(CORPORA, METRICS, ("full", "linear_probe"))]
    for row in rows:
        about = read_json(Path("data/likeness", row["corpus"], "unigram.json"))
        assert row.keys() == set(COLUMNS["corpora"])
        assert row["corpus_tokens"] == about["tokens"]
        assert row["epochs"] == pytest.approx(1000 * 32 * 128 / about["tokens"])
        for measure in ("divergence", "unseen_words", "unseen_types", "bits_per_byte"):
            assert row[measure] == pytest.approx(about["tasks"][row["task"]][measure])
        assert (
            row["own_bits_per_byte"]
            == {bits.run: bits.bits_per_byte for bits in text_bits_of(four.params)}[row["run"]]
        )
        assert row["gain"] == pytest.approx(GAINS[row["corpus"]], abs=0.005)


@pytest.mark.slow
def test_ranks_are_correlated_over_four_training_sets(four: Results) -> None:
    part = appendix(four)
    assert len(part.tables[CORRELATIONS]) == 3 * 2
    for row in part.tables[CORRELATIONS]:
        assert row["training sets"] == f"4 ({', '.join(CORPORA)})"
        assert row["n-gram bits per byte"] == "+1.00 (p = 0.083)"  # 2 of 24 orders
        assert row["own bits per byte"] == "+1.00 (p = 0.083)"
        assert row["word divergence"].startswith("+0.9")  # two amounts of one text tie
        assert row["tokens of text"].startswith("\N{MINUS SIGN}0.2")
    text = pages.markdown(four)
    assert text.count("+1.00 (p = 0.083)") == 3 * 6 and "Too few" not in text  # unseen words, too


def test_three_training_sets_are_too_few_for_a_correlation(results: Results) -> None:
    part = appendix(results)
    assert part.tables[CORRELATIONS] == []
    assert any("at most 3" in note for note in part.notes)
    assert [row["training set"] for row in part.tables[AMOUNTS]] == [
        "all",
        "scientific",
        "deep_learning",
    ]
    assert all(row["epochs"] == "4.1" for row in part.tables[AMOUNTS])
    assert len(part.tables[LIKENESS]) == 3 * 5  # tasks and pretrained runs


def test_a_run_that_has_no_counterpart_from_scratch_has_no_gain(results: Results) -> None:
    row_of = {row["run"]: row for row in corpus_rows(results) if row["task"] == "tag"}
    assert row_of["encoder_small"]["gain"] == row_of["encoder_small"]["low"] == ""
    assert row_of["encoder_mlm"]["gain"] > 0.1


def test_runs_that_read_a_training_set_unequally_often_are_named(study_of) -> None:
    shorter = run("encoder", "mlm")
    shorter["training"]["num_steps"] = 500
    raw = raw_params({"long": run("encoder", "mlm"), "short": shorter})
    raw["budget"]["matched"] = "none"
    part = appendix(study_of(raw=raw))
    assert [row["epochs"] for row in part.tables[AMOUNTS]] == ["4.1 (long), 2.05 (short)"]


def test_texts_without_words_have_no_likeness(study_of) -> None:
    results = study_of({"encoder_mlm": RUNS["encoder_mlm"]})
    nothing = dict.fromkeys(("divergence", "unseen_words", "unseen_types", "bits_per_byte"))
    tasks = {"tasks": dict.fromkeys(results.params.tasks, nothing)}
    likeness = {text: about | tasks for text, about in results.likeness.items()}
    results = replace(results, likeness=likeness)
    part = appendix(results)
    assert part.tables[LIKENESS][0]["word divergence"] == DASH
    assert {row["divergence"] for row in corpus_rows(results)} == {""}


def test_a_study_without_corpora_has_no_appendix(study_of) -> None:
    runs = {"bert": public("bert"), "scratch": run("encoder", "none", "none")}
    results = study_of(runs)
    assert appendix(results).tables == {} and [*corpus_rows(results)] == []
    assert "Training sets" not in pages.markdown(results)


@pytest.mark.parametrize("number", [4, 6])
def test_the_p_value_is_the_share_of_all_orders_as_far_from_zero(number: int) -> None:
    one, other = stream(0, "ranks", number).integers(0, 5, (2, number)).tolist()
    result = spearman(one, other)
    assert result is not None
    rho, p_value = result
    orders = [correlation(one, [*order]) for order in permutations(other)]
    assert rho == pytest.approx(orders[0])
    assert p_value == pytest.approx(np.mean([abs(each) >= abs(rho) - 1e-9 for each in orders]))


def correlation(one: list[int], other: list[int]) -> float:
    """Rank correlation by pandas."""
    return Series(one).corr(Series(other), method="spearman")


def test_ties_on_one_side_have_no_correlation() -> None:
    assert spearman([1, 1, 1, 1], [1, 2, 3, 4]) is None


def test_every_measure_of_likeness_has_a_sign_and_a_name() -> None:
    assert {*MEASURES.values()} == {-1, 1} and MEASURES.keys() == NAMES.keys()
