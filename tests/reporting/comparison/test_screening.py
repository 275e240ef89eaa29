"""A study that screens: what the report says of the runs that were not fine-tuned."""

from pathlib import Path

import pytest

from stages.core.params import Params
from stages.reporting.comparison import estimates, screening, tables
from stages.reporting.comparison.answer import answers
from stages.reporting.comparison.results import Results, load
from stages.reporting.figures import gallery
from stages.reporting.page import pages
from tests.synthetic_study import METRICS, RUNS, raw_params, write_study


@pytest.fixture(scope="module")
def screened(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """By the H-score, which knows the effects: two runs are kept beside those from scratch, the
    same ones on every task."""
    root = tmp_path_factory.mktemp("screened")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        return load(write_study(root, screening_by("h_score", 2)))


def screening_by(estimate: str, keep: int) -> dict:
    raw = raw_params()
    raw["finetune"]["screen"] = {"by": estimate, "keep": keep}
    return raw


def test_only_what_was_fine_tuned_is_compared(screened: Results, results: Results) -> None:
    """And each contrast of it has the effect that it has in the whole study."""
    trained = {trial.run for trial in screened.trials} - {*screened.params.baselines}
    assert len(trained) == 4 and trained > {"encoder_scratch", "decoder_scratch"}
    sides = {side.group for c in screened.contrasts for side in (c.a, c.b)}
    assert sides <= trained
    whole = {
        (c.axis, c.task, c.method, c.a.group, c.b.group): c.effect.value for c in results.contrasts
    }
    assert screened.contrasts
    for c in screened.contrasts:
        assert whole[c.axis, c.task, c.method, c.a.group, c.b.group] == pytest.approx(
            c.effect.value
        )


def test_the_others_stand_in_the_tables_with_their_estimate(screened: Results) -> None:
    for task in METRICS:
        rows = {name: scores for _, name, scores in tables.by_task(screened, task).rows}
        assert {*RUNS} <= {*rows}
        values = {
            r.run: r.value or 0.0
            for r in screened.estimates.records[task]
            if (r.estimate, r.layers) == ("h_score", "last")
        }
        out = {name for name in RUNS if all(isinstance(s, str) for s in rows[name])}
        assert len(out) == 3
        for name in out:
            assert {*rows[name]} == {f"screened out by h_score ({values[name]:.3f})"}
        assert max(values[n] for n in out) <= min(
            values[n] for n in {*RUNS} - out if not n.endswith("scratch")
        )
        written = [row for row in estimates.rows(screened) if row["task"] == task]
        assert {row["run"] for row in written if row["screened_out"]} == out
    assert len(screening.rows(screened)) == 9


def test_the_answer_names_what_was_not_tried(screened: Results, results: Results) -> None:
    for answer in answers(screened):
        for card in answer.cards:
            said = card.otherwise.partition("screened them out: ")[2]
            named = {name for name in RUNS if f"`{name}`" in said.partition(".")[0]}
            assert named == {each.runs[0] for each in screened.screened_out[card.task]}
            assert len(named) == 3
    assert not any("screened" in card.otherwise for a in answers(results) for card in a.cards)


@pytest.mark.slow
def test_both_pages_say_it(screened: Results) -> None:
    drawn = dict.fromkeys(gallery.pictures(screened), "<svg></svg>")
    for page in (pages.markdown(screened), pages.html(screened, drawn)):
        plain = page.replace("\\_", "_")
        assert "screened out by h_score (" in plain and "Screened by h_score" in plain


@pytest.mark.slow
def test_one_run_may_be_kept_on_one_task_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where neighbours say nothing all tie, and on the task where they are undefined all stay."""
    monkeypatch.chdir(tmp_path)
    found = load(write_study(tmp_path, screening_by("knn", 1)))
    assert found.screened_out["section"] == []
    assert [each.runs[0] for each in found.screened_out["tag"]][0] == "decoder_causal"
    rows = {name: scores for _, name, scores in tables.by_task(found, "tag").rows}
    assert isinstance(rows["decoder_causal"][0], str)
    rows = {name: scores for _, name, scores in tables.by_task(found, "section").rows}
    assert isinstance(rows["decoder_causal"][0], tables.Score)
    assert any("`section`" in line for line in screening.caveats(found))
    drawn = dict.fromkeys(gallery.pictures(found), "<svg></svg>")
    assert "screened out by knn" in pages.markdown(found) and pages.html(found, drawn)


def test_a_study_that_does_not_screen_says_nothing_of_it(results: Results) -> None:
    assert screening.rows(results) == [] and [*screening.caveats(results)] == []
    assert not any(row["screened_out"] for row in estimates.rows(results))
    assert "creened" not in pages.markdown(results)


def test_a_trial_of_a_run_that_is_screened_out_is_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report refuses what finetune would not have written."""
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path, raw_params())
    with pytest.raises(ValueError, match="does not list"):
        load(Params(**screening_by("h_score", 2)))
