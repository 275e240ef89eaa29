"""Sentences around the answer: the question, what was compared, why to believe it, and what was
not tried."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from stages.evaluation.metrics import scale_of
from stages.findings.contrasts import Contrast
from stages.findings.not_tried import NotTried, Untried
from stages.findings.questions import Question
from stages.findings.scores import Scores
from stages.findings.verdicts import Verdict
from stages.reporting.formats import about, compact, thousands
from stages.reporting.words.names import counted, span, unit_of_scores

SMALL = 20_000_000  # weights; if all models are smaller, the page adds the size of BERT-base
QUESTION = "Which model should be fine-tuned?"
USE_IT = (
    "Run a command under 'Use it' in this study's folder after `make repro`. FILE is a csv, tsv or "
    "jsonl file; for a task on one text it may be a txt file with a text in each line. To train on "
    "labels of your own, begin with `make new DATA=labels.csv`."
)
PLAN = "`make plan` says what an edit of `params.yaml` takes, before anything runs"
USUAL_TRAINING = "training: {num_epochs: 4, batch_examples: 16, lr: 1e-3}"


def compared(scores: Scores, num_trials: int, num_validation: str) -> str:
    """Returns what was compared, how large the models are, and how many labels each task has."""
    sizes = [n for cell in scores.of_groups if (n := cell.amounts["num_params"]) is not None]
    shown = " to ".join(dict.fromkeys(map(compact, (min(sizes), max(sizes)))))
    scale = " (BERT-base has 110M)" if max(sizes) < SMALL else ""
    external = len(scores.external_systems)
    numbers = {"classical baseline": len(scores.baselines) - external, "external system": external}
    others = " and ".join(counted(number, what) for what, number in numbers.items() if number)
    beside = f", and {others}" if others else ""
    budgets = " or ".join(map(thousands, scores.label_budgets))
    return (
        f"Compared: {counted(len(scores.groups), 'model')} of {shown} weights{scale}{beside}, on "
        f"{counted(len(scores.tasks), 'task')} with {budgets} labels to train on and "
        f"{num_validation} for validation, in {counted(num_trials, 'trial')}."
    )


def seeds(scores: Scores, contrasts: Sequence[Contrast], questions: Sequence[Question]) -> str:
    """Returns the numbers of seeds, and how many effects and contrasts are significant."""
    cells = scores.of_groups
    pretrained = [c.num_pretrain_seeds for c in cells if c.checkpoints == "pretrained here"]
    parts = list[str]()
    if pretrained:
        many = "s" if max(pretrained) > 1 else ""
        parts.append(f"{span(pretrained)} pretraining seed{many} for each model pretrained here")
    tuned = [cell.num_finetune_seeds for cell in cells]
    parts.append(
        f"{span(tuned)} fine-tuning seed{'s' if max(tuned) > 1 else ''} for each checkpoint"
    )
    text = ", ".join(parts)
    sentences = [f"{text[0].upper()}{text[1:]}."]
    tested = [contrast for contrast in contrasts if contrast.is_tested]
    tested_questions = [question for question in questions if question.is_tested]
    if tested:
        means = sum(question.significant for question in tested_questions)
        before = sum(contrast.significant_before_correction for contrast in tested)
        effects = f"{means:,} of {len(tested_questions):,} effects averaged over tasks, and "
        on_tasks = " on single tasks"
        if len(scores.tasks) == 1:  # the mean over tasks is the contrast itself
            effects = on_tasks = ""
        sentences.append(
            f"Significant after Holm correction: {effects}"
            f"{sum(contrast.significant for contrast in tested):,} of {len(tested):,} contrasts"
            f"{on_tasks} ({before:,} before correction)."
        )
    if once := sum(contrast.verdict is Verdict.ONE_SEED for contrast in contrasts):
        sentences.append(
            f"{once:,} of {len(contrasts):,} have no verdict: a side was pretrained once, and "
            "another seed may give another result."
        )
    return " ".join(sentences)


def machine(audit_summary: str, machines: Iterable[str] = ()) -> str:
    """Returns sentences on the ``machines`` that computed the study, and the audit's summary."""
    sentence = "Another kind of processor rounds differently: verdicts near the limit may change."
    if names := sorted(machines):
        sentence = f"Computed on {' and '.join(names)}. {sentence}"
    return f"{sentence} {audit_summary}."


def units(metrics: Iterable[str]) -> str:
    """Returns the units of the scores: ``points``, or ``points or bits per byte``."""
    return " or ".join(dict.fromkeys(map(unit_of_scores, metrics)))


def best(metrics: Iterable[str]) -> str:
    """Returns which mean of a column is bold: ``lowest``, ``highest`` or ``best`` for both."""
    extremes = {"lowest" if scale_of(metric).lower_is_better else "highest" for metric in metrics}
    return extremes.pop() if len(extremes) == 1 else "best"


class Gap(NamedTuple):
    """Something that was not tried, in words."""

    name: str
    sentence: str
    takes: str  # a sentence on the time it takes on the study's machine; "" if unknown


def gaps(omitted: Sequence[NotTried]) -> list[Gap]:
    """Returns what was not tried, with what it may change, how to try it and the time it takes."""
    gaps = []
    for untried in omitted:
        bound = "at most about" if untried.is_upper_bound else "about"
        takes = ""
        if untried.seconds is not None:
            takes = f"That takes {bound} {about(untried.seconds)} more on this machine."
        gaps.append(Gap(untried.what.value, _sentence(untried), takes))
    return gaps


def _sentence(omitted: NotTried) -> str:
    tried, setting = (", ".join(values) for values in (omitted.tried, omitted.setting))
    match omitted.what:
        case Untried.PUBLISHED if tried:
            return (
                f"One published checkpoint was compared, `{tried}`; a larger one, or one that read "
                "other text, may be ahead. To try one of the hub, which is downloaded: "
                f"`pretrain.runs.{setting}`."
            )
        case Untried.PUBLISHED:
            here = "take over the lines marked with (*) in `studies/default.yaml` (English, 84 MB)"
            return (
                "The study has no published checkpoint. One that read far more text may be ahead "
                "of everything that is pretrained here. To try one, "
                f"{f'{here}, or ' if omitted.is_packaged else ''}name one of the hub: "
                f"`pretrain.runs.{setting}`."
            )
        case Untried.LABELS:
            return (
                f"All trials have {thousands(tried)} labels; with others another choice may be "
                f"ahead. To try some: `finetune.label_budgets: [{setting}]`."
            )
        case Untried.SEEDS:
            return (
                f"A run has as few as {tried} of them, so intervals are wide or about these "
                f"checkpoints alone. To try more: `pretrain.seeds: [{setting}]`."
            )
        case Untried.METHODS:
            training = "" if setting == "linear_probe" else USUAL_TRAINING
            return (
                f"All runs are adapted by `{tried}` alone. To try another one: "
                f"`finetune.methods.{setting}: {{{training}}}`."
            )
