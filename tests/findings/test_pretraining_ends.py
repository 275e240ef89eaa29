"""The report on the end of each pretraining."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from stages.core.keys import RunKey
from stages.findings.results import Results
from stages.reporting.words.appendix import place_of_rate, pretraining
from tests.synthetic_study import RUNS


def test_the_end_is_that_of_the_curve_and_from_scratch_has_none(results: Results) -> None:
    endings = {ending.name: ending for ending in results.endings}
    assert set(endings) == {name for name in RUNS if "scratch" not in name}
    for name, ending in endings.items():
        steps = np.array([600, 800, 1000])  # validations in the last half
        offset = results.progress[RunKey(name, 1)].history[0].loss - 3 / 20**0.5 + 0.1
        expected = np.polyfit(np.log2(steps), offset + 3 / steps**0.5, 1)[0]
        assert expected < 0 and ending.slope == pytest.approx(expected)
        assert ending.last_quarter is not None and 0 < ending.last_quarter < 0.1
        assert place_of_rate(ending) == "one rate" and ending.next_best is None


def test_a_steeper_end_is_a_warning_and_a_flat_one_is_none(results: Results) -> None:
    """The fall is made five times as steep for one run."""
    assert not any("were still falling" in note for note in pretraining(results.endings).notes)
    key = RunKey("encoder_mlm", 1)
    progress = results.progress[key]
    steep = [
        replace(s, validation_loss=s.validation_loss and 5 * s.validation_loss)
        for s in progress.history
    ]
    changed = replace(
        results,
        progress=results.progress | {key: replace(progress, history=steep)},
    )
    (note,) = [note for note in pretraining(changed.endings).notes if "were still falling" in note]
    assert "`encoder_mlm` 0." in note and "`encoder_small`" not in note
    assert note.startswith("1 of 5 ")


@pytest.mark.parametrize(
    ("rates", "kept", "place", "tried"),
    [
        ([1e-3, 3e-3, 1e-2], 3e-3, "inside", 3),
        ([3e-3, 1e-3, 1e-2], 1e-3, "lowest of 3", 3),
        ([1e-3, 3e-3], 3e-3, "highest of 2", 2),
    ],
)
def test_where_the_kept_rate_lies_among_those_tried(
    rates: list[float], kept: float, place: str, tried: int, study_of
) -> None:
    runs = {name: deepcopy(RUNS[name]) for name in ("encoder_mlm", "decoder_causal")}
    runs["encoder_mlm"]["training"]["lr"] = rates
    results = study_of(runs)
    tuned, single = results.endings
    assert (tuned.kept, place_of_rate(tuned), tuned.at_edge) == (kept, place, place != "inside")
    assert tuned.next_best == pytest.approx(0.5)
    assert list(tuned.rates) == rates
    assert [rate for rate, loss in tuned.rates.items() if loss is None] == rates[2:]
    assert (single.kept, place_of_rate(single)) == (3e-3, "one rate")
    ((row, _),) = pretraining(results.endings).tables.values()
    assert row["rates tried"].count(":") == tried and ("diverged" in row["rates tried"]) == (
        tried > 2
    )
    notes = " ".join(pretraining(results.endings).notes)
    assert ("may lie beyond" in notes) == (place != "inside")
    assert f"`encoder_mlm` {tried}, `decoder_causal` 1." in notes
    assert ("Diverged: " in notes) == (tried > 2)
