from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stages.reporting.comparison import advice
from stages.reporting.comparison.contamination import CAPTION, appendix, caveats
from stages.reporting.comparison.results import Results, load
from stages.reporting.page import pages
from tests.synthetic_study import METRICS, RUNS, further, public, raw_params, run, write_study

ALL, SCIENTIFIC = ("all", "unigram"), ("scientific", "unigram")


def with_counts(results: Results, *changes: tuple[tuple[str, str], str, int]) -> Results:
    """With other numbers of rows of a task that overlap a corpus by an n-gram."""
    contamination = deepcopy(results.contamination)
    for pair, task, ngram in changes:
        contamination[pair]["tasks"][task]["ngram"] = ngram
    return replace(results, contamination=contamination)


def test_a_row_for_each_task_and_a_column_for_each_corpus(results: Results) -> None:
    found = appendix(with_counts(results, (SCIENTIFIC, "type", 123)))
    assert found is not None
    assert [row["task"] for row in found.tables[CAPTION]] == list(METRICS)
    assert [*found.tables[CAPTION][0]] == ["task", "all", "scientific", "deep_learning"]
    assert found.tables[CAPTION][1] == {
        "task": "type",
        "all": "1.5% (0.4%)",
        "scientific": "12.3% (0.4%)",
        "deep_learning": "1.5% (0.4%)",
    }
    assert "13 consecutive words (8 if" in found.notes[0]
    assert "`decontaminate_against: tasks`" in found.notes[1] and len(found.notes) == 2


def test_what_was_removed_is_told_for_each_corpus(results: Results) -> None:
    contamination = deepcopy(results.contamination)
    contamination[ALL]["removed"] = {
        "train": {"documents": 1, "sentences": 1200, "characters": 70_000},
        "validation": {"documents": 0, "sentences": 34, "characters": 1_000},
    }
    found = appendix(replace(results, contamination=contamination))
    assert found is not None
    [note] = found.notes[1:]
    for part in ("`all`", "1,234 matching sentences", "71,000 characters", "1 whole documents"):
        assert part in note


def test_a_corpus_with_two_tokenizers_has_two_columns(results: Results) -> None:
    both = {**results.contamination, ("all", "bpe"): results.contamination[ALL]}
    found = appendix(replace(results, contamination=both))
    assert found is not None
    assert [*found.tables[CAPTION][0]][1:] == [
        "all, unigram",
        "scientific",
        "deep_learning",
        "all, bpe",
    ]


def test_what_public_checkpoints_read_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is there a table where no run of the study was pretrained."""
    monkeypatch.chdir(tmp_path)
    runs: dict[str, Any] = {"bert": public("a/bert"), "gpt2": public("a/gpt2", "1" * 40)}
    raw = raw_params(runs) | {"corpora": {}, "budget": {"matched": "none", "reference": "bert"}}
    results = load(write_study(tmp_path, raw))
    found = appendix(results)
    assert found is not None and found.tables[CAPTION] == []
    [note] = found.notes
    assert "unknown: `bert`, `gpt2`" in note
    text = pages.markdown(results)
    assert "## Contamination" in text and note in text


def test_what_a_public_checkpoint_read_is_compared_with_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its training set is an axis where it is pretrained further."""
    monkeypatch.chdir(tmp_path)
    runs = {"bert": public("a/bert"), "adapted": further("a/bert", "mlm")}
    results = load(write_study(tmp_path, raw_params(runs)))
    assert any(contrast.axis == "training set" for contrast in results.contrasts)
    assert not [caveat for caveat in caveats(results) if "compared" in caveat]


def test_where_nothing_was_pretrained_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a run from scratch names a corpus, which it does not read."""
    monkeypatch.chdir(tmp_path)
    results = load(write_study(tmp_path, raw_params({"scratch": run("encoder", "none", "all")})))
    assert results.contamination == {} and appendix(results) is None
    assert "Contamination" not in pages.markdown(results)


@pytest.mark.slow
def test_much_overlap_is_a_caveat(results: Results) -> None:
    assert list(caveats(results)) == []
    assert list(caveats(with_counts(results, (ALL, "tag", 30)))) == []  # 3%
    [text] = caveats(with_counts(results, (ALL, "tag", 31), (ALL, "type", 33)))
    assert "(`tag` 3.1% in `all`; `type` 3.3% in `all`)" in text
    assert text in advice.caveats(with_counts(results, (ALL, "tag", 31), (ALL, "type", 33)))


@pytest.mark.slow
def test_unequal_overlap_of_training_sets_that_are_compared_is_a_caveat(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all three, each is compared with the two others."""
    assert list(caveats(with_counts(results, (ALL, "type", 0), (SCIENTIFIC, "type", 20)))) == []
    changed = with_counts(results, (SCIENTIFIC, "tag", 0), (ALL, "tag", 25))
    [text] = caveats(changed)
    assert "(`tag`, `all` 2.5% v. `scientific` 0.0%)" in text
    monkeypatch.chdir(tmp_path)
    runs = {name: RUNS[name] for name in ("encoder_mlm", "encoder_scratch")}
    one = load(write_study(tmp_path, raw_params(runs)))
    assert list(caveats(with_counts(one, (ALL, "tag", 25)))) == []


def test_a_measurement_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    params = write_study(tmp_path, raw_params())
    Path("data/contamination/scientific/unigram.json").unlink()
    with pytest.raises(ValueError, match=r"data/contamination/scientific/unigram\.json: missing"):
        load(params)


@pytest.mark.slow
def test_both_pages_show_the_table(results: Results) -> None:
    found = with_counts(results, (SCIENTIFIC, "type", 123))
    text = pages.markdown(found)
    assert "| type | 1.5% (0.4%) | 12.3% (0.4%) | 1.5% (0.4%) |" in text
    assert text.index("## Tasks") < text.index("## Contamination") < text.index("## Runs")
