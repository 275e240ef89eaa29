import pytest

from stages.reporting.number_format import (
    DASH,
    compact,
    energy,
    formatted,
    grams,
    memory,
    metric_name,
    milliseconds,
    seconds,
)


def test_formatted_has_a_minus_sign_and_a_dash_for_none() -> None:
    assert [formatted(v, "+.2f") for v in (0.5, -0.5, None)] == [
        "+0.50",
        "\N{MINUS SIGN}0.50",
        DASH,
    ]
    assert formatted(-0.031, ".0%") == "\N{MINUS SIGN}3%"


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
    assert [energy(v) for v in (0, 3.6, 1440, 3.6e7)] == ["0 Wh", "1 mWh", "0.4 Wh", "10 kWh"]
    assert [grams(v) for v in (0.0012, 5.0, 1200)] == ["1.2 mg", "5 g", "1.2 kg"]


def test_metrics_have_the_names_that_people_write() -> None:
    metrics = ("entity_f1", "squad_f1", "bleu", "chrf", "rouge_l", "bits_per_byte")
    assert [metric_name(metric) for metric in metrics] == [
        *("entity F1", "SQuAD F1", "BLEU", "chrF", "ROUGE L", "bits per byte")
    ]
