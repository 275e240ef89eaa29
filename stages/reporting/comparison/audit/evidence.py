"""What the audit asks of comparisons: their seeds, their power, and what else differs in them."""

from collections import Counter
from statistics import median

from stages.evaluation.metrics import scale_of
from stages.evaluation.statistics import POWER
from stages.evaluation.variance import Variance
from stages.reporting.comparison.audit.check import Check, span
from stages.reporting.comparison.axes import BETTER_MATCHED, SAME_MODEL, UNLIKE_SIZES
from stages.reporting.comparison.best_runs import best_runs
from stages.reporting.comparison.contrasts import Contrast
from stages.reporting.comparison.not_compared import not_compared
from stages.reporting.comparison.results import Results
from stages.reporting.comparison.verdicts import ONE_SEED
from stages.reporting.comparison.what_mattered import PART_OF_AXIS
from stages.reporting.number_format import metric_name, percent
from stages.reporting.score_format import with_unit

SMALL = 2.0  # points; improvements that papers report are often smaller (Card et al. 2020)
ATTRIBUTED = ("architecture", "size", "training set")  # whose contrasts are read as causes
NO_CONTRAST = "No two runs are compared."
POWER_QUESTION = "Are there enough test rows and seeds for small differences?"


def pretraining_seeds(results: Results) -> Check:
    question = "Were runs pretrained with several seeds?"
    here = {
        cell.group: cell.num_pretrain_seeds
        for cell in results.cells
        if cell.checkpoints == "pretrained here"
    }
    if not here:
        return Check(question, "Nothing was pretrained here.", None)
    without = sum(contrast.verdict == ONE_SEED for contrast in results.contrasts)
    once = [group for group, number in here.items() if number == 1]
    return Check(
        question,
        f"{span([*here.values()])} for each run; {without} of {len(results.contrasts)} contrasts "
        "have no verdict because a side has one.",
        bool(without),
        tuple(f"one seed: {group}" for group in once),
    )


def power(results: Results) -> Check:
    question = POWER_QUESTION
    rows = [about["num_examples"]["test"] for about in results.tasks.values()]
    if not results.contrasts:
        return Check(question, NO_CONTRAST, None)
    found: dict[str, list[tuple[float, Contrast]]] = {}
    for contrast in results.contrasts:
        if contrast.effect.variance is not None:
            size = smallest_effect(contrast.effect.variance, results.confidence)
            unit = scale_of(contrast.metric).unit or metric_name(contrast.metric)
            found.setdefault(unit, []).append((size, contrast))
    if not found:
        answer = f"{span(rows)} test rows for each task, and no contrast has an interval."
        return Check(question, answer, True)
    parts, details, shown = [], [], {}
    for unit, members in found.items():
        sizes = sorted(size for size, _ in members)
        scale = scale_of(members[0][1].metric)
        shown[unit] = scale.factor * median(sizes)
        parts.append(f"{scale.shown(median(sizes))} {unit}")
        details.append(f"{scale.shown(sizes[0])} to {scale.shown(sizes[-1])} {unit}")
    return Check(
        question,
        f"{span(rows)} test rows for each task: {percent(POWER)} of studies like this one would "
        f"find a difference of {' or '.join(parts)} in the median contrast, before correction; "
        "smaller ones are often missed.",
        shown["points"] > SMALL if "points" in shown else None,
        tuple(f"{each} over contrasts" for each in details),
    )


def smallest_effect(variance: Variance, confidence: float) -> float:
    """The smallest effect that POWER of all studies would find (Card et al. 2020)."""
    low, high = 0.0, variance.half_width(confidence)
    while variance.power(high, confidence) < POWER:
        low, high = high, 2 * high
    for _ in range(20):
        middle = (low + high) / 2
        found = variance.power(middle, confidence) >= POWER
        low, high = (low, middle) if found else (middle, high)
    return high


