"""What a reader needs beside the answer: the question, what was compared, why to believe it."""

from collections.abc import Iterable, Sequence

from stages.reporting.comparison.audit.check import Check, span
from stages.reporting.comparison.audit.questions import summary
from stages.reporting.comparison.results import Results
from stages.reporting.comparison.verdicts import ONE_SEED
from stages.reporting.number_format import compact

SMALL = 20_000_000  # weights: far fewer than those of the checkpoints that people know
QUESTION = "Which model should be fine-tuned?"


def title(results: Results) -> str:
    return results.params.about.title or QUESTION


def lead(results: Results) -> str:
    """What was compared, and how large the models are."""
    models = [cell for cell in results.cells if cell.group not in results.baselines]
    weights = [size for cell in models if (size := cell.amounts["num_params"]) is not None]
    sizes = " to ".join(dict.fromkeys(map(compact, (min(weights), max(weights)))))
    scale = " (BERT-base has 110M)" if max(weights) < SMALL else ""
    beside = ""
    if results.baselines:
        beside = f", and {_number(len(results.baselines), 'classical baseline')}"
    budgets = " or ".join(results.label_budgets)
    return (
        f"Compared: {_number(len(results.groups), 'model')} of {sizes} weights{scale}{beside}, on "
        f"{_number(len(results.params.tasks), 'task')} with {budgets} labels each, in "
        f"{_number(len(results.trials), 'trial')}."
    )


def seeds(results: Results) -> str:
    """What the intervals cover, by numbers of seeds, and what the tests found."""
    here = [c for c in results.cells if c.group not in results.baselines]
    pretrained = [c.num_pretrain_seeds for c in here if c.checkpoints == "pretrained here"]
    many = "s" if max(pretrained, default=1) > 1 else ""
    parts = [f"{span(pretrained)} pretraining seed{many} for each model"] if pretrained else []
    tuned = [c.num_finetune_seeds for c in here]
    parts.append(f"{span(tuned)} fine-tuning seed{'s' if max(tuned) > 1 else ''} for each of them")
    text = ", ".join(parts)
    found = [f"{text[0].upper()}{text[1:]}."]
    contrasts = results.contrasts
    tested = [c for c in contrasts if c.is_tested]
    asked = [question for question in results.questions if question.is_tested]
    if tested:
        means = sum(question.significant for question in asked)
        before = sum(c.significant_before_correction for c in tested)
        found.append(
            f"Of {len(asked):,} effects averaged over tasks {means:,} are significant after Holm "
            f"correction; of {len(tested):,} contrasts on single tasks "
            f"{sum(c.significant for c in tested):,} are, {before:,} before correction."
        )
    if once := sum(c.verdict == ONE_SEED for c in contrasts):
        found.append(
            f"{once:,} of {len(contrasts):,} have no verdict: a side was pretrained once, and "
            "another seed may give another result."
        )
    return " ".join(found)


def machine(results: Results, checks: Sequence[Check], *, named: bool) -> str:
    """On which processors it was computed (by their names, if ``named``), and the audit."""
    found = "Another kind of processor rounds differently: verdicts near the limit may change."
    if named:
        found = f"Computed on {' and '.join(sorted(_machines(results)))}. {found}"
    return f"{found} {summary(checks)}."


def _machines(results: Results) -> Iterable[str]:
    costs = [*results.pretraining_costs.values(), *map(vars, results.finetuning_costs.values())]
    return {cost["hardware"] for cost in costs}


def _number(number: int, name: str) -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"
