"""What the intervals cover, in words."""

from dataclasses import replace

import pytest

from stages.findings.results import Results
from stages.reporting.words.caveats import caveats


@pytest.mark.parametrize(("confidence", "would"), [(0.95, "at most"), (0.9999, "hardly any")])
def test_few_intervals_would_exclude_zero_by_chance(
    five_seeds: Results, confidence: float, would: str
) -> None:
    evaluation = five_seeds.params.evaluation.model_copy(update={"confidence": confidence})
    params = five_seeds.params.model_copy(update={"evaluation": evaluation})
    text = " ".join(caveats(replace(five_seeds, params=params)))
    assert f"{would} would. Those" in text and "about 0" not in text
