"""Untried options that often change the answer of a study, with the time to try them."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import count, islice

from stages.findings.results import Results

FAR = 5  # at most this many times the study's labels are proposed at once
FEW_SEEDS = 3  # fewer say little about the variance between seeds
# Runs of checkpoints on the hub, as they stand below ``pretrain.runs``.
ENCODER = (
    "bert.model: {name: hub, path: google-bert/bert-base-uncased, "
    "revision: 86b5e0934494bd15c9632b12f734a8a67f723594}"
)
TEXT_TO_TEXT = (
    "t5.model: {name: hub, path: google-t5/t5-small, "
    "revision: df1b051c49625cf57a3d0d8d3863ed4d13564fe4}"
)
WRITTEN = {"language_modelling", "seq2seq"}  # kinds of tasks without a head, so without a probe


class Untried(Enum):
    PUBLISHED = "published checkpoint"
    LABELS = "label budgets"
    SEEDS = "seeds"
    METHODS = "methods"


@dataclass(frozen=True)
class NotTried:
    """Something that a study did not try."""

    what: Untried
    tried: tuple[str, ...]  # the values of the study
    setting: tuple[str, ...]  # the values to try instead
    # The estimated time of the new trials, one job at a time, scaled from the times of this study;
    # None if no time of this study is comparable.
    seconds: float | None = None
    is_upper_bound: bool = False
    is_packaged: bool = False  # whether studies/default.yaml has a package of such a checkpoint


def not_tried(results: Results) -> list[NotTried]:
    # Trials that ran side by side share their time, and new trials may run side by side, too.
    costs = results.finetuning_costs.values()
    finetuning = sum(cost.wall_time_s / cost.side_by_side for cost in costs)
    return [
        *_published(results),
        *_label_budgets(results, finetuning),
        *_seeds(results, finetuning),
        *_methods(results),
    ]


def _published(results: Results) -> Iterator[NotTried]:
    """Yields the proposal of a published checkpoint: an encoder if trials read answers from a head,
    an encoder-decoder if all write them, and none if text is only scored."""
    public = [name for name, run in results.params.runs.items() if run.is_public]
    kinds, methods = _kinds(results), results.params.finetune.methods.values()
    all_write = all(method.text_to_text for method in methods) or kinds <= WRITTEN
    if len(public) < 2 and kinds != {"language_modelling"}:
        fitting = (TEXT_TO_TEXT if all_write else ENCODER,)
        yield NotTried(Untried.PUBLISHED, tuple(public), fitting, is_packaged=not all_write)


def _kinds(results: Results) -> set[str]:
    return {about["kind"] for about in results.tasks.values()}


def _label_budgets(results: Results, finetuning_s: float) -> Iterator[NotTried]:
    """Yields the proposal to try half of the study's labels, and also all labels or, if these are
    more than FAR times the study's, twice the study's. The estimated time is an upper bound: the
    time of a trial grows at most in proportion to its labels, because its number of steps follows
    from its epochs or is a minimum."""
    budgets = results.scores.label_budgets
    if len(budgets) > 1:
        return
    (budget,) = budgets
    number = max(of_task[budget] for of_task in results.num_labels.values())
    rows = [about["num_examples"]["train"] for about in results.tasks.values()]
    available, most = min(rows), max(rows)
    half = min(number, available) // 2  # every task has enough rows for this
    others = {str(half): half} if half else {}
    if budget != "all" and number < most <= FAR * number:
        others["all"] = most
    elif budget != "all" and 2 * number <= available:
        others[str(2 * number)] = 2 * number
    if others:
        share = sum(max(other / number, 1) for other in others.values())
        amounts = {**others, budget: number}
        setting = tuple(sorted(amounts, key=amounts.__getitem__))
        seconds = finetuning_s * share
        yield NotTried(Untried.LABELS, (budget,), setting, seconds, is_upper_bound=True)


def _seeds(results: Results, finetuning_s: float) -> Iterator[NotTried]:
    """Yields the proposal of more seeds. Each new seed repeats all pretrainings and trials."""
    cells = results.scores.of_groups
    pretrained = [c.num_pretrain_seeds for c in cells if c.checkpoints == "pretrained here"]
    fewest = min(pretrained or [len(cell.trials) for cell in cells])
    if fewest >= FEW_SEEDS:
        return
    seeds = results.params.pretrain_seeds
    more = islice((n for n in count(1) if n not in seeds), max(FEW_SEEDS - len(seeds), 0))
    setting = tuple(map(str, sorted([*seeds, *more])))
    if len(setting) == len(seeds):  # the study has enough; some runs list fewer
        return
    pretraining_s = sum(cost["wall_time_s"] for cost in results.pretraining_costs.values())
    seconds = (pretraining_s + finetuning_s) / len(seeds) * (len(setting) - len(seeds))
    yield NotTried(Untried.SEEDS, (str(fewest),), setting, seconds)


def _methods(results: Results) -> Iterator[NotTried]:
    """Yields the proposal of a second method. Its time is unknown, since no trial used it."""
    methods = {k: m for k, m in results.params.finetune.methods.items() if m.only is None}
    if len(methods) != 1:
        return
    ((name, method),) = methods.items()
    cheap = "linear_probe" if WRITTEN.isdisjoint(_kinds(results)) else "lora"
    yield NotTried(
        Untried.METHODS, (name,), (cheap if method.method["name"] == "full" else "full",)
    )
