import pytest

from stages.findings.facts import Estimate
from stages.reporting import formats
from stages.reporting.formats import Labels
from stages.reporting.table import DASH


def test_shown_is_in_the_unit_of_the_metric() -> None:
    assert formats.shown(0.6644, "macro_f1") == "66.4"
    assert formats.shown(1.23456, "bits_per_byte") == "1.235"
    assert formats.shown(-0.00001, "matthews") == "0.0"
    assert formats.shown(None, "accuracy") == DASH


def test_signed_has_a_minus_sign_that_is_no_hyphen() -> None:
    assert formats.signed(-0.034, "accuracy") == "\N{MINUS SIGN}3.4"
    assert formats.signed(0.034, "accuracy") == "+3.4"


def test_interval_is_cut_at_the_ends_of_the_scale() -> None:
    assert formats.interval(Estimate(0.9, 0.7, 1.1), "accuracy") == "70.0 to 100.0"
    assert formats.difference_interval(Estimate(0.9, 0.7, 1.1), "accuracy") == "+70.0 to +100.0"
    assert formats.interval(Estimate(0.9), "accuracy") == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0131, "13 ms"), (0.8, "0.8 s"), (61, "61 s"), (720, "12 min"), (12240, "3.4 h")],
)
def test_seconds_has_two_or_three_digits(value: float, text: str) -> None:
    assert formats.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(2_550_000, "2.55M"), (999.6, "1k"), (12, "12"), (None, DASH)]
)
def test_compact_has_three_digits(value: float | None, text: str) -> None:
    assert formats.compact(value) == text


def test_labels_default_to_the_key_with_blanks() -> None:
    labels = Labels({"minilm": "MiniLM (published)"})
    assert labels["minilm"] == "MiniLM (published)"
    assert labels["encoder_mlm"] == "encoder MLM" and labels["tfidf"] == "TF-IDF"
