"""The bound on what choosing the best adds, beside sampling and a planted truth."""

from dataclasses import replace

import numpy as np
import pytest

from stages.core.seeding import stream
from stages.evaluation.statistics import mean
from stages.reporting.comparison.answer import answers
from stages.reporting.comparison.cells import Cell
from stages.reporting.comparison.optimism import bound, largest_error, sentence
from stages.reporting.comparison.results import Results


@pytest.mark.parametrize("deviations", [[1.0, 1.0], [0.5] * 20, [2.0, 0.1, 0.0, 1.0]])
def test_it_is_the_mean_of_the_largest_of_sampled_errors(deviations: list[float]) -> None:
    errors = stream(1, "errors").normal(size=(200_000, len(deviations))) * deviations
    assert largest_error(deviations) == pytest.approx(errors.max(axis=1).mean(), rel=0.01)


def test_of_two_it_is_the_known_constant() -> None:
    assert largest_error([1.0, 1.0]) == pytest.approx(1 / np.sqrt(np.pi), rel=1e-4)
    assert largest_error([1.0]) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("spread", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("shared", [0.0, 0.8])
def test_the_chosen_one_is_not_too_good_by_more(spread: float, shared: float) -> None:
    """A planted truth: the score of the chosen one minus its true one, over 20,000 studies."""
    rng, number = stream(1, "studies"), 12
    truth = spread * rng.normal(size=number)
    errors = rng.normal(size=(20_000, number)) * np.sqrt(1 - shared)
    errors += rng.normal(size=(20_000, 1)) * np.sqrt(shared)
    chosen = (truth + errors).argmax(axis=1)
    optimism = np.take_along_axis(errors, chosen[:, None], axis=1).mean()
    highest = largest_error([1.0] * number)
    assert 0 < optimism <= highest + 0.03
    if not spread and not shared:
        assert optimism == pytest.approx(highest, rel=0.02)


def test_both_pages_say_it_where_the_best_is_named(five_seeds: Results) -> None:
    found = {answer.method: answer.chosen for answer in answers(five_seeds)}
    assert all("the highest of several" in text for text in found.values())
    assert "(highest of 10 means)" in found["any"] and "(highest of 6 means)" in found["full"]


def of_one_trial(cell: Cell, value: float | None = None) -> Cell:
    """The cell with its first trial alone, perhaps with another score."""
    first = cell.trials[0]
    trial = first if value is None else replace(first, value=value)
    alone = replace(cell, trials=(trial,), rows=cell.rows[:1])
    return replace(alone, mean=mean(alone.sample, confidence=cell.confidence))


def test_one_trial_leaves_it_unknown(five_seeds: Results) -> None:
    cells = five_seeds.run_cells("tag", "200")
    once = of_one_trial(cells[0])
    assert bound(cells) is not None
    assert bound([once, *cells[1:]]) is None


def test_what_is_far_below_the_best_may_have_one_trial(five_seeds: Results) -> None:
    """It is never chosen. Near the best it leaves the bound unknown."""
    cells = five_seeds.run_cells("tag", "200")
    for value, known in ((0.0, True), (max(cell.mean.value for cell in cells) - 1e-6, False)):
        once = of_one_trial(cells[0], value=value)
        assert (bound([once, *cells[1:]]) == bound(cells[1:])) is known


def test_what_is_unknown_is_said_once_with_its_reason(five_seeds: Results) -> None:
    methods = five_seeds.methods
    alone = [t for t in five_seeds.trials if (t.pretrain_seed, t.finetune_seed) == (1, 1)]
    said = sentence(replace(five_seeds, trials=alone), "200", methods)
    assert said.count("unknown") == 1 and "one trial" in said and "(highest of" not in said
    assert "unknown" not in sentence(five_seeds, "200", methods)
    some = [t for t in five_seeds.trials if t.task != "tag" or t in alone]
    partly = sentence(replace(five_seeds, trials=some), "200", methods)
    assert "on `type` (highest of" in partly and "How much on `tag` is unknown" in partly
