"""The overview next to the answer."""

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


def test_effects_of_one_task_are_counted_once(five_seeds: Results) -> None:
    """The mean over one task is the contrast."""
    trials = [trial for trial in five_seeds.trials if trial.task == "tag"]
    params = five_seeds.params
    params = params.model_copy(update={"tasks": {"tag": params.tasks["tag"]}})
    of_one = replace(five_seeds, params=params, trials=trials)
    one, all_tasks = (
        overview.seeds(r.scores, r.contrasts, r.questions) for r in (of_one, five_seeds)
    )
    assert "effects averaged over tasks, and" in all_tasks and "on single tasks" in all_tasks
    assert "averaged" not in one and "single tasks" not in one and " contrasts (" in one
