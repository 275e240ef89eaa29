"""The first screen: for each task, what to use, how sure that is, and what it is better than.

There is an answer for every choice of label budget and method. Sentences come from the numbers and
are never stronger than the verdicts. Names are in backticks.
"""

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean

from stages.core.artifacts import Json
from stages.evaluation.metrics import scale_of
from stages.evaluation.records import CostRecord
from stages.findings.answers import (
    BestRun,
    Rival,
    Standing,
    Tie,
    cheapest_run,
    lead,
    next_best,
    preference,
    selection_bias,
    smaller,
    tie_of,
)
from stages.findings.cells import Cell
from stages.findings.contrasts import Contrast
from stages.findings.costs import total_flops
from stages.findings.results import Results
from stages.findings.scores import Scores
from stages.findings.verdicts import Verdict
from stages.kinds._kind import KINDS
from stages.reporting.formats import (
    are,
    compact,
    interval,
    memory,
    metric_name,
    percent,
    seconds,
    six_decimals,
    thousands,
)
from stages.reporting.words.answer_limits import left_out
from stages.reporting.words.labels_needed import more_labels
from stages.reporting.words.names import (
    best_baseline,
    counted,
    faults_in_words,
    quoted,
    run_or_baseline,
    shown_mean,
    size_of,
    unit_of_scores,
    verdict,
    verdict_with_reason,
)
from stages.reporting.words.what_mattered import Mattered, what_mattered

ANY = "any"  # in place of a method: the best of all methods for each task
RULE = (
    "Two choices tie if the interval of their difference includes 0; the cheaper one may then be "
    "as good. Pairs that were not tested do not count as ties."
)
FEW = 4  # the most tasks, or runs, that a sentence names
MANY_CUT = 0.2  # share of the training texts; that more are cut is mentioned
OVERCONFIDENT = 0.05  # a mean probability this far above the accuracy is mentioned


@dataclass(frozen=True)
class Card:
    """The answer for one task."""

    task: str
    about: str  # what params.yaml says about the task, or else its kind
    label_budget: str
    best: Cell
    use: str  # what to use, with its score
    standing: Standing
    runs: str  # how sure the first place among the runs is
    against: str  # how the best run compares with the best baseline, and if it reads cut texts
    otherwise: str  # what else could be chosen
    takes: str  # time, memory and speed on the machine that computed the study
    chip: str  # the standing and, if a baseline is first, how sure that is
    cheapest: str  # the cheapest choice that ties with the best
    cheapest_takes: str  # its training times on the machine that computed the study
    use_it: str  # the command that predicts new rows with the best; "" for an external system
    is_limited: bool  # whether the limits of the study leave out a better choice


@dataclass(frozen=True)
class Answer:
    """The answer for one label budget and one method (or ANY method)."""

    label_budget: str
    method: str
    cards: list[Card]
    verdict: str  # on how many tasks a model is ahead of the best baseline
    chosen: str  # sentences on the selection bias of the best scores
    mattered: list[Mattered]


def answers(results: Results) -> list[Answer]:
    """Returns an answer for each label budget and method, the largest budget and ANY first."""

    scores = results.scores
    methods = [ANY, *scores.methods] if len(scores.methods) > 1 else [ANY]
    lines = []
    for budget, method in product(reversed(scores.label_budgets), methods):
        best_runs = results.best_runs[None if method == ANY else method]
        best = [best_runs[task, budget] for task in scores.tasks if (task, budget) in best_runs]
        allowed = scores.methods if method == ANY else [method]
        questions = [
            question
            for question in results.questions
            if question.first.is_between_runs
            and question.first.label_budget == budget
            and method in (ANY, question.first.method)
        ]
        lines.append(
            Answer(
                label_budget=budget,
                method=method,
                cards=[_card(results, each, allowed) for each in best],
                verdict=_verdict(best),
                chosen=luck(scores, budget, allowed, results.outside),
                mattered=what_mattered(questions),
            )
        )
    return lines


