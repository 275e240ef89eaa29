"""Tables, numbers and pictures of the report."""

import csv
import io
import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from stages.findings.facts import Estimate
from stages.findings.results import Results
from stages.reporting import formats, pages
from stages.reporting.formats import Labels
from stages.reporting.pictures import comparison, cost, effects
from stages.reporting.svg import Scale, spread
from stages.reporting.table import DASH, Cell, Column, Row, Table
from stages.reporting.view import View
from tests.synthetic_study import RUNS, drawn, raw_params

MINUS = "\N{MINUS SIGN}"
TABLE = Table(
    "scores",
    [Column("Model", "text"), Column("Weights", wide=True), Column("F1", note="macro")],
    [
        Row([Cell("a_b <i>", best=True), Cell("1.3M"), Cell("66.4", best=True, note="62–70")]),
        Row([Cell("50 % & more"), Cell(), Cell(f"{MINUS}3.0", tied=True)], soft=True),
    ],
)


def test_table_escapes_names_and_marks_the_best_in_every_form() -> None:
    assert TABLE.markdown().splitlines() == [
        "| Model | Weights | F1 |",
        "| :-- | --: | --: |",
        r"| **a\_b \<i>** | 1.3M | **66.4** |",
        f"| _50 % & more_ | {DASH} | _{MINUS}3.0_ = |",
    ]
    text = TABLE.html()
    assert "<b>a_b &lt;i&gt;</b>" in text and "<i>" not in text
    assert (text.count('scope="row"'), text.count("<td")) == (2, 2 * 2)
    rows = [*csv.reader(io.StringIO(TABLE.csv()))]
    assert rows[1:] == [["a_b <i>", "1.3M", "66.4"], ["50 % & more", "", "-3.0"]]
    lines = TABLE.latex().splitlines()
    assert lines[0] == r"\begin{tabular}{lrr}"
    assert r"\textbf{a\_b $<$i$>$} & 1.3M & \textbf{66.4} \\" in lines
    assert r"\textit{50 \% \& more} & \textit{--} & \textit{$-$3.0}$^=$ \\" in lines


def test_table_in_a_terminal_cuts_no_number_and_leaves_wide_columns_out() -> None:
    Console(file=(file := io.StringIO()), width=30).print(TABLE.terminal(30))
    head, _, *rows = file.getvalue().splitlines()
    assert [head, *rows] == [
        "Model             F1",
        "a_b <i>         66.4",
        f"50 % & more    {MINUS}3.0=",
    ]


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (formats.shown(0.6644, "macro_f1"), "66.4"),
        (formats.shown(1.23456, "bits_per_byte"), "1.235"),
        (formats.shown(-0.00001, "matthews"), "0.0"),
        (formats.shown(None, "accuracy"), DASH),
        (formats.signed(-0.034, "accuracy"), f"{MINUS}3.4"),
        (formats.signed(0.034, "accuracy"), "+3.4"),
        (formats.interval(Estimate(0.9, 0.7, 1.1), "accuracy"), "70.0 to 100.0"),
        (formats.difference_interval(Estimate(0.9, 0.7, 1.1), "accuracy"), "+70.0 to +100.0"),
        (formats.interval(Estimate(0.9), "accuracy"), ""),
        *((formats.seconds(s), t) for s, t in ((0.0131, "13 ms"), (0.0995, "0.1 s"), (61, "61 s"))),
        *((formats.seconds(s), t) for s, t in ((720, "12 min"), (5940, "1.65 h"), (None, DASH))),
        *((formats.compact(n), t) for n, t in ((2.55e6, "2.55M"), (999.6, "1k"), (2e21, "2e+03E"))),
        *(
            (formats.p_value(p), t)
            for p, t in ((0.0009, "< 0.001"), (0.0123, "0.012"), (1, "1.00"))
        ),
        *((formats.percent(s), t) for s, t in ((0.004, "0.4%"), (0.52, "52%"), (0.0, "0%"))),
        *((formats.memory(n), t) for n, t in ((400 * 2**20, "400 MiB"), (3 * 2**30, "3.0 GiB"))),
        (formats.thousands("1000"), "1,000"),
        (Labels({"minilm": "MiniLM (published)"})["minilm"], "MiniLM (published)"),
        (Labels({})["encoder_mlm"], "encoder MLM"),
    ],
)
def test_formats_are_those_of_a_reader(shown: str, text: str) -> None:
    assert shown == text


# Pictures ------------------------------------------------------------------------------------


@pytest.fixture
def view(five_seeds: Results) -> View:
    return View(five_seeds, {"encoder_mlm": "Encoder & <MLM>"})


def places(text: str, name: str) -> list[float]:
    """Returns the x of the marks of a class, in percent."""
    return [float(x) for x in re.findall(rf'<g class="{name}[^>]*>.*?cx="([\d.]+)%"', text)]


