"""The fine-tuning seeds of each run where a race decides how many it gets.

All runs have ``finetune.seeds``. With ``finetune.race`` more of them follow, one after the other,
for the runs and methods that may still be the best of a task and a label budget. The race is run on
validation scores, so that the choice does not see the test set.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from stages.core.params import Finetune, Run
from stages.evaluation.metrics import merit
from stages.evaluation.racing import race
from stages.evaluation.records import EpochRecord, TrialRecord, curve_key
from stages.evaluation.repetitions import repetitions

Place = tuple[str, str, str]  # run, method, label budget
Merits = dict[tuple[Place, int], float]  # by place and fine-tuning seed; more is better


@dataclass(frozen=True)
class Candidate:
    """Runs that differ in their pretraining seeds alone, with a method: their mean is raced."""

    runs: tuple[str, ...]
    method: str
    label_budget: str

    @property
    def places(self) -> list[Place]:
        return [(run, self.method, self.label_budget) for run in self.runs]


def possible_seeds(finetune: Finetune) -> list[int]:
    """The seeds of all runs, then those that a race may add: the integers behind the largest."""
    first, found = finetune.seeds, [*finetune.seeds]
    if finetune.race is not None:
        more = finetune.race.most - len(first)
        found += range(max(first) + 1, max(first) + 1 + more)
    return found


def validation_merits(
    metric: str, trials: Iterable[TrialRecord], epochs: Iterable[EpochRecord]
) -> Merits:
    """Of the epoch that each trial keeps. Trials without epochs, of methods that solve or only
    predict, have none."""

    def key(of: TrialRecord | EpochRecord, epoch: int) -> tuple[str | int | float, ...]:
        return (*curve_key(of), epoch)

    kept = {key(epoch, epoch.epoch): epoch.validation_metric for epoch in epochs}
    found: Merits = {}
    for t in trials:
        value = kept.get(key(t, t.best_epoch))
        if value is not None:
            place = t.run, t.method, t.label_budget
            found[place, t.finetune_seed] = merit(metric, value)
    return found


def raced_seeds(
    finetune: Finetune,
    pretrain: Mapping[str, Run],
    merits: Merits,
    add: Callable[[Sequence[Candidate], int], Merits],
) -> dict[Place, list[int]]:
    """The seeds of each place that takes part in a race. ``merits`` are those with the seeds of all
    runs; ``add`` gives those of candidates with one more seed, each time before the next decision.

    There is a race for each label budget, of all its runs and methods that have validation scores
    with every seed.
    """
    seeds = possible_seeds(finetune)
    merits, found = dict(merits), dict[Place, list[int]]()
    for budget in map(str, finetune.label_budgets):
        candidates = [
            candidate
            for runs in repetitions(pretrain)
            for method in finetune.methods
            if _has_all(candidate := Candidate(runs, method, budget), finetune.seeds, merits)
        ]

        def merits_of(
            number: int, left: Sequence[int], candidates: list[Candidate] = candidates
        ) -> list[float]:
            some, seed = [candidates[i] for i in left], seeds[number]
            if number >= len(finetune.seeds):
                merits.update(add(some, seed))
            return [sum(merits[p, seed] for p in c.places) / len(c.runs) for c in some]

        result = race(len(candidates), merits_of, first=len(finetune.seeds), most=len(seeds))
        for candidate, number in zip(candidates, result.seeds, strict=True):
            found |= {place: seeds[:number] for place in candidate.places}
    return found


def _has_all(candidate: Candidate, seeds: Iterable[int], merits: Merits) -> bool:
    return all((place, seed) in merits for place in candidate.places for seed in seeds)