def _verdict(best: Sequence[BestRun]) -> str:
    """Returns a sentence with the number of tasks on which a model is ahead of the best baseline;
    "" without baselines."""
    tasks = {each.run.task: each for each in best if each.strongest}
    limited = [task for task, each in tasks.items() if each.baselines_only]
    tested = {t: each for t, each in tasks.items() if each.is_tested and t not in limited}
    ahead = [task for task, each in tested.items() if each.standing is Standing.LEADS]
    behind = [
        task
        for task, each in tested.items()
        if each.standing is Standing.BASELINE and tie_of(each) is Tie.APART
    ]
    counts = {
        "the baseline is ahead": behind,
        "the difference may be chance": [t for t in tested if t not in (*ahead, *behind)],
        "nothing was tested": [task for task in tasks if task not in (*tested, *limited)],
        "no model is within the limits": limited,
    }
    if not tasks:
        return ""
    number = counted(len(tasks), "task")
    external = any(each.strongest.is_external for each in best if each.strongest)
    within = "within the limits and " if limited else ""
    than = f"{within}ahead of {best_baseline(may_be_external=external)}, after Holm correction"
    first = f"On none of {number} is a model {than}"
    if len(tasks) == 1:
        first = f"{'A' if ahead else 'No'} model is {than}"
    elif ahead:
        first = f"On {len(ahead)} of {number}{_named(ahead)} a model is {than}"
    on_all = {1: "", 2: "on both "}.get(len(tasks), f"on all {len(tasks)} ")
    rest = [
        (on_all if len(some) == len(tasks) else f"on {len(some)}{_named(some)} ") + what
        for what, some in counts.items()
        if some
    ]
    return "; ".join([first, *rest]) + "."


def _named(tasks: Sequence[str]) -> str:
    """Returns the names of the tasks in parentheses; "" if there are more than FEW."""
    return f" ({quoted(tasks)})" if 0 < len(tasks) <= FEW else ""


def luck(
    scores: Scores, label_budget: str, methods: Sequence[str], outside: Container[Cell] = ()
) -> str:
    """Returns sentences on the selection bias of each task's best mean, which may be a baseline's.
    Cells ``outside`` the limits are not candidates. With more than FEW tasks, only the largest
    bound of each unit is given."""
    known: list[str] = []
    unknown: list[str] = []
    largest: dict[str, tuple[float, str]] = {}  # by unit
    for task, metric in scores.metrics.items():
        runs = [cell for cell in scores.run_cells(task, label_budget) if cell.method in methods]
        cells = [*runs, *scores.baseline_cells(task, label_budget)]
        cells = [cell for cell in cells if cell not in outside] or cells
        if len(cells) < 2:
            continue
        bias = selection_bias(cells)
        if bias is None:
            unknown.append(f"`{task}`")
            continue
        unit = unit_of_scores(metric)
        size = f"at most {scale_of(metric).shown(bias)} {unit}"
        known.append(f"{size} on `{task}` (highest of {len(cells)} means)")
        largest[unit] = max(largest.get(unit, (0.0, size)), (bias, size))
    if not known and not unknown:
        return ""
    num_tasks = len(known) + len(unknown)
    if num_tasks > FEW:
        known = [size for _, size in largest.values()]
    parts = [
        "Each best score is the highest of several on the same test rows, so it is partly luck."
    ]
    if known:
        parts.append(
            f"On average it is too high, by {', '.join(known)}; the leads over baselines are not "
            "reduced for it."
        )
    if unknown:
        on = f"{len(unknown)} of {num_tasks} tasks" if num_tasks > FEW else ", ".join(unknown)
        where = f" on {on}" if known else ""
        parts.append(f"How much{where} is unknown: a candidate for the best has one trial.")
    return " ".join(parts)


def _card(results: Results, best: BestRun, methods: Sequence[str]) -> Card:
    scores, run, outside = results.scores, best.run, _outside(results, best.best)
    contrasts = [c for c in results.contrasts_of.get(run, []) if c.is_between_runs]
    cheapest, cheapest_takes = _cheapest(results, best, methods)
    limits = left_out(best, results.outside, scores.baselines)
    first = [text for text in (limits, _confidence(best.best)) if text]
    otherwise = [*first, *_others(results, best, methods)]
    kind = results.tasks[run.task]["kind"].replace("_", " ")
    about = results.params.about("tasks", run.task) or f"{run.task}: {kind}"
    return Card(
        task=run.task,
        about=about.removesuffix("."),
        label_budget=run.label_budget,
        best=best.best,
        use=_use(best.best, scores.baselines),
        standing=best.standing,
        runs=_among_runs(run, [c for c in contrasts if c.other(run) not in outside]),
        against=" ".join([_against_baseline(best), *_cut(results, run)]),
        otherwise=" ".join(otherwise),
        takes=_takes(results.costs.of_trials([best.best])),
        chip=_chip(best),
        cheapest=cheapest,
        cheapest_takes=cheapest_takes,
        use_it=_use_it(results, best.best),
        is_limited=best.left_out is not None,
    )


