"""The tables of the report, each built from facts once and rendered in several forms."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from stages.evaluation.metrics import merit
from stages.findings.cells import Cell as Choice
from stages.findings.facts import Contrast, Difference, ScoreRow
from stages.reporting.formats import (
    MINUS,
    compact,
    difference_interval,
    interval,
    memory,
    metric_name,
    p_value,
    percent,
    seconds,
    shown,
    signed,
)
from stages.reporting.pictures.effects import turned
from stages.reporting.table import DASH, Cell, Column, Row, Table
from stages.reporting.view import MAX_ROWS, View

NARROW_TASKS = 4  # in terminals and on phones
MAX_ERRORS = 9
MAX_CONTRASTS = 30  # on the page; contrasts.csv has all


def scores(
    view: View, budget: str, *, times: bool, most: int = MAX_ROWS, baselines: bool = True
) -> Table:
    """Returns models x tasks, sorted by mean, with the best baselines as a line of their own.

    ``times`` adds measured times, which differ from machine to machine; ``baselines`` the other
    baselines, one a line.
    """
    rows = view.at(budget)
    means = len(view.tasks) > 1 and any(row.mean is not None for row in rows)
    columns = [
        Column("Model", "text"),
        Column("Weights", wide=True),
        *(
            Column(view.labels[t], note=metric_name(view.metrics[t]), wide=number >= NARROW_TASKS)
            for number, t in enumerate(view.tasks)
        ),
        *([Column("Mean")] if means else []),
        *(
            [Column("Fine-tuning", note="wall time"), Column("Latency", note="per text", wide=True)]
            if times
            else []
        ),
    ]
    best = {task: _best(view, task, rows) for task in view.tasks}

    def line(cells: Sequence[Cell], mean: float | None, row: ScoreRow | None = None) -> Row:
        tail = [Cell(shown(mean, view.metric), best=mean is not None and mean == top)]
        tail = tail if means else []
        if times:
            measured = (row.finetune_s, row.latency_s) if row else (None, None)
            tail += [Cell(seconds(value)) for value in measured]
        return Row([*cells, *tail], soft=row is None or row.is_baseline)

    models = [row for row in rows if not row.is_baseline][:most]
    known = [row.mean for row in rows if row.mean is not None]
    top = max(known, key=lambda mean: merit(view.metric, mean), default=None)
    lines = []
    for row in models:
        name = Cell(view.name(row), best=bool(row.recommended_for))
        cells = [name, Cell(compact(row.num_params)), *_scores(view, row, best, view.tasks)]
        lines.append(line(cells, row.mean, row))
    chosen = {a.task: a.baseline for a in view.results.answers if a.label_budget == budget}
    others = [row for row in rows if row.is_baseline]
    if any(chosen.values()):
        mean = view.baseline_mean if budget == view.budget else None
        above = [row for row in models if not _below(view, row.mean, mean)]
        cells = _best_baselines(view, best, chosen, budget)
        lines.insert(len(above), line(cells, mean))
        others = [row for row in others if not set(row.scores) <= _first_on(chosen, row.model)]
    for row in others if baselines else ():
        cells = [Cell(view.labels[row.model]), Cell(), *_scores(view, row, best, view.tasks)]
        lines.append(line(cells, row.mean, row))
    return Table("scores" if budget == view.budget else f"scores_{budget}", columns, lines)


def _first_on(chosen: Mapping[str, Choice | None], baseline: str) -> set[str]:
    """Returns the tasks on which a baseline is first on validation rows."""
    return {task for task, choice in chosen.items() if choice and choice.model == baseline}


def _below(view: View, mean: float | None, baseline: float | None) -> bool:
    """Whether a model's line stands below the line of the best baselines."""
    if mean is None or baseline is None:
        return mean is None and baseline is not None
    return merit(view.metric, mean) < merit(view.metric, baseline)


def _best(view: View, task: str, rows: Iterable[ScoreRow]) -> float | None:
    values = [row.scores[task].estimate.value for row in rows if task in row.scores]
    return max(values, key=lambda value: merit(view.metrics[task], value), default=None)


def _scores(
    view: View, row: ScoreRow, best: Mapping[str, float | None], tasks: Sequence[str]
) -> list[Cell]:
    cells = []
    for task in tasks:
        if score := row.scores.get(task):
            value, metric = score.estimate.value, view.metrics[task]
            note = interval(score.estimate, metric).replace(" to ", "\N{EN DASH}")
            is_best = value == best[task]
            tied = score.as_good and not is_best
            cells.append(Cell(shown(value, metric), best=is_best, tied=tied, note=note))
        else:
            cells.append(Cell())
    return cells


