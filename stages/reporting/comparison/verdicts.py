"""The verdicts on a contrast, as reports/contrasts.csv and the pages spell them."""

SIGNIFICANT = "significant after Holm correction"
BEFORE_CORRECTION = "significant before correction only"
NOT_SIGNIFICANT = "not significant"
TASKS_DISAGREE = "tasks disagree in sign"  # beyond chance, so that their mean says little
ONE_SEED = "one pretraining seed: no verdict"

# Of published checkpoints, which have no seeds: a claim about these, not about how they were made.
SIGNIFICANT_CHECKPOINTS = "significant after Holm correction for these checkpoints"
BEFORE_CORRECTION_CHECKPOINTS = "significant before correction only for these checkpoints"
NOT_SIGNIFICANT_CHECKPOINTS = "not significant for these checkpoints"
FOR_CHECKPOINTS = {
    SIGNIFICANT: SIGNIFICANT_CHECKPOINTS,
    BEFORE_CORRECTION: BEFORE_CORRECTION_CHECKPOINTS,
    NOT_SIGNIFICANT: NOT_SIGNIFICANT_CHECKPOINTS,
}


def verdict_of_test(*, before_correction: bool, after_correction: bool, published: bool) -> str:
    """Returns the verdict on a tested effect that is significant before or after correction;
    ``published``: a side is a published checkpoint."""
    verdict = NOT_SIGNIFICANT
    if before_correction:
        verdict = SIGNIFICANT if after_correction else BEFORE_CORRECTION
    return FOR_CHECKPOINTS[verdict] if published else verdict