def _confidence(best: Cell) -> str:
    """Returns a sentence with the accuracy, and with the mean probability if it exceeds the
    accuracy by OVERCONFIDENT or more; "" if the predictions have no probabilities."""
    measured = [
        (trial.accuracy, trial.mean_probability)
        for trial in best.trials
        if trial.accuracy is not None and trial.mean_probability is not None
    ]
    if not measured:
        return ""
    right, said = map(fmean, zip(*measured, strict=True))
    sentence = f"`{best.group}` is right on {percent(round(right, 3))} of the test rows"
    if said - right < OVERCONFIDENT:
        return f"{sentence}."
    return f"{sentence}; its probabilities are too high, {percent(round(said, 3))} on average."


def _cut(results: Results, run: Cell) -> Iterator[str]:
    """Yields a sentence if more than MANY_CUT of the training texts of the run are cut."""
    shares = [
        record.rows_cut / record.rows
        for record in results.inputs[run.task]
        if (record.run, record.split) == (run.group, "train") and record.rows
    ]
    share, tokens = max(shares, default=0.0), results.params.finetune.max_tokens
    if share > MANY_CUT:
        yield (
            f"Note: {share:.0%} of the training texts of `{run.group}` are cut at {tokens} tokens "
            "(`finetune.max_tokens`)."
        )


def _outside(results: Results, chosen: Cell) -> Container[Cell]:
    """Returns the cells that must not be named as alternatives: those outside the limits, or none
    if the chosen cell is itself outside."""
    return () if chosen in results.outside else results.outside


def _use_it(results: Results, best: Cell) -> str:
    """Returns the command that predicts with the best cell, the columns that its FILE needs and, if
    weights are needed and not kept, the setting that keeps them; "" for an external system."""
    if best.is_external:
        return ""
    trial, is_baseline = best.trials[0], best.group in results.scores.baselines
    method = None if is_baseline else best.method
    place = best.group, best.task, best.label_budget
    inputs = KINDS[results.tasks[best.task]["kind"]].inputs
    columns = f"where FILE has the column{'s' * (len(inputs) > 1)} {quoted(inputs)}"
    command = f"`{predict_command(*place, method, trial.finetune_seed)}`, {columns}"
    is_lost = not is_baseline and results.params.finetune.keep_weights == "none"
    if is_lost and trial.num_trained_params:
        return f"{command}; after a run with `finetune.keep_weights: first_seed`"
    return command


def predict_command(
    run: str, task: str, label_budget: str, method: str | None, finetune_seed: int | str
) -> str:
    """Returns the command that predicts new rows with a run or, without ``method``, a baseline."""
    command = f"python -m stages.commands.predict {run} {task} FILE --label-budget {label_budget}"
    return f"{command} --method {method} --finetune-seed {finetune_seed}" if method else command


def _use(best: Cell, baselines: Sequence[str]) -> str:
    score = f"{shown_mean(best)} {metric_name(best.metric)}"
    if ends := interval(best.mean, best.metric):
        score += f" ({ends})"
    if scale_of(best.metric).lower_is_better:
        score += ", lower is better"
    return f"{run_or_baseline(best, baselines)}: {score}."


def _chip(best: BestRun) -> str:
    text = best.standing.value
    if best.standing is not Standing.BASELINE:
        return text
    surely = {
        Tie.TIED: "a model may be as good",
        Tie.UNSURE: Verdict.BEFORE_CORRECTION.value,
        Tie.APART: "clearly",
    }
    return f"{text}, {surely.get(tie_of(best), 'not tested')}"


def _against_baseline(best: BestRun) -> str:
    run, strongest = best.run, best.strongest
    if strongest is None:
        return "No classical baseline was fitted to this task."
    size = size_of(best.effect, run.metric)
    if best.run_is_ahead:
        named = f"`{strongest.group}`, the best classical baseline"
        if strongest.is_external:
            named = f"`{strongest.group}`, an external system and the best baseline"
        cheaper = ""
        if tie_of(best) is Tie.TIED and not strongest.is_external:
            cheaper = f" `{strongest.group}` costs less and may be as good."
        return f"Against {named}: {size}, {verdict_with_reason(best)}.{cheaper}"
    return (
        f"The best model, `{run.group}` with `{run.method}`, reaches {shown_mean(run)} against "
        f"{shown_mean(strongest)}: {size}, {verdict_with_reason(best)}."
    )