def identical(results: Results) -> Check:
    """Runs from scratch of one design, which differ in nothing that a task uses."""
    question = "Are compared runs different models?"
    between = [c for c in results.contrasts if c.a.group != c.b.group]
    if not between:
        return Check(question, NO_CONTRAST, None)
    group = {each.name: each for each in results.groups}

    def one_model(contrast: Contrast) -> bool:
        a, b = group[contrast.a.group], group[contrast.b.group]
        designs = {side.trials[0].design for side in (contrast.a, contrast.b)}
        from_scratch = not (a.pretrained or b.pretrained) and a.settings == b.settings
        return from_scratch and len(designs) == 1 and None not in designs

    same = [contrast for contrast in between if one_model(contrast)]
    return Check(
        question,
        f"{len(same)} of {len(between)} contrasts between runs are of one model with itself.",
        bool(same),
        tuple(f"{c.a.group} against {c.b.group} on {c.task}, {c.method}" for c in same),
    )


def missing_comparisons(results: Results) -> Check:
    """Pairs that are one model, or for which there is a better one, are no loss."""
    question = "Is every comparison made that the runs suggest?"
    found = not_compared(results)
    kinds = {
        SAME_MODEL: "one model",
        BETTER_MATCHED: "better matched by another run",
        UNLIKE_SIZES: "sizes too far apart",
        "": "differing from all others in more than one thing",
    }
    kind_of = [next(word for key, word in kinds.items() if key in each.reason) for each in found]
    numbers = Counter(kind_of)
    lost = {kinds[UNLIKE_SIZES], kinds[""]}.intersection(numbers)
    listed = ", ".join(f"{number} {word}" for word, number in numbers.items())
    if not found:
        answer = "No pair of runs that differ in one axis is left out."
    else:
        answer = f"Left out: {listed}."
    names = (f"{e.a} against {e.b}: {e.reason}" if e.b else f"{e.a}: {e.reason}" for e in found)
    return Check(question, answer, bool(lost), tuple(names))


def confounds(results: Results) -> Check:
    question = "Do compared runs differ in nothing else?"
    members = {
        axis: [[*_confounds(c)] for c in results.contrasts if c.axis == axis] for axis in ATTRIBUTED
    }
    total = sum(map(len, members.values()))
    if not total:
        return Check(question, f"No contrasts of {', '.join(ATTRIBUTED)}.", None)
    clean = sum(not names for lists in members.values() for names in lists)
    details = []
    for axis, lists in members.items():
        numbers = Counter(name for names in lists for name in dict.fromkeys(names))
        listed = ", ".join(f"{name} in {number}" for name, number in numbers.most_common())
        if listed:
            details.append(f"{axis}, of {len(lists)}: {listed}")
    return Check(
        question,
        f"{clean} of {total} contrasts of {', '.join(ATTRIBUTED)} differ in nothing else that is "
        "counted.",
        clean < total,
        tuple(details),
    )


def _confounds(contrast: Contrast) -> list[str]:
    """Their names, without what the axis itself is."""
    names = [text.partition(":")[0] for text in contrast.confounds]
    return [name for name in names if name not in PART_OF_AXIS.get(contrast.axis, ())]


def baselines(results: Results) -> Check:
    question = "Does a run beat the best classical baseline?"
    if not results.baselines:
        return Check(question, "No classical baseline was fitted.", True)
    beside = best_runs(results)
    beaten, details = 0, []
    for (task, budget), each in beside.items():
        key = f"{task}, {budget} labels"
        if each.strongest is None:
            details.append(f"{key}: no baseline fits")
            continue
        yes = each.run_is_ahead and each.significant
        beaten += yes
        size = with_unit(each.effect.value, each.run.metric)
        word = "yes" if yes else "no"
        details.append(f"{key}: {word}, {each.run.group} against {each.strongest.group} {size}")
    return Check(
        question,
        f"On {beaten} of {len(beside)} pairs of task and label budget the best run does, after "
        "Holm correction for these. The best of several runs is favoured by chance.",
        beaten < len(beside),
        tuple(details),
    )
