"""Fine-tune every run on a task: each method, label budget and seed, and predict the test inputs.

Trials that the store has are taken from there. With ``finetune.screen`` only some of the runs are
fine-tuned, chosen by an estimate.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from stages.core import paths
from stages.core.artifacts import remove, replacing
from stages.core.params import Params, entry
from stages.core.process import run_stage
from stages.evaluation import records
from stages.evaluation.estimates import EstimateCostRecord, EstimateRecord
from stages.evaluation.screening import screened_out
from stages.matching.budget import plans
from stages.training.device import resolve, side_by_side
from stages.trials import store, workers
from stages.trials.estimates import Estimated, estimated
from stages.trials.groups import UNFINISHED, incompatibility_of, run_trials, trial_groups
from stages.trials.inputs import input_records
from stages.trials.outcome import Outcome
from stages.trials.setup import TrialSetup
from stages.trials.text_bits import text_bits


def main(params: Params, task: str) -> None:
    """Raises ValueError if trials failed; the others are in the store then."""
    entry(params.tasks, task, where="tasks")
    asked = [_Asked.of(params, run, task) for run in params.pretrain]
    # Without a screen they come last: in one process they would count in the memory of the trials.
    texts = _texts_of(params, asked) if params.finetune.screen else {}
    left_out = _left_out(params, task, texts)
    groups = {
        each.run: trial_groups(params, each.run, () if each.run in left_out else each.methods)
        for each in asked
    }
    with ExitStack() as stack:
        folders = {
            run: stack.enter_context(replacing(paths.FINETUNED / task / run)) for run in groups
        }
        weights = {run: folder / "weights" for run, folder in folders.items()}
        for folder in weights.values():
            folder.mkdir(parents=True)
        outcomes = run_trials(params, task, groups, weights)
        remove(UNFINISHED / task)  # of interrupted trials that params.yaml no longer lists
        texts = texts or _texts_of(params, asked)
        for each in asked:
            _write(folders[each.run], each, outcomes[each.run], texts[each.run])
    for run, some in outcomes.items():
        costs = paths.TIMINGS / "finetune" / task / f"{run}.csv"
        records.write(costs, records.CostRecord, [outcome.cost for outcome in some])
    took = [
        EstimateCostRecord(run=run, wall_time_s=found.estimated.wall_time_s)
        for run, found in texts.items()
    ]
    records.write(paths.TIMINGS / "estimates" / f"{task}.csv", EstimateCostRecord, took)


@dataclass(frozen=True)
class _Asked:
    """What the study asks of a run on a task."""

    params: Params
    run: str
    task: str
    skipped: list[records.SkippedMethod]  # they have no trials

    @staticmethod
    def of(params: Params, run: str, task: str) -> "_Asked":
        skipped = skipped_methods(params, run, task)
        for each in skipped:
            print(f"{run} on {task} without {each.method}: {each.reason}")
        return _Asked(params, run, task, skipped)

    @property
    def methods(self) -> list[str]:
        without = {each.method for each in self.skipped}
        return [key for key in self.params.finetune.methods if key not in without]


def skipped_methods(params: Params, run: str, task: str) -> list[records.SkippedMethod]:
    """The methods that are incompatible with the run or the task."""
    setup = TrialSetup(run, task, max_tokens=params.finetune.max_tokens)
    backbone = setup.outline()
    return [
        records.SkippedMethod(run=run, method=method, reason=reason)
        for method in params.finetune.methods
        if (reason := incompatibility_of(params, setup, backbone, method))
    ]


@dataclass(frozen=True)
class _Texts:
    """What a run reads of a task's texts, how well it predicts them, and how well its states tell
    their labels."""

    inputs: list[records.InputRecord]
    bits: list[records.TextBitsRecord]
    estimated: Estimated


def _texts(asked: _Asked) -> _Texts:
    params = asked.params
    setup = TrialSetup(asked.run, asked.task, max_tokens=params.finetune.max_tokens)
    bits = text_bits(setup, resolve(params.compute, threads=params.compute.trial_threads))
    inputs = input_records(params, asked.run, asked.task, asked.methods)
    fits = bool(asked.methods)
    found = estimated(params, asked.run, asked.task) if fits else Estimated([], 0.0)
    return _Texts(inputs, [] if bits is None else [bits], found)


def _texts_of(params: Params, asked: Sequence[_Asked]) -> dict[str, _Texts]:
    """Of each run, in their order."""
    store.check_writable()
    found = dict[str, _Texts]()
    at_once, late_imports = side_by_side(params.compute), ("sklearn.covariance",)  # of an estimate
    for each, texts in workers.each(_texts, asked, at_once=at_once, late_imports=late_imports):
        if isinstance(texts, ValueError):
            raise texts
        found[each.run] = texts
    return {each.run: found[each.run] for each in asked}


def _left_out(params: Params, task: str, texts: Mapping[str, _Texts]) -> set[str]:
    """The runs that are screened out."""
    screen = params.finetune.screen
    if screen is None:
        return set()
    # The runs as the report has them: a screen decides for all seeds of a run together.
    planned = {
        key: params.pretrain[key].planned(asdict(plan)) for key, plan in plans(params).items()
    }
    estimates = [record for run_texts in texts.values() for record in run_texts.estimated.records]
    screened = screened_out(screen, planned, estimates)
    for group in screened:
        names = ", ".join(group.runs)
        print(f"{task}: screened out by {group.by} ({group.value:.3f}): {names}")
    return {run for group in screened for run in group.runs}


def _write(
    folder: Path,
    asked: _Asked,
    outcomes: list[Outcome],
    texts: _Texts,
) -> None:
    records.write(folder / "skipped.csv", records.SkippedMethod, asked.skipped)
    records.write(folder / "trials.csv", records.TrialRecord, [o.trial for o in outcomes])
    epochs = [epoch for outcome in outcomes for epoch in outcome.epochs]
    records.write(folder / "history.csv", records.EpochRecord, epochs)
    records.write(folder / "inputs.csv", records.InputRecord, texts.inputs)
    records.write(folder / "text_bits.csv", records.TextBitsRecord, texts.bits)
    records.write(folder / "estimates.csv", EstimateRecord, texts.estimated.records)
    predictions = [each for outcome in outcomes for each in outcome.predictions]
    records.write(folder / "predictions.csv.gz", records.PredictionRecord, predictions)
    tries = [each for outcome in outcomes for each in outcome.tries]
    records.write(folder / "tries.csv", records.TryRecord, tries)
    lost = [each for outcome in outcomes for each in outcome.lost_predictions]
    records.write(folder / "lost_predictions.csv.gz", records.LostPredictionRecord, lost)
    first = {outcome.trial.method: outcome.trial for outcome in reversed(outcomes)}
    for method, trial in first.items():
        place = f"{asked.run} on {asked.task}"
        print(f"{place}: {method} trained {trial.num_trained_params:,} weights")


if __name__ == "__main__":
    run_stage(main, "task", repeats=lambda raw, task: [raw["finetune"], raw["compute"]])
