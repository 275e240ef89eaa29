"""What runs read: where labels are read, and how much was cut."""

from dataclasses import replace

import pytest

from stages.reporting.comparison.advice import caveats
from stages.reporting.comparison.inputs import CAPTION, appendix
from stages.reporting.comparison.results import Results
from stages.reporting.page import pages


def with_cut(results: Results, task: str, run: str, rows_cut: int) -> Results:
    records = [
        replace(r, rows_cut=rows_cut) if (r.run, r.split) == (run, "test") else r
        for r in results.inputs[task]
    ]
    return replace(results, inputs={**results.inputs, task: records})


def test_runs_that_read_a_task_alike_share_a_row(results: Results) -> None:
    found = appendix(results)
    assert found is not None
    of_tag = [row for row in found.tables[CAPTION] if row["task"] == "tag"]
    assert [row["labels read at"].split()[0] for row in of_tag] == ["first", "last"]
    assert of_tag[1]["runs"] == "decoder_causal, decoder_scratch"
    assert {row["test cut"] for row in found.tables[CAPTION]} == {"2.0% (0.5%)"}
    other = appendix(with_cut(results, "tag", "decoder_scratch", 7))
    assert other is not None and len(other.tables[CAPTION]) == len(found.tables[CAPTION]) + 1
    assert {row["test cut"] for row in other.tables[CAPTION]} == {"2.0% (0.5%)", "3.5% (0.5%)"}


@pytest.mark.parametrize(("rows_cut", "warned"), [(10, False), (11, True)])
def test_much_cut_is_a_caveat(results: Results, rows_cut: int, warned: bool) -> None:
    """More than 5% of a split's 200 rows."""
    found = with_cut(results, "type", "encoder_mlm", rows_cut)
    [*said] = [text for text in caveats(found) if "finetune.max_tokens" in text]
    assert bool(said) == warned
    assert not warned or ("`type` 5.5%" in said[0] and "`tag`" not in said[0])


@pytest.mark.slow
def test_both_pages_show_where_labels_are_read(results: Results) -> None:
    text = pages.markdown(results)
    assert text.index("## Tasks") < text.index("## Inputs") < text.index("## Contamination")
    assert "| last subword of a word | 2.0% (0.5%) |" in text
