"""The page's tables and notes on costs."""

from collections.abc import Iterator, Sequence
from itertools import product
from statistics import fmean, median

from stages.evaluation.estimates import Estimates
from stages.evaluation.precision import narrowing
from stages.evaluation.records import ScoredTrial
from stages.findings.cells import Cell
from stages.findings.contrasts import Contrast
from stages.findings.costs import Costs, Gain, estimated_energy, mean_if_known, total_flops
from stages.findings.groups import Group
from stages.findings.scores import Scores
from stages.reporting.formats import (
    DASH,
    compact,
    energy,
    grams,
    memory,
    milliseconds,
    seconds,
    thousands,
    with_unit,
)
from stages.reporting.words.files import undecided_rows
from stages.reporting.words.names import quoted, verdict
from stages.training.energy import BASIS, Energy


def pretraining_rows(
    groups: Sequence[Group], trials: Sequence[ScoredTrial], costs: Costs
) -> list[dict[str, str]]:
    """Returns the size of each group and the mean cost of its seeds. The cost of a published
    checkpoint, which was only loaded here, is unknown."""
    first, rows = {trial.run: trial for trial in reversed(trials)}, []
    for group in groups:
        trial = first[group.name]
        checkpoints = [] if group.entry.as_published else group.checkpoints
        known = [costs.pretraining[checkpoint] for checkpoint in checkpoints]
        energies = [estimated_energy(cost) for cost in known] or [None]
        peak = max((cost["peak_memory_bytes"] for cost in known), default=None)
        rows.append(
            {
                "run": group.name,
                "parameters": compact(group.num_params),
                "tokens seen": compact(trial.pretrain_tokens),
                "FLOPs": compact(trial.pretrain_flops),
                "time": seconds(fmean(cost["wall_time_s"] for cost in known) if known else None),
                "peak memory": memory(peak),
                "energy, estimate": _energy(energies),
                "CO2e, estimate": grams(mean_if_known(e.co2e_g if e else None for e in energies)),
            }
        )
    return rows


def _energy(energies: Sequence[Energy | None]) -> str:
    return energy(mean_if_known(e.joules if e else None for e in energies))


def finetuning_rows(scores: Scores, costs: Costs) -> list[dict[str, str]]:
    """Returns, for each group and method, the mean time and energy of a trial, the largest peak
    memory, the size of the weights, and the median latency and speed of inference."""
    rows = []
    for group, method in product(scores.groups, scores.methods):
        cells = _cells(scores, group, method)
        if records := costs.of_trials(cells):
            rows.append(
                {
                    "run": group.name,
                    "method": method,
                    "time": seconds(fmean(cost.wall_time_s for cost in records)),
                    "peak memory": memory(max(cost.peak_memory_bytes for cost in records)),
                    "energy, estimate": _energy([estimated_energy(vars(c)) for c in records]),
                    "weights on disk": _weights(cells),
                    "latency": milliseconds(median(r.latency_s for r in records if r.latency_s)),
                    "texts/s": compact(median(r.texts_per_s for r in records if r.texts_per_s)),
                }
            )
    return rows


def _cells(scores: Scores, group: Group, method: str) -> list[Cell]:
    return [c for c in scores.of_groups if (c.group, c.method) == (group.name, method)]


def weights_rows(scores: Scores) -> list[dict[str, str]]:
    """Returns the size of the weights needed to predict, for each group and method."""
    return [
        {"run": group.name}
        | {method: _weights(_cells(scores, group, method)) for method in scores.methods}
        for group in scores.groups
    ]


def _weights(cells: Sequence[Cell]) -> str:
    """Returns the largest size of the weights over tasks, whose heads differ; DASH without any."""
    sizes = [t.weights_bytes for cell in cells for t in cell.trials if t.weights_bytes]
    return f"{max(sizes) / 1e6:.3g} MB" if sizes else DASH


def gain_rows(gains: Sequence[Gain]) -> list[dict[str, str]]:
    """Returns a row for each gain of pretraining, with costs only if the gain is significant."""
    rows = []
    for gain in gains:
        contrast, cost = gain.contrast, gain.cost_per_unit
        size = with_unit(contrast.effect.value, contrast.metric)
        row = {
            "run": contrast.a.group,
            "on": f"{contrast.task}, {thousands(contrast.label_budget)} labels",
            "method": contrast.method,
            "gain over from scratch": size if contrast.significant else verdict(contrast),
            "FLOPs per point": compact(cost.flops),
            "time per point": seconds(cost.wall_time_s),
            "energy per point, estimate": energy(cost.joules),
        }
        if gain.gained is None:
            row |= {key: DASH for key in row if "per point" in key}
        rows.append(row)
    return rows


def notes(
    costs: Costs, estimates: Estimates, contrasts: Sequence[Contrast], trials: Sequence[ScoredTrial]
) -> list[str]:
    """Returns notes on how the costs were measured, and what would narrow intervals cheaply."""
    records = [*costs.finetuning.values()]
    estimating = [cost.wall_time_s for cost in estimates.costs]
    named = ", ".join(f"`{name}`" for name in sorted(costs.machines))
    several = " They are not comparable across machines; `costs.csv` names the machine of each row."
    threads = sorted({record.threads for record in records})
    beside = max(record.side_by_side for record in records)
    load = f", with up to {beside} trials side by side" if beside > 1 else ""
    return [
        f"Times, memory and speed were measured on {named}, which may have run other work at the "
        f"same time.{several if len(costs.machines) > 1 else ''}",
        f"Latency: the time from one encoded text to its prediction, with the whole model, on "
        f"{' or '.join(map(str, threads))} thread{'s' if threads != [1] else ''}{load}; the median "
        "over some test texts and all tasks. Texts/s: the same in batches. Weights on disk: the "
        "weights that the method trained plus, unless it trained all, the checkpoint that it "
        "adapts.",
        f"Energy and CO2-equivalent (CO2e) are estimates: {BASIS}.",
        *_narrower(costs, contrasts, trials),
        "All estimates of a checkpoint and a task took "
        f"{seconds(sum(estimating) / max(len(estimating), 1))} on average, and "
        f"{seconds(sum(estimating))} together; all trials "
        f"{seconds(sum(record.wall_time_s for record in records))}.",
    ]


def _narrower(
    costs: Costs, contrasts: Sequence[Contrast], trials: Sequence[ScoredTrial]
) -> list[str]:
    """Returns, in a list, a sentence on what would narrow the intervals most per hour."""
    took = [
        {
            "run": trial.run,
            "pretrain_seed": trial.pretrain_seed,
            "wall_time_s": cost.wall_time_s,
            "pretrain_wall_time_s": costs.pretraining[trial.checkpoint]["wall_time_s"],
        }
        for trial in trials
        if (cost := costs.finetuning.get(trial.key))
    ]
    columns = {"pretraining": "pretrain_wall_time_s", "finetuning": "wall_time_s"}
    return narrowing(undecided_rows(contrasts), took, seconds, **columns, per="per hour")


def left_out(scores: Scores) -> Iterator[str]:
    """Yields sentences on the runs that the figures of cost leave out."""
    unknown = dict.fromkeys(c.group for c in scores.of_groups if total_flops(c) is None)
    if unknown:
        yield f"Left out because the cost of their pretraining is unknown: {quoted([*unknown])}."
    untrained = dict.fromkeys(
        f"`{c.group}` with `{c.method}`" for c in scores.of_groups if total_flops(c) == 0
    )
    if untrained:
        yield f"Left out because nothing was trained: {', '.join(untrained)}."
