"""The forest: its rows end with the scale, and no two of them look alike."""

from dataclasses import replace

from stages.findings.results import Results
from stages.reporting.figures import forest
from stages.reporting.figures.style import LETTERS, short_names

LONG = "a_name_that_a_generator_wrote_and_that_goes_on_and_on_"


def test_long_names_are_cut_where_they_are_alike() -> None:
    ends = ["encoder_scratch", "decoder_scratch", "encoder_mlm"]
    begins = [f"{end}_{LONG}" for end in ends]
    for names in ([LONG + end for end in ends], begins, [*ends, LONG]):
        short = short_names(names)
        assert [*short] == names
        assert len({*short.values()}) == len(names)
        assert all(len(text) <= LETTERS for text in short.values())
        assert all(short[name] == name for name in names if len(name) <= LETTERS)


def test_long_names_that_differ_in_the_middle_alone_are_numbered() -> None:
    names = [f"{LONG}{i}{LONG}" for i in range(3)]
    assert len({*short_names(names).values()}) == 3


def test_every_row_has_a_label_of_its_own(results: Results) -> None:
    rows = forest.with_heads(forest.rows(results.contrasts))
    labels = [row["label"] for row in rows]
    assert len({*labels}) == len(labels) > len(results.contrasts)
    heads = [row for row in rows if "effect" not in row]
    assert [row["label"].lower() for row in heads] == [
        *dict.fromkeys(c.axis for c in results.contrasts)
    ]


def test_rows_of_long_names_can_be_told_apart(results: Results) -> None:
    """Names are cut on the axis alone; copied texts and tooltips have whole names."""

    def longer(group: str) -> str:
        return LONG + group

    contrasts = [
        replace(
            contrast,
            a=replace(contrast.a, group=longer(contrast.a.group)),
            b=replace(contrast.b, group=longer(contrast.b.group)),
        )
        for contrast in results.contrasts
    ]
    rows = forest.with_heads(forest.rows(contrasts))
    labels = [row["label"] for row in rows]
    assert len({*labels}) == len(labels)
    assert all(len(row["name"]) <= 2 * LETTERS + 40 for row in rows)
    assert all(LONG in row["pair"] for row in rows if "effect" in row)


def test_intervals_end_with_the_scale_and_keep_their_effect(results: Results) -> None:
    variance = results.contrasts[0].effect.variance
    assert variance is not None
    wide = replace(variance, between=replace(variance.between, units=0.5, df=1.0))
    effect = replace(results.contrasts[0].effect, variance=wide)
    assert effect.low is not None and effect.low < -1
    (row,) = forest.rows([replace(results.contrasts[0], effect=effect)])
    assert (row["low"], row["high"]) == (-100, 100)
    assert row["low"] < row["effect"] < row["high"]
