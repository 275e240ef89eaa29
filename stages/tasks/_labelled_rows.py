"""Label budgets: the rows of train that a trial learns from."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np

from stages.core.artifacts import Json
from stages.core.seeding import stream
from stages.tasks._cells import Row
from stages.tasks._task import Task


def rows_in_budget(budget: int | str, rows: int, *, task: str) -> int:
    """Returns the number of rows in a label budget; raises ValueError if it is above ``rows``."""
    number = rows if budget == "all" else int(budget)
    if number > rows:
        raise ValueError(f"finetune.label_budgets: {number} labels, but tasks.{task} has {rows}")
    return number


def most_rows(budgets: Iterable[int | str], rows: int, *, task: str) -> int:
    """Returns the number of rows in the largest label budget; raises ValueError likewise."""
    return max(rows_in_budget(budget, rows, task=task) for budget in budgets)


def of_draw(rows: Iterable[Row], finetune_seed: int) -> list[Row]:
    """Returns the rows of a split for trials with this seed. If each fine-tuning seed draws its own
    splits, these are the rows with the seed in their ``draws``; otherwise they are all rows."""
    return [row for row in rows if finetune_seed in row.get("draws", (finetune_seed,))]


def labelled_rows(
    rows: Sequence[Row],
    budget: int | str,
    kind: Task,
    *,
    pretrain_seed: int,
    finetune_seed: int,
    task: str,
) -> list[Row]:
    """Returns the ``rows`` of train that a trial learns from, in the order of ``rows``.

    Each pair of seeds has its own random sample (Bouthillier et al. 2021), stratified if the kind
    is. For one pair of seeds, all models and baselines have the same rows, and a smaller budget's
    rows are a subset of a larger budget's. Raises the errors of ``rows_in_budget``.
    """
    rows = of_draw(rows, finetune_seed)
    number = rows_in_budget(budget, len(rows), task=task)
    rng = stream(pretrain_seed, "labelled rows", finetune_seed)
    if kind.stratified:
        order = stratified_order([kind.labels_of(row)[0] for row in rows], rng)
    else:
        order = rng.permutation(len(rows)).tolist()
    return [rows[i] for i in sorted(order[:number])]


def stratified_order(labels: list[str], rng: np.random.Generator) -> list[int]:
    """Returns a random order of rows with these ``labels``. Every prefix has the class shares of
    all rows, to within one row: row i of the n rows of a class has the position i / n."""
    seen: dict[str, int] = defaultdict(int)
    totals = Counter(labels)
    places = []
    for tie, index in enumerate(rng.permutation(len(labels)).tolist()):
        label = labels[index]
        places.append((seen[label] / totals[label], tie, index))
        seen[label] += 1
    return [index for _, _, index in sorted(places)]


def distinct_draws(
    budget: int | str,
    *,
    pretrain_seeds: Sequence[int],
    finetune_seeds: Sequence[int],
    about: Json,
    task: str,
    trains: bool = True,
) -> list[tuple[int, int]]:
    """Returns the pairs (pretraining seed, fine-tuning seed) whose ``labelled_rows`` differ.

    These are all pairs, ordered by pretraining seed; or one for each seed that draws splits, else a
    single one, if the budget is every row of train or nothing is trained on the rows (not
    ``trains``). ``about`` is the task.json. Raises the errors of ``rows_in_budget``.
    """
    pairs, rows = list(product(pretrain_seeds, finetune_seeds)), about["num_examples"]["train"]
    has_choice = rows_in_budget(budget, rows, task=task) < rows
    return pairs if trains and has_choice else pairs[: len(about["split_seeds"]) or 1]