def _best_baselines(
    view: View, best: dict[str, float | None], chosen: Mapping[str, Choice | None], budget: str
) -> list[Cell]:
    """Returns the line of the baselines that validation rows put first, each on its task."""
    rows = {row.model: row for row in view.at(budget) if row.is_baseline}
    cells = [Cell("Best baseline"), Cell()]
    for task in view.tasks:
        choice = chosen.get(task)
        if choice is None:
            cells.append(Cell())
        else:
            (cell,) = _scores(view, rows[choice.model], best, [task])
            cells.append(replace(cell, note=view.labels[choice.model]))
    return cells


def effects(view: View) -> Table:
    """Returns the main effects, in the order of the axes."""
    columns = [
        Column("Compared", "text"),
        Column("Pairs", wide=True),
        Column("Difference"),
        Column(f"{percent(view.results.confidence)} interval"),
        Column("p", note="Holm", wide=True),
        Column("Verdict", "text"),
        Column("Also differs", "text", wide=True),
    ]
    rows = []
    for effect in view.results.effects:
        *_, sign = view.upwards(effect)
        estimate = turned(effect.estimate, sign)
        rows.append(
            [
                view.compared(effect),
                str(effect.num_pairs),
                signed(estimate.value, effect.metric),
                difference_interval(estimate, effect.metric) or DASH,
                p_value(effect.p_holm),
                effect.verdict.value,
                differs(view, effect.also_differs, sign),
            ]
        )
    return Table.of("effects", columns, rows)


def differs(view: View, differences: Sequence[Difference], sign: int = 1) -> str:
    """Returns what else differs; of two values, the one of the side that is named first is
    first."""
    texts = []
    for difference in differences:
        first, second = (difference.b, difference.a) if sign > 0 else (difference.a, difference.b)
        if isinstance(first, bool | None) or isinstance(second, bool):
            texts.append(view.labels[difference.name])
        else:
            sides = " vs. ".join(dict.fromkeys(map(amount, (first, second))))
            texts.append(f"{view.labels[difference.name]}: {sides}")
    return "; ".join(texts) or DASH


def amount(value: object) -> str:
    if isinstance(value, int | float):
        return compact(value) if abs(value) >= 1000 else f"{value:.3g}"
    return DASH if value in (None, "") else str(value)


def interactions(view: View) -> Table:
    columns = [
        Column("Effect", "text"),
        Column("At", "text"),
        Column("Difference"),
        Column("At", "text"),
        Column("Difference"),
        Column("Change"),
        Column(f"{percent(view.results.confidence)} interval"),
        Column("Verdict", "text"),
    ]
    rows = []
    effects = {(e.axis, e.level_a, e.level_b): e for e in view.results.effects}
    for interaction in view.results.interactions:
        effect = effects[interaction.axis, interaction.level_a, interaction.level_b]
        *_, sign = view.upwards(effect)
        at_a, at_b, change = (
            turned(e, sign) for e in (interaction.at_a, interaction.at_b, interaction.estimate)
        )
        rows.append(
            [
                view.compared(effect),
                view.level(interaction.second_axis, interaction.second_level_a),
                signed(at_a.value, effect.metric),
                view.level(interaction.second_axis, interaction.second_level_b),
                signed(at_b.value, effect.metric),
                signed(change.value, effect.metric),
                difference_interval(change, effect.metric) or DASH,
                interaction.verdict.value,
            ]
        )
    return Table.of("interactions", columns, rows)


def leads(view: View) -> Table:
    """Returns the difference of model and baseline, each chosen on validation rows, by task."""
    columns = [
        Column("Task", "text"),
        Column("Model", "text", wide=True),
        Column("Best baseline", "text"),
        Column("Difference"),
        Column(f"{percent(view.results.confidence)} interval"),
        Column("p", note="Holm", wide=True),
        Column("Verdict", "text"),
    ]
    rows = []
    for answer in view.answers:
        if answer.lead and answer.model and answer.baseline:
            rows.append(
                [
                    view.labels[answer.task],
                    view.name(answer.model),
                    view.labels[answer.baseline.model],
                    signed(answer.lead.estimate.value, answer.metric),
                    difference_interval(answer.lead.estimate, answer.metric) or DASH,
                    p_value(answer.lead.p_holm),
                    answer.lead.certainty.value,
                ]
            )
    return Table.of("leads", columns, rows)


