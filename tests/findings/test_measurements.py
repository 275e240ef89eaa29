"""Findings that are read off one table: estimates, endings of pretraining and ranks."""

from dataclasses import replace

import numpy as np
import pytest

from stages.findings.models import Progress, TriedStep, endings, slope_at_end
from stages.findings.results import Results


def test_agreements_are_the_planted_ones(results: Results) -> None:
    """H-scores rank models by their effects and LogME in the reverse order; H-scores are undefined
    on one task, and of three models no correlation is given."""
    agreements = {(a.task, a.estimate): a for a in results.agreements}
    assert ("section", "h_score") not in agreements and len(agreements) == 5
    assert all((a.tau or 0) > 0.5 for (_, name), a in agreements.items() if name == "h_score")
    assert all((a.tau or 0) < -0.5 for (_, name), a in agreements.items() if name == "logme")
    few = [r for r in results.estimates["tag"] if r.model.startswith("encoder_s")]
    agreement = replace(results, estimates={**results.estimates, "tag": few}).agreements[0]
    assert len(agreement.values) == 3 and agreement.tau is None


def test_slope_of_a_loss_is_that_of_its_last_half() -> None:
    """The slope is right for any number of validations; under noise it equals numpy's fit."""
    for num in (2, 3, 8, 20):
        steps = [-(-160 * k // num) for k in range(1, num + 1)]
        slope = slope_at_end({s: 9 - 0.31 * np.log2(s) for s in steps})
        assert slope == pytest.approx(-0.31)
    noisy = {s: 9 + np.random.default_rng(s).normal(0, 0.05) for s in range(10, 161, 10)}
    half = [s for s in noisy if s >= 80]
    expected = np.polyfit(np.log2(half), [noisy[s] for s in half], 1)[0]
    assert slope_at_end(noisy) == pytest.approx(expected)
    assert slope_at_end({20: 9.0, 160: 3.0}) is None


def test_endings_know_whether_a_loss_falls(results: Results) -> None:
    ends = results.endings
    assert len(ends) == 5 and not any(end.falls or end.at_edge for end in ends)
    ((key, progress), *_) = results.progress.items()
    steep = [replace(s, validation_loss=10 - s.step / 200) for s in progress.history]
    tries = [TriedStep(**vars(steep[-1]), rate=rate, kept=rate == 0.01) for rate in (0.001, 0.01)]
    falling = replace(results, progress={key: Progress(steep, tries)})
    assert [(end.falls, end.at_edge, end.kept) for end in endings(falling)] == [(True, True, 0.01)]


def test_ranks_have_intervals_that_contain_them(five_seeds: Results) -> None:
    table = five_seeds.scores_table
    rows = [row for row in table.rows if row.method in ("full", "classical")]
    for task in table.tasks:
        scores = [row.scores[task] for row in rows if task in row.scores]
        scores.sort(key=lambda score: -score.estimate.value)
        for rank, score in enumerate(scores, 1):
            assert score.lowest_rank is not None and score.highest_rank is not None
            assert score.lowest_rank <= rank <= score.highest_rank
        assert scores[-1].lowest_rank == len(scores)  # the majority
