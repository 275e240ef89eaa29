"""The rows of train that a trial learns from."""

from collections import Counter
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.core.seeding import stream
from stages.tasks._cells import Row
from stages.tasks._labelled_rows import distinct_draws, labelled_rows, stratified_order
from stages.tasks._task import TASKS


def classified(*sizes: int) -> list[Row]:
    """Rows of classes of these sizes, in random order."""
    labels = [str(label) for label, number in enumerate(sizes) for _ in range(number)]
    order = np.random.default_rng(0).permutation(len(labels))
    return [{"id": f"row {n}", "text": "", "label": labels[i]} for n, i in enumerate(order)]


def tagged(number: int) -> list[Row]:
    return [{"id": f"row {n}", "words": ["w"], "tags": ["O"]} for n in range(number)]


def drawn(rows: list[Row], budget: int | str, *, pair: tuple[int, int] = (1, 1)) -> list[Row]:
    kind = TASKS["classification" if "label" in rows[0] else "tagging"]
    seeds = {"pretrain_seed": pair[0], "finetune_seed": pair[1]}
    return labelled_rows(rows, budget, kind, **seeds, task="own")


def ids(rows: list[Row]) -> set[str]:
    return {row["id"] for row in rows}


SIZES = st.lists(st.integers(3, 40), min_size=2, max_size=4)
SEEDS = st.tuples(st.integers(0, 5), st.integers(0, 5))


@given(SIZES, st.lists(st.integers(1, 60), min_size=2, max_size=4, unique=True), SEEDS)
def test_labelled_rows_of_a_smaller_budget_are_among_those_of_a_larger_one(
    sizes, budgets, pair
) -> None:
    for rows in (classified(*sizes), tagged(sum(sizes))):
        numbers = [min(n, len(rows)) for n in sorted(budgets)]
        nested = [drawn(rows, budget, pair=pair) for budget in (*numbers, "all")]
        assert [*map(len, nested)] == [*numbers, len(rows)] and nested[-1] == rows
        assert all(ids(less) <= ids(more) for less, more in pairwise(nested))
        for part in nested:
            assert part == [row for row in rows if row["id"] in ids(part)], "in the order of train"


@pytest.mark.parametrize("rows", [classified(100, 200, 300), tagged(600)], ids=["class", "tag"])
def test_labelled_rows_are_another_sample_for_each_pair_of_seeds(rows) -> None:
    """Samples overlap as much as independent ones do; (1, 2) is another pair than (2, 1)."""
    samples = [ids(drawn(rows, 150, pair=pair)) for pair in product(range(8), range(10))]
    shared = [len(one & other) for one, other in combinations(samples, 2)]
    assert np.mean(shared) == pytest.approx(150 * 150 / 600, rel=0.02) and max(shared) < 75


@pytest.mark.parametrize(("budget", "number"), [(5, 6), ("5", 6), (6, 1), ("all", 1)])
def test_distinct_draws_of_every_row_are_one(budget, number) -> None:
    seeds = {"pretrain_seeds": [1, 2], "finetune_seeds": [1, 2, 3]}
    about = {"num_examples": {"train": 6}, "split_seeds": []}
    pairs = distinct_draws(budget, **seeds, about=about, task="own")
    assert len(pairs) == number == len({*pairs}) and pairs[0] == (1, 1)
    every = product(seeds["pretrain_seeds"], seeds["finetune_seeds"])
    samples = {frozenset(ids(drawn(tagged(6), budget, pair=pair))) for pair in every}
    assert (len(samples) > 1) == (number > 1)


def test_labelled_rows_are_of_the_draw_of_their_seed() -> None:
    rows: list[Row] = [{**row, "draws": [1] if i % 2 else [2]} for i, row in enumerate(tagged(20))]
    assert ids(drawn(rows, "all", pair=(7, 1))) == ids(rows[1::2])
    assert ids(drawn(rows, 5, pair=(7, 2))) < ids(rows[::2])
    with pytest.raises(ValueError, match="11 labels, but tasks.own has 10"):
        drawn(rows, 11, pair=(7, 1))


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=60), st.integers(0, 3))
def test_stratified_order_makes_every_prefix_a_sample(labels: list[str], seed: int) -> None:
    order = stratified_order(labels, stream(seed, "sample", "train"))
    assert sorted(order) == list(range(len(labels)))
    totals = Counter(labels)
    assert {labels[i] for i in order[: len(totals)]} == set(totals)
    for n in range(1, len(labels) + 1):
        counts = Counter(labels[i] for i in order[:n])
        for label, total in totals.items():
            assert abs(counts[label] - n * total / len(labels)) <= len(totals)