def _among_runs(run: Cell, contrasts: Sequence[Contrast]) -> str:
    """Returns a sentence on the contrasts of the best run: which models it is ahead of, and which
    are not told apart from it."""
    if not contrasts:
        return (
            f"Every model differs from `{run.group}` in more than one thing, such as size and "
            "training text, so why it leads is unknown."
        )
    number = len(contrasts)
    differ = "One model differs" if number == 1 else f"{number} models differ"
    others = lead(run, contrasts)
    names = {  # names of runs or, above FEW, their number
        tie: str(len(cells)) if len(cells) > FEW else quoted([cell.group for cell in cells])
        for tie, cells in others.items()
    }
    ahead = {Tie.APART: "after Holm correction", Tie.UNSURE: "before Holm correction only"}
    leads = [f"of {names[tie]} {when}" for tie, when in ahead.items() if others[tie]]
    parts = [f"`{run.group}` is ahead {' and '.join(leads)}"] if leads else []
    if others[Tie.TIED]:
        parts.append(f"{names[Tie.TIED]} could be as good")
    if others[Tie.UNTESTED]:
        was = "was" if len(others[Tie.UNTESTED]) == 1 else "were"
        parts.append(f"{names[Tie.UNTESTED]} {was} not tested against it")
    comparison = f" {'; '.join(parts)}." if parts else ""
    return f"{differ} from `{run.group}` in one thing alone.{comparison}"


def _others(results: Results, first: BestRun, methods: Sequence[str]) -> Iterator[str]:
    """Yields sentences on the next best choice, the best model with fewer weights, screened-out
    runs, the best choice with other label budgets, the effect of more labels on the best run, and
    whether this run has converged. Only runs with one of the ``methods`` count."""
    scores, best, outside = results.scores, first.best, _outside(results, first.best)
    after = next_best(best, scores, methods, outside)
    if after and (first.run_is_ahead or after is not first.run):  # otherwise ``against`` names it
        yield f"Next best: {run_or_baseline(after, scores.baselines)}, {shown_mean(after)}."
    if less := smaller(best, scores, methods, outside):
        size = compact(less.amounts["num_params"])
        named = f"{run_or_baseline(less, scores.baselines)} ({size})"
        is_behind = first.strongest is not None and preference(first.strongest) < preference(less)
        below = ", below the best classical baseline" if is_behind else ""
        yield f"Best of the smaller models: {named}, {shown_mean(less)}{below}."
    if out := results.screened_out[best.task]:
        names = quoted([screened.run for screened in out])
        yield f"Screened out by an estimate, so without a score: {names}."
    others = [budget for budget in scores.label_budgets if budget != best.label_budget]
    elsewhere = results.best_runs[methods[0] if len(methods) == 1 else None]
    for budget in others:
        if other := elsewhere.get((best.task, budget)):
            named = run_or_baseline(other.best, scores.baselines)
            yield f"With {thousands(budget)} labels: {named}, {shown_mean(other.best)}."
    run = first.run
    if needed := results.labels_needed.get((run.task, run.group, run.method)):
        yield more_labels(needed)
    if unfinished := faults_in_words(run):
        yield (
            f"`{run.group}` with `{run.method}` may score otherwise after more steps: "
            f"{', '.join(unfinished)} trials."
        )


