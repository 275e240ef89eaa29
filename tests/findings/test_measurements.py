"""Findings that are read off one table: estimates, overlap, endings of pretraining and ranks."""

from dataclasses import replace

import pytest

from stages.findings.pretraining import endings
from stages.findings.results import Results


def test_agreements_are_the_planted_ones(results: Results) -> None:
    """H-scores rank models by their effects and LogME in the reverse order; H-scores are undefined
    on one task, and of three models no correlation is given."""
    agreements = {(a.task, a.estimate): a for a in results.agreements}
    assert ("section", "h_score") not in agreements and len(agreements) == 5
    assert all((a.tau or 0) > 0.5 for (_, name), a in agreements.items() if name == "h_score")
    assert all((a.tau or 0) < -0.5 for (_, name), a in agreements.items() if name == "logme")
    few = [r for r in results.estimates["tag"] if r.run.startswith("encoder_s")]
    agreement = replace(results, estimates=results.estimates | {"tag": few}).agreements[0]
    assert len(agreement.values) == 3 and agreement.tau is None


def test_overlap_has_shares_and_similarities_of_each_text(results: Results) -> None:
    overlap = results.overlap
    assert overlap.shares["tag", "all"] == 0.015
    assert overlap.share(("all", "unigram"), "tag", "exact") == 0.004
    texts = [(corpus, "unigram") for corpus in ("all", "scientific", "deep_learning")]
    similar = [overlap.similarity(text, "tag") for text in texts]
    assert similar == pytest.approx([0.88, 0.86, 0.84])


def test_endings_have_the_slope_and_the_kept_rate(results: Results) -> None:
    assert len(results.endings) == 5 and not any(
        end.falls or end.at_edge for end in results.endings
    )
    ((key, progress), *_) = results.progress.items()
    steep = [replace(s, validation_loss=10 - s.step / 200) for s in progress.history]
    (falling,) = endings(results.params.runs, {key: replace(progress, history=steep)})
    assert falling.falls and falling.num_steps == 1000


def test_ranks_have_intervals_that_contain_them(five_seeds: Results) -> None:
    for ranked in five_seeds.rankings:
        assert ranked.lowest_rank is not None and ranked.highest_rank is not None
        assert ranked.lowest_rank <= ranked.rank <= ranked.highest_rank
    of_tag = [r for r in five_seeds.rankings if (r.task, r.method) == ("tag", "full")]
    assert of_tag[-1].model == "majority" and of_tag[-1].lowest_rank == of_tag[-1].rank
