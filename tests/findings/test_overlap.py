"""Overlap of test rows with the training text of pretraining."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stages.findings.results import Results, load
from stages.reporting.page import pages
from stages.reporting.words.appendix import CONTAMINATION, Appendix, contamination
from tests.synthetic_study import METRICS, RUNS, further, public, raw_params, run

ALL, SCIENTIFIC = ("all", "unigram"), ("scientific", "unigram")


def with_counts(results: Results, *changes: tuple[tuple[str, str], str, int]) -> Results:
    """Results with other counts of a task's rows that share an n-gram with a corpus."""
    counted = deepcopy(results.contamination)
    for text, task, ngram in changes:
        counted[text]["tasks"][task]["ngram"] = ngram
    return replace(results, contamination=counted)


def appendix(results: Results) -> Appendix:
    return contamination(results.overlap, results.params.runs)


def unequal(results: Results) -> list[tuple[str, tuple[str, str], tuple[str, str]]]:
    return [*results.overlap.unequal(results.contrasts, results.groups)]


def test_shares_have_a_row_for_each_task_and_a_column_for_each_corpus(results: Results) -> None:
    part = appendix(with_counts(results, (SCIENTIFIC, "type", 123)))
    assert [row["task"] for row in part.tables[CONTAMINATION]] == list(METRICS)
    shares = {"all": "1.5% (0.4%)", "scientific": "12.3% (0.4%)", "deep_learning": "1.5% (0.4%)"}
    assert part.tables[CONTAMINATION][1] == {"task": "type"} | shares
    assert "13 consecutive words (8 if" in part.notes[0]
    assert "`decontaminate_against: tasks`" in part.notes[1] and len(part.notes) == 2


def test_what_was_removed_is_told_for_each_corpus(results: Results) -> None:
    counted = deepcopy(results.contamination)
    counted[ALL]["removed"] = {
        "train": {"documents": 1, "sentences": 1200, "characters": 70_000},
        "validation": {"documents": 0, "sentences": 34, "characters": 1_000},
    }
    [note] = appendix(replace(results, contamination=counted)).notes[1:]
    for part in ("`all`", "1,234 matching sentences", "71,000 characters", "1 whole documents"):
        assert part in note


def test_a_corpus_with_two_tokenizers_has_two_names(results: Results) -> None:
    both = {**results.contamination, ("all", "bpe"): results.contamination[ALL]}
    names = {text for _, text in replace(results, contamination=both).overlap.shares}
    assert names == {"all, unigram", "scientific", "deep_learning", "all, bpe"}


def test_what_public_checkpoints_read_is_not_known(study_of) -> None:
    """A study that pretrained nothing itself has no table, either."""
    runs: dict[str, Any] = {"bert": public("a/bert"), "gpt2": public("a/gpt2", "1" * 40)}
    raw = raw_params(runs) | {"corpora": {}, "budget": {"matched": "none", "reference": "bert"}}
    part = appendix(study_of(raw=raw))
    assert part.tables[CONTAMINATION] == []
    [note] = part.notes
    assert "unknown: `bert`, `gpt2`" in note


def test_unequal_compares_no_text_of_a_public_checkpoint(study_of) -> None:
    """Further pretraining makes the training set an axis."""
    runs = {"bert": public("a/bert"), "adapted": further("a/bert", "mlm")}
    results = study_of(runs)
    assert any(contrast.axis == "training set" for contrast in results.contrasts)
    assert unequal(results) == []


def test_where_nothing_was_pretrained_nothing_is_said(study_of) -> None:
    """A run from scratch does not read the corpus that its entry names."""
    results = study_of({"scratch": run("encoder", "none", "all")})
    assert results.contamination == {} and not appendix(results).notes
    assert "Contamination" not in pages.markdown(results)


@pytest.mark.slow
def test_unequal_names_training_sets_that_are_compared(results: Results, study_of) -> None:
    """All three training sets are compared with each other."""
    assert unequal(with_counts(results, (ALL, "type", 0), (SCIENTIFIC, "type", 20))) == []
    changed = with_counts(results, (SCIENTIFIC, "tag", 0), (ALL, "tag", 25))
    assert unequal(changed) == [("tag", ALL, SCIENTIFIC)]
    assert "(`tag`, `all` 2.5% v. `scientific` 0.0%)" in pages.markdown(changed)
    runs = {name: RUNS[name] for name in ("encoder_mlm", "encoder_scratch")}
    one = study_of(runs)
    assert unequal(with_counts(one, (ALL, "tag", 25))) == []


def test_a_measurement_that_is_missing_is_named(study_of) -> None:
    params = study_of().params
    Path("data/contamination/scientific/unigram.json").unlink()
    with pytest.raises(ValueError, match=r"data/contamination/scientific/unigram\.json: missing"):
        load(params)