def _cheapest(results: Results, best: BestRun, methods: Sequence[str]) -> tuple[str, str]:
    """Returns two texts. The first names the cheapest choices that tie with the best: a baseline
    that ties or is ahead, and the run with the fewest FLOPs that ties with the best run. The second
    says how long this run took."""
    parts, baseline, baselines = [], best.strongest, results.scores.baselines
    tie = tie_of(best)
    if baseline and (tie is Tie.TIED or not best.run_is_ahead):
        named = f"{run_or_baseline(baseline, baselines)}, {shown_mean(baseline)}"
        cost = "its cost is unknown" if baseline.is_external else "it trains no network"
        parts.append(f"{named}: {cost}.")
    if best.baselines_only:
        return f"{parts[0]} No model is within the limits.", ""
    if not best.run_is_ahead and tie is not Tie.TIED:
        ties_not = "was tested against it" if tie is Tie.UNTESTED else "ties with it"
        return f"{parts[0]} No model {ties_not}.", ""
    contrasts, outside = results.contrasts_of.get(best.run, []), _outside(results, best.best)
    run = cheapest_run(best.run, contrasts, methods, outside)
    flops = total_flops(run)
    cost = "its FLOPs are unknown" if flops is None else f"{compact(flops)} FLOPs"
    if run is best.run and not parts:
        cost += ", and nothing that is known to cost less ties with it"
    times = []  # mean times, measured here
    group = results.scores.group_of[run.group]
    if group.pretrained and (before := results.costs.of_lineage(group).wall_time_s):
        times.append(f"pretraining {seconds(before)}")  # with parents and teachers
    if records := results.costs.of_trials([run]):
        times.append(f"fine-tuning {seconds(fmean(record.wall_time_s for record in records))}")
    than = "" if run is best.run else f" (the best model has {shown_mean(best.run)})"
    of_models = "Of the models: " if parts else ""
    named = f"{of_models}{run_or_baseline(run, baselines)}, {shown_mean(run)}{than}: {cost}."
    return " ".join([*parts, named]), f"Time: {', '.join(times)}." if times else ""


def _takes(costs: Sequence[CostRecord]) -> str:
    """Returns a sentence on the mean time, largest memory and mean speed of trials; "" if nothing
    was measured, as for baselines."""
    if not costs:
        return ""
    return price(
        wall_time_s=fmean(cost.wall_time_s for cost in costs),
        peak_memory_bytes=max(cost.peak_memory_bytes for cost in costs),
        texts_per_s=[cost.texts_per_s for cost in costs if cost.texts_per_s],
        hardware=costs[0].hardware,
    )


def price(
    *, wall_time_s: float, peak_memory_bytes: float, texts_per_s: Sequence[float], hardware: str
) -> str:
    """Returns a sentence on the time, memory and prediction speed of a fine-tuning."""
    speed = f"; it predicts {fmean(texts_per_s):,.0f} texts per second" if texts_per_s else ""
    return (
        f"Fine-tuning takes {seconds(wall_time_s)} and at most {memory(peak_memory_bytes)} on "
        f"{hardware}{speed}."
    )


def ties(rivals: Sequence[Rival], *, is_limited: bool = False) -> str:
    """Returns a sentence on how many runs and baselines are told apart from the best run, and how
    many are not. With ``is_limited``, that run is called the best within the limits."""
    best = next(rival.cell.group for rival in rivals if rival.tie is Tie.BEST)
    counts = Counter(rival.tie for rival in rivals if rival.tie is not Tie.BEST)
    if not counts:
        return f"Nothing else was tried beside `{best}`."
    texts = {
        Tie.APART: "told apart from it",
        Tie.UNSURE: "told apart before correction only",
        Tie.TIED: "not told apart",
        Tie.UNTESTED: "in no contrast with it",
    }
    parts = [
        f"{counts[tie]} {are(counts[tie])} {text}" for tie, text in texts.items() if counts[tie]
    ]
    first = "Best run within the limits" if is_limited else "Best run"
    return f"{first}: `{best}`. Of {counted(counts.total(), 'other')}, {', '.join(parts)}."


def verdict_of_rival(rival: Rival, baselines: Sequence[str]) -> str:
    if rival.tie is Tie.BEST:
        return rival.tie.value
    if rival.tested:
        return verdict(rival.tested)
    if rival.cell.group in baselines:
        return "no contrast: another baseline is stronger"
    return "no contrast: they differ in more than one thing"


def answer_rows(results: Results) -> list[Json]:
    """Returns the rows of reports/answer.csv: for each label budget and task, what to use, in
    numbers and in words. The interval is of the mean score on new test rows, with other seeds."""
    scores, rows = results.scores, []
    for card in (card for each in answers(results) if each.method == ANY for card in each.cards):
        best = card.best
        after = next_best(best, scores, scores.methods, _outside(results, best))
        words = {key: getattr(card, key) for key in ("against", "use", "runs", "otherwise")}
        rows.append(
            {
                **best.key._asdict(),
                "metric": best.metric,
                **{key: six_decimals(getattr(best.mean, key)) for key in ("low", "high")},
                "mean": six_decimals(best.mean.value),
                "sure": card.standing.value,
                "next_run": after.group if after else "",
                "next_method": after.method if after else "",
                "next_mean": six_decimals(after.mean.value) if after else "",
                **{key: text.replace("`", "") for key, text in words.items()},
            }
        )
    return rows