def alternatives(view: View) -> Table:
    """Returns what costs less than the recommended choice of each task, with weights and scores."""
    columns = [
        Column("Task", "text"),
        Column("Recommended", "text", wide=True),
        Column("Score", wide=True),
        Column("Cheapest as good", "text"),
        Column("Score"),
        Column("Best smaller", "text"),
        Column("Score"),
    ]
    weights = {(row.model, row.method): row.num_params for row in view.at(view.budget)}
    rows = []
    for answer in view.answers:
        if answer.cheapest_as_good or answer.smaller:
            cells = [view.labels[answer.task]]
            for choice in (answer.recommended, answer.cheapest_as_good, answer.smaller):
                number = weights.get((choice.model, choice.method)) if choice else None
                name = view.name(choice) if choice else "none"
                score = choice.score.value if choice else None
                cells += [f"{name} ({compact(number)})" if number else name]
                cells += [shown(score, answer.metric)]
            rows.append(cells)
    return Table.of("alternatives", columns, rows)


def contrasts(view: View, most: int = MAX_CONTRASTS) -> Table:
    """Returns pairs of models on single tasks, the surest first if there are more than ``most``."""
    columns = [
        Column("Task", "text"),
        Column("Compared", "text"),
        Column("Difference"),
        Column(f"{percent(view.results.confidence)} interval"),
        Column("Verdict", "text"),
    ]
    shown_pairs: Sequence[Contrast] = view.results.contrasts
    if len(shown_pairs) > most:
        surest = sorted(shown_pairs, key=lambda c: (c.p is None, c.p or 0))[:most]
        shown_pairs = [contrast for contrast in shown_pairs if contrast in surest]
    rows = []
    for c in shown_pairs:
        sides = (f"{view.name(c.b)}", f"{view.name(c.a)}")
        if c.axis == "label budget":
            sides = (f"{view.name(c.b)}, {c.b.label_budget}", f"{c.a.label_budget}")
        rows.append(
            [
                view.labels[c.a.task],
                " vs. ".join(sides),
                signed(c.estimate.value, c.metric),
                difference_interval(c.estimate, c.metric) or DASH,
                c.verdict.value,
            ]
        )
    return Table.of("contrasts", columns, rows)


def costs(view: View) -> Table:
    """Returns what each model took, as measured."""
    columns = [
        Column("Model", "text"),
        Column("Pretraining"),
        Column("FLOPs"),
        Column("Fine-tuning"),
        Column("FLOPs"),
        Column("Memory", note="at most"),
        Column("Size", note="on disk"),
        Column("Latency", note="per text"),
    ]
    rows = [
        [
            view.labels[cost.model],
            seconds(cost.pretrain_s),
            compact(cost.pretrain_flops),
            seconds(cost.finetune_s),
            compact(cost.finetune_flops),
            memory(cost.peak_memory_bytes),
            memory(cost.weights_bytes),
            seconds(cost.latency_s),
        ]
        for cost in view.results.model_costs
    ]
    return Table.of("costs", columns, rows)


def answered(view: View) -> Table:
    """Returns how many rows the recommended choice answers at a stated accuracy."""
    known = [answer for answer in view.answers if answer.calibration]
    stated = sorted({s for a in known for s in (a.calibration.answered if a.calibration else ())})
    columns = [
        Column("Task", "text"),
        Column("Mean confidence"),
        Column("Right"),
        Column("Calibration error"),
        Column("Rescaled"),
        *(Column(f"Answers at {percent(value)}") for value in stated),
    ]
    rows = []
    for answer in known:
        about = answer.calibration
        assert about is not None
        shares = [about.answered.get(value) for value in stated]
        texts = map(percent, (about.mean_probability, about.accuracy))
        errors = (about.calibration_error, about.calibrated_error)
        shown_errors = (DASH if e is None else f"{100 * e:.1f}" for e in errors)
        rows.append([view.labels[answer.task], *texts, *shown_errors, *map(percent, shares)])
    return Table.of("confidence", columns, rows)


def estimates(view: View) -> Table:
    """Returns how well estimates from frozen states rank the models on each task."""
    columns = [
        Column("Task", "text"),
        Column("Estimate", "text"),
        Column("Models"),
        Column("Rank correlation", note="weighted tau"),
    ]
    rows = []
    for agreement in view.results.agreements:
        tau = DASH if agreement.tau is None else f"{agreement.tau:.2f}".replace("-", MINUS)
        names = [view.labels[agreement.task], view.labels[agreement.estimate]]
        rows.append([*names, str(len(agreement.values)), tau])
    return Table.of("estimates", columns, rows)


def confused(view: View) -> Table:
    """Returns the commonest errors of the recommended choices."""
    columns = [
        Column("Task", "text"),
        Column("Right", "text"),
        Column("Taken for", "text"),
        Column("Share of rows"),
    ]
    rows = [
        [view.labels[error.task], error.answer, error.prediction, percent(error.share)]
        for answer in view.answers
        for error in answer.confused
    ]
    return Table.of("confused", columns, rows[:MAX_ERRORS])
