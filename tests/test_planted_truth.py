"""Claims about studies with a planted truth are right as often as the report says."""

import pytest

from stages.findings.verdicts import Verdict
from tests.planted import GROUPS, Design
from tests.planted_claims import Claim, Rate, Truth, claims_of_all, excludes_zero

pytestmark = pytest.mark.slow

ALIKE = ("reference", "other_corpus", "encoder_decoder")
SEVERAL = Design(3, 2, groups=(*ALIKE, "better_corpus"))
ONE = Design(1, 5, groups=ALIKE)
STUDIES = 6
ALPHA = 0.05


@pytest.fixture(scope="module")
def several() -> list[Claim]:
    """The claims of studies with several pretraining seeds."""
    return claims_of_all(SEVERAL, range(STUDIES), 1)


@pytest.fixture(scope="module")
def one() -> list[Claim]:
    """The claims of as many studies with one pretraining seed."""
    return claims_of_all(ONE, range(STUDIES, 2 * STUDIES), 1)


def nulls(claims: list[Claim]) -> list[Claim]:
    return [claim for claim in claims if claim.is_null]


def effects(claims: list[Claim]) -> list[Claim]:
    return [claim for claim in claims if not claim.is_null]


def test_planted_effects_are_in_the_studies(several: list[Claim]) -> None:
    """Both axes have contrasts; the better corpus is better by several points on average."""
    truth = Truth(several)
    assert {claim.axis for claim in nulls(several)} == {"training set", "architecture"}
    assert {GROUPS[claim.sides[1][0]].knows for claim in effects(several)} == {0.9}
    for claim in effects(several):
        assert truth.of(claim) < -0.05 and truth.standard_error(claim) < 0.02


def test_intervals_cover_the_truth(several: list[Claim]) -> None:
    truth = Truth(several)
    for claims in (nulls(several), effects(several)):
        missed = Rate.of(claims, [not truth.is_covered(c, c.interval) for c in claims])
        assert missed.is_at_most(ALPHA)


def test_contrasts_without_an_effect_are_rarely_significant(several: list[Claim]) -> None:
    claims = nulls(several)
    assert Rate.of(claims, [claim.before_correction for claim in claims]).is_at_most(ALPHA)
    after = Rate.of(claims, [claim.after_correction for claim in claims])
    assert after.is_at_most(ALPHA) and after.of_studies <= 1 / STUDIES


def test_contrasts_with_an_effect_are_significant_with_its_sign(several: list[Claim]) -> None:
    truth, claims = Truth(several), effects(several)
    significant = [claim for claim in claims if claim.before_correction]
    assert len(significant) > len(claims) / 2
    assert not any(truth.has_wrong_sign(claim) for claim in significant)


def test_contrasts_of_one_pretraining_seed_claim_nothing(one: list[Claim]) -> None:
    """Some intervals exclude 0, because they are about these checkpoints alone."""
    assert any(excludes_zero(claim.interval) for claim in nulls(one))
    assert not any(claim.before_correction or claim.after_correction for claim in one)
    assert {claim.verdict for claim in one} == {Verdict.ONE_SEED}


def test_intervals_over_fine_tuning_seeds_alone_would_fail(one: list[Claim]) -> None:
    """Fine-tuning seeds of one checkpoint do not show how scores vary with the pretraining seed. So
    the bound of the tests above can be exceeded."""
    claims = nulls(one)
    missed = Rate.of(claims, [excludes_zero(claim.over_finetune_seeds) for claim in claims])
    assert not missed.is_at_most(ALPHA)
    assert missed.share > 0.4