def test_comparison_has_a_panel_for_each_task_and_one_scale(view: View) -> None:
    """Rows are sorted. Equal scores are at equal places in all panels, a higher score is farther
    right, and a line is at the baseline."""
    picture, seen = comparison.picture(view), dict[float, float]()
    means = [row.mean or 0.0 for row in view.models]
    assert means == sorted(means, reverse=True) and len(picture.names) == len(view.models)
    models = [row for row in picture.rows if row["method"] != "classical"]
    assert len(models) == len(view.models) * len(view.tasks)
    for task, panel in zip(view.tasks, picture.panels, strict=True):
        parts = "".join(panel.plot.parts)
        values = [m.scores[task].estimate.value for m in view.models]
        seen |= dict(zip(values, places(parts, "c"), strict=True))
        answer = next(a for a in view.answers if a.task == task)
        (line,) = re.findall(r'class="baseline" x1="([\d.]+)%"', parts)
        assert answer.baseline
        seen[answer.baseline.score.value] = float(line)
    ordered = sorted(seen)
    assert [seen[value] for value in ordered] == sorted(seen.values())
    slopes = [
        (seen[b] - seen[a]) / (b - a) for a, b in zip(ordered, ordered[5:], strict=False) if a < b
    ]
    assert max(slopes) - min(slopes) <= 0.05 * max(slopes)


def test_effects_has_a_mark_for_each_axis_on_the_right_side_of_zero(view: View) -> None:
    picture = effects.picture(view)
    assert picture and len(picture.panels) == len(view.results.effects)
    for panel, row in zip(picture.panels, picture.rows, strict=True):
        parts = "".join(panel.plot.parts)
        ((zero, end),) = re.findall(r'class="zero" x1="([\d.]+)%" .*? x2="([\d.]+)%"', parts)
        (mark,) = places(parts, "(?:un)?sure")
        assert zero == end and (mark > float(zero)) == (row["effect"] > 0)
        assert row["low"] <= row["effect"] <= row["high"]


def test_pictures_stay_inside_their_panels_and_save_four_files(view: View, tmp_path: Path) -> None:
    """Every picture is drawn for models that take unlike times, at two label budgets; that of costs
    is left out where all take as long. Bars contain their marks."""
    assert cost.picture(view) is None
    four = {name: RUNS[name] for name in [*RUNS][:4]}
    results = drawn(raw_params(four, label_budgets=[50, 200], seeds=[1, 2]))
    slow = {
        key: replace(c, wall_time_s=2.0 + 5 * (key.model == "encoder_mlm"))
        for key, c in results.finetuning_costs.items()
    }
    every = pages.pictures(View(replace(results, finetuning_costs=slow)))
    assert [*every] == [*pages.PICTURES]
    assert [panel.title for panel in every["losses"].panels] == ["MLM", "causal"]
    assert 'class="baseline"' in "".join(every["cost"].panels[0].plot.parts)
    for picture in every.values():
        width, *ends = re.findall(r'<svg [^>]*?(?:x="(\d+)")?[^>]*? width="(\d+)"', picture.svg())
        assert ends and all(int(x) + int(own) <= int(width[1]) for x, own in ends)
        assert len({x for x, _ in ends}) == min(picture.columns, len(picture.panels))
        for panel in picture.panels:
            text, height = "".join(panel.plot.parts), panel.plot.height
            across = re.findall(r'\b(?:x1|x2|cx|x)="(-?[\d.]+)%?"', text)
            down = re.findall(r'\b(?:y1|y2|cy|y)="(-?[\d.]+)"', text)
            assert across and all(0 <= float(x) <= 100 for x in across), picture.name
            assert down and all(0 <= float(y) <= height for y in down), picture.name
            bars = re.findall(r'class="bar" x1="([\d.]+)%" x2="([\d.]+)%".*?cx="([\d.]+)%', text)
            for bar in (tuple(map(float, bar)) for bar in bars):
                assert sorted(bar)[1] == bar[2]
            ticks = re.findall(r'class="tick" x="([\d.%]+)" dx="0" y="([\d.]+)"', text)
            assert len(ticks) == len({*ticks}), "no two numbers at one place"
            curves = "".join(re.findall(r'<g class="curve.*?</g>', text))
            ys = [float(y) for y in re.findall(r'y[12]="([\d.]+)"', curves)] or [0, height]
            assert max(ys) - min(ys) > height / 2, picture.name
    picture = comparison.picture(view)
    picture.save(tmp_path)
    svg, png, pdf, table = (tmp_path / f"comparison.{end}" for end in ("svg", "png", "pdf", "csv"))
    assert "Encoder &amp; &lt;MLM&gt;" in svg.read_text("utf-8")
    assert png.read_bytes()[:4] == b"\x89PNG" and pdf.read_bytes()[:5] == b"%PDF-"
    assert len(table.read_text("utf-8").splitlines()) == len(picture.rows) + 1


NUMBERS = st.floats(0.01, 1e6)


@given(NUMBERS, NUMBERS, st.booleans())
def test_scale_keeps_the_order_and_its_ticks_are_on_it(a: float, b: float, log: bool) -> None:
    low, high = sorted((a, b))
    scale = Scale(low, max(high, 1.1 * low), log=log, left=10, right=90)
    assert scale.percent(scale.low) == pytest.approx(10)
    assert scale.percent(scale.high) == pytest.approx(90)
    at = [scale.percent(tick) for tick in scale.ticks()]
    assert at == sorted(at) and len(at) <= 20
    assert all(9.9 <= place <= 90.1 for place in at)


@given(st.lists(st.floats(0, 300), max_size=12))
def test_spread_keeps_labels_apart_and_never_moves_them_up(before: list[float]) -> None:
    moved = spread(before, 14)
    assert all(new >= old for new, old in zip(moved, before, strict=True))
    assert all(b - a >= 13.999 for a, b in itertools.pairwise(sorted(moved)))
