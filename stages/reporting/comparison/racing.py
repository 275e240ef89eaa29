"""Runs that got more fine-tuning seeds than others: how the pages say it."""

from collections.abc import Iterator

from stages.evaluation.raced_seeds import possible_seeds
from stages.evaluation.racing import ERROR_RATE
from stages.reporting.comparison.results import Results
from stages.reporting.number_format import percent


def caveats(results: Results) -> Iterator[str]:
    """The rule of the race, its error rate and what it does to intervals."""
    settings = results.params.finetune
    if settings.race is None:
        return
    first, most = len(settings.seeds), len(possible_seeds(settings))
    yield (
        f"Fine-tuning seeds were added by a race (`finetune.race`): all runs have {first}, those "
        f"that may still be the best of a task and a label budget up to {most}. After each seed a "
        "run is out if another one is better by a paired t test on validation scores. The best run "
        f"on these validation rows is out in at most {percent(ERROR_RATE)} of races (Bonferroni "
        "over all tests, for differences that are normal over seeds); that on other rows more "
        "often, the fewer rows validation has. A run that is out keeps its score and its interval, "
        "which is wider. Intervals are those of a fixed number of seeds: in simulations "
        "(`benchmarks/racing.md`) they hold the truth as often, except of a run that is out by bad "
        "luck, whose mean is too low. Methods without epochs, and baselines, are not raced."
    )
