"""What stands beside the answer."""

from dataclasses import replace

from stages.findings.results import Results
from stages.reporting.words import overview


def test_seeds_of_a_study_that_pretrains_nothing_are_those_of_fine_tuning(
    five_seeds: Results,
) -> None:
    trials = [trial for trial in five_seeds.trials if trial.run == "encoder_scratch"]
    results = replace(five_seeds, trials=trials)
    with_pretraining = overview.seeds(five_seeds.scores, five_seeds.contrasts, [])
    without = overview.seeds(results.scores, results.contrasts, [])
    assert with_pretraining.startswith("5 pretraining seeds for each model pretrained here, ")
    assert "pretraining" not in without and "fine-tuning seed" in without
