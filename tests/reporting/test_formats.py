"""Numbers have units, and intervals end where the scale of their metric does."""

import math

import numpy as np
import pytest
from scipy import stats

from stages.evaluation.metrics import LIMITS, cut
from stages.evaluation.statistics import Interval, difference
from stages.evaluation.variance import Sample
from stages.kinds._kind import KINDS
from stages.kinds._metric import POINTS, Metric
from stages.reporting.formats import (
    LITTLE,
    MINUS,
    compact,
    difference_with_interval,
    ends,
    energy,
    grams,
    interval,
    interval_of_difference,
    memory,
    metric_name,
    milliseconds,
    seconds,
    shown,
    with_unit,
)

ROWS = 50


def side(*values: float) -> Sample:
    """Trials from scratch, one for each seed; all rows of a trial have its score."""
    keys = tuple((1, seed) for seed in range(len(values)))
    rows = np.repeat(np.array(values)[:, None], ROWS, axis=1)
    return Sample(keys, np.array(values), rows, "none")


def of(one: Sample, other: Sample) -> Interval:
    return difference(one, other, confidence=0.95)


def test_an_interval_of_two_seeds_ends_with_the_scale_and_says_that_it_says_nothing() -> None:
    """Its uncut ends agree with scipy's paired test."""
    a, b = (0.1, 0.9), (0.2, 0.1)
    effect = of(side(*a), side(*b))
    expected = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert (effect.low, effect.high) == pytest.approx((expected.low, expected.high), rel=0.05)
    assert (
        effect.low is not None and effect.low < -1 and effect.high is not None and effect.high > 1
    )
    assert ends(effect, "macro_f1", difference=True) == (-1, 1)
    text = interval_of_difference(effect, "macro_f1")
    assert text == f"{MINUS}100.0 to +100.0, {LITTLE}"


def test_a_narrow_interval_at_the_end_of_the_scale_is_cut_and_says_something() -> None:
    score = Interval(0.995, None, "", "t", 0.95)
    assert interval(score, "accuracy") == ""
    assert cut(0.98, 1.01, "accuracy") == (0.98, 1.0)
    low, high = cut(-0.02, 0.04, "accuracy", difference=True)
    assert (low, high) == (-0.02, 0.04)


@pytest.mark.parametrize(
    ("metric", "difference", "expected"),
    [
        ("macro_f1", False, (0, 1)),
        ("macro_f1", True, (-1, 1)),
        ("matthews", False, (-1, 1)),
        ("pearson", True, (-2, 2)),
        ("bits_per_byte", False, (0, 9)),
        ("bits_per_byte", True, (-9, 9)),
    ],
)
def test_each_metric_has_its_ends(
    metric: str, difference: bool, expected: tuple[float, float]
) -> None:
    assert cut(-9, 9, metric, difference=difference) == expected


def test_every_metric_of_a_kind_that_is_no_share_has_its_limits() -> None:
    """Correlations are shown in points, too."""
    metrics = [metric for kind in KINDS.values() for metric in kind.metrics]
    signed = {metric.name for metric in metrics if isinstance(metric, Metric)}
    assert {"pearson", "spearman"} <= signed & LIMITS.keys()
    for metric, (least, largest) in LIMITS.items():
        assert least < largest and (math.isinf(largest) or least == -largest), metric
    assert POINTS.factor == 100


def test_scores_have_a_minus_sign_and_0_has_none() -> None:
    assert shown(-0.123, "matthews") == f"{MINUS}12.3"
    assert shown(-0.0001, "matthews") == shown(0.0, "matthews") == POINTS.signed(-0.0001) == "0.0"


@pytest.mark.parametrize("value", [0.4195, 0.41950003, 0.4194999999])
def test_a_score_is_shown_as_from_the_six_decimals_of_a_file(value: float) -> None:
    """Unrounded, the first and the third would be shown as 41.9."""
    assert shown(value, "macro_f1") == POINTS.shown(value) == "42.0"
    assert POINTS.signed(value) == "+42.0" and POINTS.signed(-value) == f"{MINUS}42.0"


def test_with_unit_leaves_out_a_unit_that_a_metric_lacks() -> None:
    assert with_unit(-0.034, "macro_f1") == f"{MINUS}3.4 points"
    assert with_unit(1.5, "word_perplexity") == "+1.5"


def test_difference_with_interval_is_the_number_alone_without_an_interval() -> None:
    several = of(side(0.5, 0.52, 0.54), side(0.4, 0.41, 0.42))
    single = of(side(0.5), side(0.4))
    interval_text = interval_of_difference(several, "macro_f1")
    assert interval_text
    assert difference_with_interval(several, "macro_f1") == f"+11.0 ({interval_text})"
    assert difference_with_interval(single, "macro_f1") == "+10.0"


@pytest.mark.parametrize(
    "number, text",
    [(0, "0"), (12, "12"), (999, "999"), (999.6, "1k"), (1544, "1.54k"), (2_563_072, "2.56M"),
     (999_999, "1M"), (6.3e13, "63T"), (2e21, "2e+03E")],
)  # fmt: skip
def test_compact(number: float, text: str) -> None:
    assert compact(number) == text


def test_amounts_have_units() -> None:
    assert [seconds(v) for v in (0.84, 61, 720, 12240)] == ["0.84 s", "61 s", "12 min", "3.4 h"]
    assert [milliseconds(v) for v in (0.0042, 0.095, 0.2)] == ["4.2 ms", "95 ms", "0.2 s"]
    assert [memory(v) for v in (400 * 2**20, 3 * 2**30)] == ["400 MiB", "3.0 GiB"]
    assert [energy(v) for v in (0, 1.8, 180, 3.6e7)] == ["0 Wh", "0.5 mWh", "0.05 Wh", "10 kWh"]
    assert [grams(v) for v in (0.00012, 0.05, 1200)] == ["0.12 mg", "0.05 g", "1.2 kg"]


def test_metrics_have_the_names_that_people_write() -> None:
    metrics = ("entity_f1", "squad_f1", "bleu", "chrf", "rouge_l", "bits_per_byte")
    assert [metric_name(metric) for metric in metrics] == [
        *("entity F1", "SQuAD F1", "BLEU", "chrF", "ROUGE L", "bits per byte")
    ]
