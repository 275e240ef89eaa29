"""What the audit asks of how models were trained: probes, fine-tuning, pretraining and rates."""

from collections.abc import Iterator
from statistics import fmean

from stages.evaluation.records import CLASSICAL, ScoredTrial
from stages.reporting.comparison import convergence
from stages.reporting.comparison.audit.check import AT_EDGE, MAJORITY, Check, place, span
from stages.reporting.comparison.axes import Axis
from stages.reporting.comparison.cells import Cell
from stages.reporting.comparison.pretraining_ends import FALLING, Ending, endings
from stages.reporting.comparison.results import Results
from stages.reporting.number_format import formatted

# The sides of these have different models or starts, whose best learning rates may differ.
UNLIKE: tuple[Axis, ...] = ("architecture", "objective", "size", "pretrained", "checkpoint")
NOT_PRETRAINED = "Nothing was pretrained here."


def probes(results: Results) -> Check:
    question = "Are probes solved, with a penalty inside the range tried?"
    cells = [cell for cell in results.cells if cell.trials[0].converged is not None]
    trials = [trial for cell in cells for trial in cell.trials]
    if not trials:
        return Check(question, "No method is solved.", None)
    converged = sum(bool(trial.converged) for trial in trials)
    share = _at_edge(trials)
    return Check(
        question,
        f"{converged:,} of {len(trials):,} solved probes came to a minimum; {share:.0%} kept a C "
        "at an edge of those tried.",
        converged < len(trials) or share > AT_EDGE,
        tuple(_faults_of_probes(cells)),
    )


def _faults_of_probes(cells: list[Cell]) -> Iterator[str]:
    for cell in cells:
        words = convergence.warnings(cell)
        if (share := _at_edge(cell.trials)) > MAJORITY:
            words = [*words, f"C at an edge in {share:.0%}"]
        if words:
            yield f"{place(cell)}: {', '.join(words)}"


def _at_edge(trials: tuple[ScoredTrial, ...] | list[ScoredTrial]) -> float:
    """The share of those that chose among several values."""
    edges = [trial.at_edge for trial in trials if trial.at_edge is not None]
    return fmean(edges) if edges else 0.0


def _trained(results: Results) -> list[Cell]:
    """The cells that were fine-tuned by steps."""
    return [cell for cell in results.cells if cell.trials[0].num_epochs]


def end_of_finetuning(results: Results) -> Check:
    question = "Did fine-tuning go on until it had fitted?"
    cells = _trained(results)
    if not cells:
        return Check(question, "Nothing was fine-tuned by steps.", None)
    trials = [trial for cell in cells for trial in cell.trials]
    last = sum(trial.best_epoch == trial.num_epochs for trial in trials)
    best = sum(trial.best_is_last for trial in trials)
    improving = sum(trial.still_improving for trial in trials)
    early = sum(trial.chosen_in_warmup for trial in trials)
    warned = [(cell, words) for cell in cells if (words := convergence.warnings(cell))]
    return Check(
        question,
        f"{len(warned)} of {len(cells)} cells have not converged. Of {len(trials):,} trials "
        f"{improving:,} were still improving, {early:,} kept an epoch of the warm-up and {last:,} "
        f"their last one, which was the best on validation in {best:,}.",
        bool(warned),
        tuple(f"{place(cell)}: {', '.join(words)}" for cell, words in warned),
    )


def end_of_pretraining(results: Results) -> Check:
    question = "Did pretraining go on until its loss was flat?"
    found = endings(results)
    if not found:
        return Check(question, NOT_PRETRAINED, None)
    falling = [each for each in found if each.falls]
    unknown = [each for each in found if each.slope is None]
    slopes = [each.slope for each in found if each.slope is not None]
    answer = f"{len(falling)} of {len(found)} were stopped while the validation loss fell"
    answer += f" by {FALLING:g} nats per doubling of the steps or more"
    if slopes:
        answer += f"; the steepest slope is {formatted(min(slopes), '+.3f')}"
    if unknown:
        answer += f"; {len(unknown)} have too few validations to tell"
    return Check(question, f"{answer}.", bool(falling or unknown), tuple(_slopes(found)))


