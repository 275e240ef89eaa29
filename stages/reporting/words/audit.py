"""The audit in words: questions, answers and details."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from stages.evaluation.metrics import scale_of
from stages.evaluation.statistics import POWER
from stages.findings.answers import BestRun, Standing
from stages.findings.audit import (
    ABOUT_EFFECTS,
    ATTRIBUTED,
    MAJORITY,
    UNLIKE,
    UNLIKE_PRETRAINING,
    Check,
    Subject,
)
from stages.findings.axes import BETTER_MATCHED, SAME_MODEL, UNLIKE_SIZES
from stages.findings.cells import Cell
from stages.findings.pretraining_ends import FALLING
from stages.reporting.formats import formatted, percent, thousands, with_unit
from stages.reporting.words.appendix import place_of_rate
from stages.reporting.words.names import counted, place, span, unit_of_scores, warnings

FEW_RUNS = 4  # the most runs that a sentence names
OBJECTIONS = "Questions with an objection"
CHOICE, EFFECTS = "the choice", "why runs differ"  # what an objection affects
MARKS = ("objection", "none", "does not apply")

NOT_TRAINED = "Nothing was fine-tuned by steps."
NOT_PRETRAINED = "Nothing was pretrained here."
NO_CONTRAST = "No two runs are compared."
LEFT_OUT = {
    SAME_MODEL: "because both runs are the same model",
    BETTER_MATCHED: "because another run is a better match",
    UNLIKE_SIZES: "because the sizes are too far apart",
    "": "because it differs from all other runs in more than one thing",
}


class Told(NamedTuple):
    """A check in words."""

    question: str
    answer: str
    mark: str
    affects: str
    details: Sequence[str]


def told(checks: Mapping[Subject, Check]) -> dict[Subject, Told]:
    """Returns each check in words."""
    answers: dict[Subject, Told] = {}
    for subject, check in checks.items():
        question, text, answer, words_of_details = WORDS[subject]
        details: list[str] = []
        if check.objection is not None or check.numbers:
            text = answer.format(**check.numbers) if isinstance(answer, str) else answer(check)
            details = [*words_of_details(check)]
        affects = EFFECTS if subject in ABOUT_EFFECTS else CHOICE
        answers[subject] = Told(question, text, check.mark, affects, details)
    return answers


def in_order(questions: Iterable[Told]) -> list[Told]:
    """Returns the questions sorted: those with an objection first and, among questions with the
    same mark, those that affect the choice first."""
    return sorted(questions, key=lambda each: (MARKS.index(each.mark), each.affects != CHOICE))


def summary(questions: Iterable[Told]) -> str:
    """Returns ``Audit: 17 questions, 9 without objection, 6 with an objection (4 affect the
    choice), 2 that do not apply``."""
    questions = [*questions]
    number = Counter(each.mark for each in questions)
    verb = "does" if number["does not apply"] == 1 else "do"
    of_choice = sum(each.mark == "objection" and each.affects == CHOICE for each in questions)
    affect = f" ({of_choice} {'affects' if of_choice == 1 else 'affect'} the choice)"
    return (
        f"Audit: {number.total()} questions, {number['none']} without objection, "
        f"{number['objection']} with an objection{affect if number['objection'] else ''}, "
        f"{number['does not apply']} that {verb} not apply"
    )


def objections(questions: Collection[Told]) -> list[str]:
    """Returns up to two lines of questions with an objection: first those that affect the choice of
    a model, then those that affect the reasons why runs differ."""
    by_effect = {
        affected: [q.question for q in questions if q.mark == "objection" and q.affects == affected]
        for affected in (CHOICE, EFFECTS)
    }
    return [
        f"{OBJECTIONS} that affects {affected}: {' '.join(objected)}"
        for affected, objected in by_effect.items()
        if objected
    ]


def _joined(parts: Iterable[str]) -> str:
    """Joins the parts that are not empty into a sentence."""
    text = "; ".join(filter(None, parts))
    return f"{text[:1].upper()}{text[1:]}."


def _or(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _probe(cell: Cell, share: float) -> str:
    edge = [f"smallest or largest C in {share:.0%}"] if share > MAJORITY else []
    return f"{place(cell)}: {', '.join([*warnings(cell), *edge])}"


def _end_of_pretraining(check: Check) -> str:
    n, slope = check.numbers, check.numbers["steepest"]
    return _joined(
        [
            f"in {n['falling']} of {n['runs']} pretrainings the validation loss was still falling "
            f"at the end, by {FALLING:g} nats or more per doubling of the steps",
            "" if slope is None else f"the steepest slope is {formatted(slope, '+.3f')}",
            f"in {n['unknown']} there are too few validations to know" if n["unknown"] else "",
        ]
    )


def _finetuning_rates(check: Check) -> str:
    n, one, some = check.numbers, check.numbers["single"], check.numbers["several"]
    return _joined(
        [
            f"one rate was tried in {one:,} of {n['trials']:,} trials" if one else "",
            f"{n['share']:.0%} of {some:,} trials with several rates kept the lowest or highest"
            if some
            else "",
        ]
    )


def _finetuning_rate_details(check: Check) -> Iterable[str]:
    if resting := check.numbers["resting"]:
        yield f"in {resting} contrasts of {_or(UNLIKE)} one rate was tried for a side"
    for name, rates in check.details:
        yield f"rates of {name}: {', '.join(f'{rate:g}' for rate in rates)}"


def _pretraining_rates(check: Check) -> str:
    n, one = check.numbers, check.numbers["single"]
    some = n["runs"] - one
    return _joined(
        [
            f"one rate was tried for {one} of {n['runs']} pretrainings" if one else "",
            f"{n['edges']} of {some} with several rates kept the lowest or highest" if some else "",
        ]
    )


def _pretraining_rate_details(check: Check) -> Iterable[str]:
    for ending in check.details:
        yield f"{ending.name}: {ending.kept:g}, {place_of_rate(ending)}"
    if resting := check.numbers["resting"]:
        yield f"in {resting} contrasts of {_or(UNLIKE_PRETRAINING)} one rate was tried for a side"


def _tries(check: Check) -> str:
    n, pretrained = check.numbers, check.numbers["pretrained"]
    text = (
        f"A trial chose on validation among {span(n['tries'])} combinations of learning rate, "
        "penalty and other settings"
    )
    unequal = len({*pretrained}) > 1
    more = f", and a pretraining among {span(pretrained)} learning rates" if unequal else ""
    return f"{text}{more}."


def _shared_defaults(check: Check) -> str:
    n = check.numbers
    if "largest" not in n:
        return "All trials have the same defaults; no other value was tried."
    sizes = []
    for name, change in n["largest"].items():
        scale = scale_of(change.cell.metric)
        size = f"{scale.shown(abs(change.size))} {scale.unit}".strip()
        sizes.append(f"{name} by up to {size}")
    return (
        "Each trial chose these settings on validation. With one value for all trials, the mean "
        f"score of a run would change: {', '.join(sizes)}. The sign of {n['reversed']} of "
        f"{n['contrasts']} contrasts would change, {n['clear']} of them with an interval that "
        "excludes zero."
    )


def _shared_default_details(check: Check) -> Iterable[str]:
    for change in check.numbers.get("largest", {}).values():
        size = with_unit(change.size, change.cell.metric)
        yield f"{'='.join(change.forced)}: {size} for {place(change.cell)}"
    for contrast, effect in check.details:
        a, b = (
            f"{c.group} ({c.method}, {thousands(c.label_budget)} labels)" for c in contrast.sides
        )
        reversal = f"{'='.join(effect.forced)} reverses {a} against {b} on {contrast.task}"
        before = scale_of(contrast.metric).signed(effect.chosen)
        yield f"{reversal}: {before} becomes {with_unit(effect.value, contrast.metric)}"
    if fixed := check.numbers["fixed"]:
        yield f"not varied: {', '.join(fixed)}"


def _labelled_rows(check: Check) -> str:
    n, draws = check.numbers, [number for *_, number in check.details]
    if n["shared"]:
        answer = (
            f"In {n['shared']} of {len(draws)} pairs of task and label budget all trials share "
            "one sample: intervals do not cover its drawing"
        )
    else:
        answer = f"{span(draws)} different samples of rows for each task and label budget"
    nested = "with one seed, a larger label budget includes the rows of a smaller one"
    return _joined([answer, nested if n["nested"] else ""])


def _cut_texts(check: Check) -> str:
    most = check.numbers["most"]
    answer = f"At most {most:.1%} of a split's rows were cut because they are too long"
    if runs := check.numbers["runs"]:
        answer += f" ({', '.join(runs) if len(runs) <= FEW_RUNS else counted(len(runs), 'run')})"
    more = "a larger `finetune.max_tokens` reads more of them"
    ends = ", ".join(check.numbers["endless"])
    end = f"`long_texts: head_tail` reads their end, too, and `windows` all of them: {ends}"
    middles = ", ".join(check.numbers["without_middle"])
    middle = f"`long_texts: windows` reads their middle, too: {middles}"
    remedies = [more if check.objection else "", end if ends else "", middle if middles else ""]
    return _joined([answer, *remedies])


def _near_duplicates(check: Check) -> str:
    most = check.numbers["most"]
    answer = f"At most {most:.1%} of a task's test rows have a near-duplicate in train"
    remedy = "if rows belong together, `group` of the source draws them into one split"
    return _joined([answer, remedy if check.objection else ""])


def _near_duplicate_details(check: Check) -> Iterable[str]:
    for task, of_task in check.details:
        if of_task.number:
            counted = f"{of_task.number:,} of {of_task.num_test:,} test rows"
            yield f"{task}: {counted}, such as {of_task.example} ({of_task.similarity:.2f})"


def _overlap(check: Check) -> str:
    most, public = check.numbers["most"], check.numbers["public"]
    external = check.numbers["external"]
    answer = ""
    if most is not None:
        share = f"At most {most:.1%}" if most else "None"
        answer = f"{share} of a task's test rows overlap the text that was read here"
    checkpoints = counted(public, "public checkpoint")
    unknown = f"the training text of {checkpoints} is unknown" if public else ""
    seen = (
        f"an external system may have seen them, since its training data is unknown: "
        f"{', '.join(external)}"
    )
    return _joined([answer, unknown, seen if external else ""])


def _power(check: Check) -> str:
    rows = span(check.numbers["rows"])
    if not check.details:
        return f"{rows} test rows for each task, and no contrast has an interval."
    sizes = (
        f"{scale_of(metric).shown(middle)} {unit_of_scores(metric)}"
        for metric, _, middle, _ in check.details
    )
    return (
        f"{rows} test rows for each task: in the median contrast, a true difference of "
        f"{' or '.join(sizes)} would be found by {percent(POWER)} of studies like this one, before "
        "correction. Smaller ones are often missed."
    )


def _sizes(metric: str, low: float, _: float, high: float) -> str:
    shown = scale_of(metric).shown
    return f"over all contrasts: {shown(low)} to {shown(high)} {unit_of_scores(metric)}"


def _missing(check: Check) -> str:
    kinds = [f"{number} {LEFT_OUT[kind]}" for kind, number in check.numbers["kinds"].items()]
    if not kinds:
        return "No pair of runs that differ in one axis is left out."
    return f"Left out: {'; '.join(kinds)}."


def _confounds(check: Check) -> Iterable[str]:
    for axis, number, names in check.details:
        if listed := ", ".join(f"{name} in {count}" for name, count in names.most_common()):
            yield f"of {number} contrasts of {axis}, what also differs: {listed}"


def _beside_baseline(best: BestRun) -> str:
    run, strongest = best.run, best.strongest
    key = f"{run.task}, {thousands(run.label_budget)} labels"
    if strongest is None:
        return f"{key}: no baseline fits"
    if best.baselines_only:
        return f"{key}: no, no run is within the limits of `answer`"
    yes = "yes" if best.standing is Standing.LEADS else "no"
    size = with_unit(best.effect.value, run.metric)
    return f"{key}: {yes}, {run.group} against {strongest.group} {size}"


def _each(words: Callable[[Any], str]) -> Callable[[Check], Iterable[str]]:
    """Returns a function that puts each detail of a check into words."""
    return lambda check: map(words, check.details)


# The question, the answer if the question does not apply, the answer if it does (a template for the
# check's numbers, or a function of the check), and a function that yields the details.
WORDS: Mapping[
    Subject, tuple[str, str, str | Callable[[Check], str], Callable[[Check], Iterable[str]]]
] = {
    Subject.PROBES: (
        "Did the solver of linear probes converge, with a penalty inside the range tried?",
        "No method uses a solver.",
        "{converged:,} of {trials:,} probes converged; {share:.0%} kept the smallest or largest "
        "penalty C that was tried.",
        _each(lambda cell_and_share: _probe(*cell_and_share)),
    ),
    Subject.FINETUNING_END: (
        "Was fine-tuning long enough?",
        NOT_TRAINED,
        "{converged} of {cells} combinations of run, task, method and label budget have "
        "converged. Of {trials:,} trials {improving:,} still improved at the end; the last epoch "
        "was the best on validation in {best:,}; an epoch of the warm-up was kept in {early:,}.",
        _each(lambda cell: f"{place(cell)}: {', '.join(warnings(cell))}"),
    ),
    Subject.PRETRAINING_END: (
        "Was pretraining long enough for its loss to become flat?",
        NOT_PRETRAINED,
        _end_of_pretraining,
        _each(
            lambda end: (
                f"{end.name}: "
                + ("not known" if end.slope is None else formatted(end.slope, "+.3f"))
            )
        ),
    ),
    Subject.FINETUNING_RATES: (
        "Were several learning rates tried for fine-tuning, and is the best inside their range?",
        NOT_TRAINED,
        _finetuning_rates,
        _finetuning_rate_details,
    ),
    Subject.PRETRAINING_RATES: (
        "Were several learning rates tried for pretraining, and is the best inside their range?",
        NOT_PRETRAINED,
        _pretraining_rates,
        _pretraining_rate_details,
    ),
    Subject.TRIES: (
        "Were equally many settings tried for all runs and baselines?",
        "Nothing had a setting to choose.",
        _tries,
        _each(lambda of_name: f"{of_name[0]}: {span(of_name[1])}"),
    ),
    Subject.SHARED_DEFAULTS: (
        "Do results hold with other values of shared defaults?",
        "No trial had such a setting to choose.",
        _shared_defaults,
        _shared_default_details,
    ),
    Subject.LABELLED_ROWS: (
        "Are the labelled rows drawn anew for each seed?",
        "",
        _labelled_rows,
        _each(lambda draw: "{}, {} of {:,} labels: {:,}".format(*draw)),
    ),
    Subject.VALIDATION_LABELS: (
        "Are there few validation labels compared with the label budget?",
        "",
        "Up to {most:.0%} of all labels that a trial uses are for validation.",
        _each(lambda share: "{}, {} labels and {:,} for validation: {:.0%}".format(*share)),
    ),
    Subject.CUT: (
        "Are texts read as a whole?",
        "No task is encoded.",
        _cut_texts,
        lambda check: (f"{task}: {share:.1%}" for task, share in check.details if share),
    ),
    Subject.READ_AT: (
        "Is each label predicted from a state that has read the labelled text?",
        "No task is encoded.",
        lambda check: (
            f"Yes in {check.numbers['pairs'] - check.numbers['unread']} of "
            f"{check.numbers['pairs']} pairs of task and run."
        ),
        _each(lambda unread: "{} on {}: {}".format(*unread)),
    ),
    Subject.NEAR_DUPLICATES: (
        "Is train free of near-duplicates of test rows?",
        "",
        _near_duplicates,
        _near_duplicate_details,
    ),
    Subject.OVERLAP: (
        "Is the training text of pretraining free of test rows?",
        "Nothing was pretrained.",
        _overlap,
        lambda check: (f"{at[0]} in {at[1]}: {share:.1%}" for at, share in check.details if share),
    ),
    Subject.PRETRAINING_SEEDS: (
        "Were runs pretrained with several seeds?",
        NOT_PRETRAINED,
        lambda check: (
            f"Seeds of each run that was pretrained here: {span(check.numbers['seeds'])}. "
            f"{check.numbers['without']} of {check.numbers['contrasts']} contrasts lack a verdict "
            "because a side was pretrained once."
        ),
        _each(lambda group: f"one seed: {group}"),
    ),
    Subject.POWER: (
        "Are there enough test rows and seeds for small differences?",
        NO_CONTRAST,
        _power,
        _each(lambda sizes: _sizes(*sizes)),
    ),
    Subject.IDENTICAL: (
        "Are compared runs different models?",
        NO_CONTRAST,
        "{same} of {between} contrasts between runs compare a model with itself.",
        _each(lambda c: f"{c.a.group} against {c.b.group} on {c.task}, {c.method}"),
    ),
    Subject.MISSING: (
        "Is every pair of runs that differs in one thing compared?",
        "",
        _missing,
        _each(lambda pair: f"{' against '.join(filter(None, (pair.a, pair.b)))}: {pair.reason}"),
    ),
    Subject.CONFOUNDS: (
        "Do compared runs differ in one thing alone?",
        f"No contrasts of {_or(ATTRIBUTED)}.",
        f"In {{clean}} of {{total}} contrasts of {_or(ATTRIBUTED)} nothing else differs that is "
        "counted.",
        _confounds,
    ),
    Subject.BASELINES: (
        "Does a run beat the best classical baseline?",
        "",
        lambda check: (
            "Yes on {beaten} of {places} pairs of task and label budget, after Holm correction for "
            "these pairs. The best of several runs is favoured by chance."
            if check.numbers
            else "No classical baseline was fitted."
        ).format(**check.numbers),
        _each(_beside_baseline),
    ),
}
