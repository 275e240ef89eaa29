from dataclasses import replace

import pytest

from stages.reporting.comparison.calibration import CAPTION, appendix
from stages.reporting.comparison.results import Results
from stages.reporting.page import pages


@pytest.mark.slow
def test_a_row_for_each_run_and_method_is_the_mean_of_its_trials(results: Results) -> None:
    found = appendix(results)
    assert found is not None
    (row,) = [
        each
        for each in found.tables[CAPTION]
        if (each["task"], each["run"], each["method"]) == ("type", "encoder_mlm", "full")
    ]
    members = [
        t for t in results.trials if (t.task, t.run, t.method) == ("type", "encoder_mlm", "full")
    ]
    assert len(members) > 1
    accuracy = sum(t.accuracy or 0 for t in members) / len(members)
    assert row["accuracy"] == f"{100 * accuracy:.1f}" and row["calibration error"] == "10.0"
    # Baselines of the synthetic study give no probabilities.
    assert not any(each["method"] == "classical" for each in found.tables[CAPTION])
    assert row["accuracy"] in pages.markdown(results).split("## Calibration")[1]


@pytest.mark.slow
def test_without_probabilities_there_is_no_appendix(results: Results) -> None:
    none = [replace(trial, calibration_error=None) for trial in results.trials]
    without = replace(results, trials=none)
    assert appendix(without) is None and "## Calibration" not in pages.markdown(without)