def _slopes(found: list[Ending]) -> Iterator[str]:
    for each in found:
        if each.slope is None:
            yield f"{each.run}: not known"
        elif each.falls:
            yield f"{each.run}: {formatted(each.slope, '+.3f')}"


def finetuning_rates(results: Results) -> Check:
    question = "Do fine-tuning's learning rates lie inside the range tried?"
    cells = _trained(results)
    if not cells:
        return Check(question, "Nothing was fine-tuned by steps.", None)
    trials = [trial for cell in cells for trial in cell.trials]
    single = [trial for trial in trials if trial.at_edge is None]
    on_one_rate = {cell for cell in cells if any(t.at_edge is None for t in cell.trials)}
    several = [trial for trial in trials if trial.at_edge is not None]
    resting = sum(
        contrast.axis in UNLIKE and not on_one_rate.isdisjoint((contrast.a, contrast.b))
        for contrast in results.contrasts
    )
    answer, details = [], []
    if single:
        answer.append(f"one rate was tried in {len(single):,} of {len(trials):,} trials")
    if several:
        share = _at_edge(several)
        answer.append(f"{share:.0%} of {len(several):,} trials kept a rate at an edge")
    if resting:
        details.append(f"{resting} contrasts of {', '.join(UNLIKE)} rest on one rate")
    for name, method in results.params.finetune.methods.items():
        if method.training:
            details.append(f"{name}: {_listed(method.training.rates)}")
    objection = bool(resting) or _at_edge(several) > AT_EDGE
    return Check(question, _sentence(answer), objection, tuple(details))


def pretraining_rates(results: Results) -> Check:
    question = "Do pretraining's learning rates lie inside the range tried?"
    found = endings(results)
    if not found:
        return Check(question, NOT_PRETRAINED, None)
    single = [each for each in found if len(each.rates) == 1]
    edges = [each for each in found if each.at_edge]
    runs = {each.run for each in single}
    resting = sum(
        contrast.axis in ("architecture", "objective", "size")
        and not runs.isdisjoint((contrast.a.group, contrast.b.group))
        for contrast in results.contrasts
    )
    answer, details = [], [f"{each.run}: {each.kept:g}, {each.place}" for each in edges]
    if single:
        answer.append(f"one rate was tried for {len(single)} of {len(found)} runs")
    if len(single) < len(found):
        number = len(found) - len(single)
        answer.append(f"{len(edges)} of {number} with several kept one at an edge")
    if resting:
        details.append(f"{resting} contrasts of architecture, objective or size rest on one rate")
    return Check(question, _sentence(answer), bool(edges or resting), tuple(details))


def tries(results: Results) -> Check:
    """What has no setting to choose (majority, in-context learning) is left out."""
    question = "Had all runs and baselines equally many tries?"
    found: dict[str, list[int]] = {}
    for trial in results.trials:
        if trial.method == CLASSICAL:
            if trial.num_tries > 1:
                found.setdefault(f"baseline {trial.run}", []).append(trial.num_tries)
        elif trial.num_epochs or trial.converged is not None:
            found.setdefault(trial.method, []).append(trial.num_tries)
    pretrained = [len(each.rates) for each in endings(results)]
    numbers = sorted({number for each in found.values() for number in each})
    if not numbers:
        return Check(question, "Nothing had a setting to choose.", None)
    details = [f"{name}: {span(each)}" for name, each in found.items()]
    if pretrained:
        details.append(f"pretraining: {span(pretrained)}")
    equal = len(numbers) == 1
    answer = f"Validation chose among {span(numbers)} tries: rates, penalties and other settings"
    if pretrained and len({*pretrained}) > 1:
        answer += f", and among {span(pretrained)} pretraining rates"
    return Check(question, f"{answer}.", not equal or len({*pretrained}) > 1, tuple(details))


def _listed(rates: list[float]) -> str:
    return ", ".join(f"{rate:g}" for rate in rates)


def _sentence(parts: list[str]) -> str:
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."
