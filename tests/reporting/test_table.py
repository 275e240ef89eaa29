import csv
import io

from rich.console import Console

from stages.reporting.table import DASH, Cell, Column, Row, Table

TABLE = Table(
    "scores",
    [Column("Model", "text"), Column("Weights", wide=True), Column("F1", note="macro")],
    [
        Row([Cell("a_b <i>", best=True), Cell("1.3M"), Cell("66.4", best=True, note="62–70")]),
        Row([Cell("50 % & more"), Cell(), Cell("\N{MINUS SIGN}3.0", tied=True)], soft=True),
    ],
)


def test_table_markdown_escapes_names_and_marks_the_best() -> None:
    assert TABLE.markdown().splitlines() == [
        "| Model | Weights | F1 |",
        "| :-- | --: | --: |",
        r"| **a\_b \<i>** | 1.3M | **66.4** |",
        f"| _50 % & more_ | {DASH} | _\N{MINUS SIGN}3.0_ = |",
    ]


def test_table_html_escapes_names_and_has_a_heading_for_each_row() -> None:
    text = TABLE.html()
    assert "<b>a_b &lt;i&gt;</b>" in text and "<i>" not in text
    assert text.count('scope="row"') == len(TABLE.rows)
    assert text.count("<td") == len(TABLE.rows) * (len(TABLE.columns) - 1)


def test_table_csv_has_the_numbers_as_shown() -> None:
    rows = [*csv.reader(io.StringIO(TABLE.csv()))]
    assert rows[1] == ["a_b <i>", "1.3M", "66.4"]
    assert rows[2][1] == "" and float(rows[2][2]) == -3


def test_table_latex_escapes_what_latex_would_run() -> None:
    lines = TABLE.latex().splitlines()
    assert lines[0] == r"\begin{tabular}{lrr}"
    assert r"\textbf{a\_b $<$i$>$} & 1.3M & \textbf{66.4} \\" in lines
    assert r"\textit{50 \% \& more} & \textit{--} & \textit{$-$3.0}$^=$ \\" in lines


def test_table_terminal_cuts_no_number_and_leaves_wide_columns_out() -> None:
    file = io.StringIO()
    Console(file=file, width=30).print(TABLE.terminal(30))
    assert "66.4" in file.getvalue() and "1.3M" not in file.getvalue()
    assert max(map(len, file.getvalue().splitlines())) <= 30
