"""The verdicts on a contrast, as reports/contrasts.csv and the pages spell them."""

SIGNIFICANT = "significant after Holm correction"
BEFORE_CORRECTION = "significant before correction only"
NOT_SIGNIFICANT = "not significant"
