"""A study that screens: fine-tuned runs are compared, and the report names the others."""

import pytest

from stages.core.params import Params
from stages.findings.results import Results, load
from stages.reporting.page import pages
from stages.reporting.words import tables
from stages.reporting.words.answer import answers
from stages.reporting.words.files import estimate_rows
from tests.study_results import loaded_in, undrawn
from tests.synthetic_study import METRICS, RUNS, raw_params


def screening_by(estimate: str, keep: int) -> dict:
    raw = raw_params()
    raw["finetune"]["screen"] = {"by": estimate, "keep": keep}
    return raw


@pytest.fixture(scope="module")
def screened(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Screening by the H-score, which knows the effects: every task keeps the runs from scratch and
    the same two others."""
    return loaded_in(tmp_path_factory.mktemp("screened"), screening_by("h_score", 2))


def test_contrasts_are_those_of_the_whole_study_without_what_is_screened_out(
    screened: Results, results: Results
) -> None:
    trained = {trial.run for trial in screened.trials} - {*screened.params.baselines}
    assert len(trained) == 4 and trained > {"encoder_scratch", "decoder_scratch"}
    assert screened.contrasts
    effects = [
        {(c.axis, c.a.key, c.b.key): c.effect.value for c in study.contrasts}
        for study in (screened, results)
    ]
    for (axis, a, b), effect in effects[0].items():
        assert {a.run, b.run} <= trained
        assert effects[1][axis, a, b] == pytest.approx(effect)


def test_tables_answers_and_estimates_name_what_is_screened_out(screened: Results) -> None:
    for task in METRICS:
        table = tables.by_task(screened.scores, screened.screened_out[task], task, [*RUNS])
        rows = {name: scores for _, name, scores in table.rows}
        records = screened.estimates.records[task]
        values = {r.run: r.value for r in records if (r.estimate, r.layers) == ("h_score", "last")}
        out = {name for name in RUNS if all(isinstance(score, str) for score in rows[name])}
        assert out == {each.run for each in screened.screened_out[task]} and len(out) == 3
        for name in out:
            assert {*rows[name]} == {f"screened out by h_score ({values[name]:.3f})"}
        written = [row for row in estimate_rows(screened) if row["task"] == task]
        assert {row["run"] for row in written if row["screened_out"]} == out
        for card in (card for a in answers(screened) for card in a.cards if card.task == task):
            sentence = card.otherwise.partition("so without a score: ")[2].partition(".")[0]
            assert {name for name in RUNS if f"`{name}`" in sentence} == out


@pytest.mark.slow
def test_one_run_may_be_kept_on_one_task_alone(study_of) -> None:
    """Equal estimates keep the first run; where estimates are undefined, all runs stay."""
    results = study_of(raw=screening_by("knn", 1))
    assert results.screened_out["section"] == []
    assert results.screened_out["tag"][0].run == "decoder_causal"
    html = pages.html(results, undrawn(results))
    for page in (pages.markdown(results).replace("\\_", "_"), html):
        assert "screened out by knn (" in page and "Screened by knn" in page


def test_a_study_that_does_not_screen_says_nothing_of_it(results: Results) -> None:
    assert not any(row["screened_out"] for row in estimate_rows(results))
    assert "creened" not in pages.markdown(results)


def test_a_trial_of_a_run_that_is_screened_out_is_not_listed(study_of) -> None:
    """The report refuses what finetune would not have written."""
    study_of()
    with pytest.raises(ValueError, match="does not list"):
        load(Params(**screening_by("h_score", 2)))
