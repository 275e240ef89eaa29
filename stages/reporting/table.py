"""A table of the report, rendered as Markdown, HTML, terminal text, CSV and LaTeX."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from markupsafe import Markup
from rich import box
from rich import table as rich_table
from rich.text import Text

GUTTER, SHORTEST = 3, 12  # of a terminal: between columns, and of a cut text
DASH = "\N{EN DASH}"  # a value that is unknown or does not exist
LATEX = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"<": "$<$", ">": "$>$"},
    **{DASH: "--", "\N{MINUS SIGN}": "$-$", "\N{MULTIPLICATION SIGN}": r"$\times$"},
}


@dataclass(frozen=True)
class Column:
    """A column of texts (aligned left) or of numbers (aligned right).

    ``note`` is a second, smaller line of the heading. A ``wide`` column is left out on phones and
    in terminals.
    """

    title: str
    kind: Literal["text", "number"] = "number"
    note: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Cell:
    """A text as a reader sees it; ``best`` is bold, ``tied`` is not significantly worse than the
    best, and ``note`` is a second, smaller line of the page."""

    text: str = DASH
    best: bool = False
    tied: bool = False
    note: str = ""


@dataclass(frozen=True)
class Row:
    """A line of a table; ``soft`` lines (baselines) are in italics."""

    cells: Sequence[Cell]
    soft: bool = False


@dataclass(frozen=True)
class Table:
    """A table, whose files in reports/tables/ are called ``name``."""

    name: str
    columns: Sequence[Column]
    rows: Sequence[Row] = field(repr=False)

    @staticmethod
    def of(name: str, columns: Sequence[Column], rows: Sequence[Sequence[str | Cell]]) -> "Table":
        """Returns a table of lines of texts or cells."""
        lines = [[c if isinstance(c, Cell) else Cell(c) for c in row] for row in rows]
        return Table(name, columns, [Row(line) for line in lines])

    def markdown(self) -> Markup:
        heads = [_markdown(column.title) for column in self.columns]
        aligned = [":--" if column.kind == "text" else "--:" for column in self.columns]
        lines = [heads, aligned]
        for row in self.rows:
            lines.append([])
            for cell in row.cells:
                mark = "**" if cell.best else "_" if row.soft and cell.text != DASH else ""
                tied = " =" if cell.tied else ""
                lines[-1].append(f"{mark}{_markdown(cell.text)}{mark}{tied}")
        text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return Markup(text + "\n")  # noqa: S704

    def html(self) -> Markup:
        """Returns a table whose first column is the heading of each row."""

        def element(tag: str, text: str, note: str, classes: Sequence[str]) -> Markup:
            attribute = Markup(' class="{}"').format(" ".join(classes)) if classes else ""
            small = Markup("<small>{}</small>").format(note) if note else ""
            name = tag.partition(" ")[0]
            return Markup("<{}{}>{}{}</{}>").format(Markup(tag), attribute, text, small, name)

        def classes(column: Column, *others: str) -> list[str]:
            about = ["text" * (column.kind == "text"), "wide" * column.wide]
            return [name for name in (*about, *others) if name]

        heads = Markup().join(
            element('th scope="col"', c.title, c.note, classes(c)) for c in self.columns
        )
        lines = []
        for row in self.rows:
            cells = []
            for number, (column, cell) in enumerate(zip(self.columns, row.cells, strict=True)):
                text = Markup("<b>{}</b>").format(cell.text) if cell.best else cell.text
                tag = "td" if number else 'th scope="row"'
                cells.append(element(tag, text, cell.note, classes(column, "tied" * cell.tied)))
            soft = Markup(' class="soft"') if row.soft else ""
            lines.append(Markup("<tr{}>{}</tr>\n").format(soft, Markup().join(cells)))
        form = "<table><thead><tr>{}</tr></thead><tbody>\n{}</tbody></table>\n"
        return Markup(form).format(heads, Markup().join(lines))

    def terminal(self, width: int) -> rich_table.Table:
        """Returns the table for a terminal of ``width`` columns, without the columns that are only
        for wide screens. Texts are cut, numbers never."""
        shown = rich_table.Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        kept = [i for i, column in enumerate(self.columns) if not column.wide]
        lengths = {i: max((len(r.cells[i].text) + 1 for r in self.rows), default=1) for i in kept}
        for i in kept:
            if self.columns[i].kind == "number":
                lengths[i] = max(lengths[i], *map(len, self.columns[i].title.split()))
                width -= lengths[i] + GUTTER
        for i in kept:
            column = self.columns[i]
            right = column.kind == "number"
            room = lengths[i] if right else min(lengths[i], max(width, SHORTEST))
            justify: Literal["left", "right"] = "right" if right else "left"
            shown.add_column(column.title, justify=justify, no_wrap=not right, width=room)
        for row in self.rows:
            cells = [row.cells[i] for i in kept]
            texts = [
                Text(cell.text + ("=" if cell.tied else ""), "bold" if cell.best else "")
                for cell in cells
            ]
            shown.add_row(*texts, style="dim" if row.soft else "")
        return shown

    def csv(self) -> str:
        """Returns what a reader sees, as CSV. Numbers have a hyphen for their minus sign."""
        file = io.StringIO(newline="")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([column.title for column in self.columns])
        for row in self.rows:
            texts = ["" if cell.text == DASH else cell.text for cell in row.cells]
            writer.writerow([text.replace("\N{MINUS SIGN}", "-") for text in texts])
        return file.getvalue()

    def latex(self) -> str:
        """Returns a tabular of LaTeX, with the rules of booktabs."""
        aligned = "".join("l" if column.kind == "text" else "r" for column in self.columns)
        lines = [" & ".join(_latex(column.title) for column in self.columns)]
        for row in self.rows:
            texts = []
            for cell in row.cells:
                text = _latex(cell.text)
                text = f"\\textbf{{{text}}}" if cell.best else text
                text = f"\\textit{{{text}}}" if row.soft else text
                texts.append(f"{text}$^=$" if cell.tied else text)
            lines.append(" & ".join(texts))
        head, *body = (f"{line} \\\\\n" for line in lines)
        rules = f"\\toprule\n{head}\\midrule\n{''.join(body)}\\bottomrule\n"
        return f"\\begin{{tabular}}{{{aligned}}}\n{rules}\\end{{tabular}}\n"


def _markdown(text: str) -> str:
    return re.sub(r"([\\*_`|<\[\]])", r"\\\1", " ".join(text.split()))


def _latex(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in text)
