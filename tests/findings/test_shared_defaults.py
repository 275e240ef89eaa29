"""Effects of forcing one value of a setting on all runs, with made-up scores."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stages.evaluation.records import ScoredTry
from stages.findings.audit import Check, Subject, shared_defaults
from stages.findings.cells import Cell
from stages.findings.results import Results
from stages.findings.shared_defaults import (
    Forced,
    changes,
    forced_effects,
    forced_values,
    largest_changes,
    not_varied,
)
from stages.reporting.words.audit import told

MEAN, LAST = Forced("pooling", "mean"), Forced("pooling", "last")
USUAL = Forced("initial_weights", "usual")


def with_variants(results: Results) -> Results:
    """Adds tries: on ``type``, validation chose the last state for decoders, but the mean scores
    0.2 more on the test set. On ``section``, runs from scratch also tried usual initial weights,
    which lost on validation and score 0.01 less on the test set."""
    tries = list[ScoredTry]()
    for row in results.tries:
        if row.task == "type" and row.run.startswith("decoder"):
            tries += variants(row, "read_out", "pooling=mean", "pooling=last", lost=0.2)
        elif row.task == "section" and row.run.endswith("scratch"):
            tries += variants(row, "initial_weights", "usual", "as_pretrained", lost=-0.01)
        else:
            tries.append(row)
    return replace(results, tries=tries)


def variants(row: ScoredTry, column: str, lost_name: str, kept_name: str, *, lost: float) -> Any:
    assert row.value is not None and row.validation_metric is not None
    validation = row.validation_metric - 0.1
    other: dict[str, Any] = {"value": row.value + lost, "validation_metric": validation, "kept": 0}
    names: list[dict[str, Any]] = [{column: lost_name}, {column: kept_name}]
    yield replace(row, fixed="dropout=0.1", **names[0], **other)
    yield replace(row, fixed="dropout=0.1", **names[1])


@pytest.fixture
def varied(results: Results) -> Results:
    return with_variants(results)


def cell(results: Results, group: str, task: str) -> Cell:
    one_cell = results.scores.cell(group, task, "full", "200")
    assert one_cell is not None
    return one_cell


def checked(results: Results) -> Check:
    return shared_defaults(results.scores.cells, results.contrasts, results.tries)


def test_forced_values_are_those_of_which_a_trial_has_tried_several(results, varied) -> None:
    assert forced_values(results.tries) == []
    values = forced_values(varied.tries)
    assert {*values} == {MEAN, LAST, USUAL, Forced("initial_weights", "as_pretrained")}


def test_not_varied_names_what_could_have_been_tried(results, varied) -> None:
    assert not_varied(results.tries) == ["pooling", "dropout"]
    assert not_varied(varied.tries) == ["dropout"]


def test_changes_are_those_of_the_means_of_cells_that_have_tried_the_value(varied) -> None:
    change_of = {(c.forced, c.cell): c for c in changes(varied.scores.cells, varied.tries)}
    decoder, scratch = (cell(varied, "decoder_causal", t) for t in ("type", "section"))
    assert change_of[MEAN, decoder].size == pytest.approx(0.2)
    assert change_of[LAST, decoder].size == 0  # what validation chose
    encoder = cell(varied, "encoder_scratch", "section")
    assert change_of[USUAL, encoder].size == pytest.approx(-0.01)
    assert (MEAN, cell(varied, "encoder_mlm", "type")) not in change_of
    assert (USUAL, scratch) not in change_of
    largest = largest_changes(change_of.values())
    assert {name: round(c.size, 9) for name, c in largest.items()} == {
        "pooling": 0.2,
        "initial_weights": -0.01,
    }


def test_changes_of_one_trial_are_its_share_of_the_mean(varied) -> None:
    """Trials that diverged with the value keep what validation chose."""
    decoder = cell(varied, "decoder_causal", "type")
    lost = [
        replace(t, value=None, validation_metric=None, validation_loss=None)
        if t.settings.get("pooling") == "mean" and t.finetune_seed > 1
        else t
        for t in varied.tries
    ]
    size_of = {(c.forced, c.cell): c.size for c in changes([decoder], lost)}
    assert size_of[MEAN, decoder] == pytest.approx(0.2 / len(decoder.trials))


def test_of_several_tries_with_a_value_the_best_on_validation_counts(varied) -> None:
    """A second setting gives the forced value two tries; validation chooses between them."""
    decoder = cell(varied, "decoder_causal", "type")
    tries = []
    for row in varied.tries:
        if row.settings.get("pooling") == "mean":
            assert row.value is not None and row.validation_metric is not None
            best, worst = row.validation_metric + 0.01, row.validation_metric - 0.3
            tries += [
                replace(
                    row,
                    read_out=f"pooling=mean, dropout={dropout}",
                    value=row.value - shift,
                    validation_metric=metric,
                )
                for dropout, shift, metric in ((0.0, 0.4, worst), (0.1, 0.05, best))
            ]
        elif row.settings.get("pooling"):
            tries.append(replace(row, read_out="pooling=last, dropout=0.1"))
    size_of = {c.forced: c.size for c in changes([decoder], tries)}
    assert size_of[MEAN] == pytest.approx(0.15)
    assert size_of[Forced("dropout", "0.0")] == pytest.approx(-0.2)


def test_forced_effects_tell_which_signs_a_value_reverses(varied) -> None:
    a, b = cell(varied, "encoder_mlm", "type"), cell(varied, "decoder_causal", "type")
    untouched = cell(varied, "encoder_mlm", "tag"), cell(varied, "decoder_causal", "tag")
    all_changes = changes(varied.scores.cells, varied.tries)
    assert forced_effects(*untouched, all_changes) == []
    effects = {each.forced: each for each in forced_effects(a, b, all_changes)}
    assert effects.keys() == {MEAN, LAST}
    chosen = float(np.mean([t.value for t in a.trials]) - np.mean([t.value for t in b.trials]))
    assert chosen > 0
    assert effects[MEAN].chosen == effects[LAST].value == pytest.approx(chosen)
    assert effects[MEAN].value == pytest.approx(chosen - 0.2)
    assert effects[MEAN].is_reversed and not effects[LAST].is_reversed


def test_the_audit_names_what_a_shared_default_decides(results, varied) -> None:
    check = checked(varied)
    assert check.objection is True and check.numbers["fixed"] == ["dropout"]
    sizes = {name: abs(change.size) for name, change in check.numbers["largest"].items()}
    assert sizes == pytest.approx({"pooling": 0.2, "initial_weights": 0.01})
    words = told({Subject.SHARED_DEFAULTS: check})[Subject.SHARED_DEFAULTS]
    assert "pooling by up to 20.0 points, initial_weights by up to 1.0 points" in words.answer
    start = "pooling=mean reverses encoder_mlm (full, 200 labels) against decoder_causal"
    (named,) = [detail for detail in words.details if detail.startswith(start)]
    assert "on type: +" in named and named.endswith("points")
    alike = checked(results)
    assert alike.objection is True and alike.numbers == {"fixed": ["pooling", "dropout"]}
    none = replace(results, tries=[replace(each, fixed="") for each in results.tries])
    assert checked(none).objection is None


def test_the_audit_has_no_objection_to_defaults_that_reverse_nothing(varied) -> None:
    tries = [t for t in varied.tries if "pooling" not in t.settings]
    check = checked(replace(varied, tries=tries))
    assert check.objection is False and check.numbers["clear"] == 0
