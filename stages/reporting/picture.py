"""A picture of the report: panels with one scale, laid out by the page or in a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import vl_convert
from markupsafe import escape

from stages.core.artifacts import Json
from stages.evaluation.records import write_table
from stages.reporting.svg import Plot, document

LETTER, LINE, GAP = 6.6, 18, 24  # pixels
PER_LINE = 3  # panels side by side


@dataclass(frozen=True)
class Panel:
    """A plot with its title, and a note at the right end of the title's line."""

    plot: Plot
    title: str = ""
    note: str = ""


@dataclass(frozen=True)
class Picture:
    """``name`` is that of its files. ``names`` are those of the rows of all panels, which begin
    ``top`` pixels below the upper end and are ``row`` pixels high. ``key`` has the class of a mark
    and what it means. ``rows`` are the numbers, as CSV."""

    name: str
    title: str
    panels: Sequence[Panel]
    rows: Sequence[Json] = field(repr=False)
    names: Sequence[str] = ()
    row: float = 0
    top: float = 0
    key: Sequence[tuple[str, str]] = ()
    width: float = 250  # of a panel, in a file
    columns: int = PER_LINE
    measured: bool = False  # what it shows differs from machine to machine

    @property
    def folder(self) -> str:
        """The folder of its files in reports/figures/."""
        return "measured" if self.measured else "more"

    @property
    def lines(self) -> list[Sequence[Panel]]:
        """The panels, line by line."""
        step = self.columns
        return [self.panels[i : i + step] for i in range(0, len(self.panels), step)]

    def svg(self, *, dark: bool = False) -> str:
        """Returns the picture as a file of its own, for printing or for screens (``dark``)."""
        left = 20 + (max(map(len, self.names)) * LETTER + 12 if self.names else 0)
        columns = min(self.columns, len(self.panels))
        width = left + columns * (self.width + GAP)
        parts = [f'<text class="strong" x="20" y="28" font-size="15">{escape(self.title)}</text>']
        y, x = 40.0, 20.0
        for name, text in self.key:
            parts.append(f'<g class="{name}"><circle cx="{x + 6:.0f}" cy="{y + 7}" r="5"/></g>')
            parts.append(f'<text class="soft" x="{x + 16:.0f}" y="{y + 11}">{escape(text)}</text>')
            x += 34 + LETTER * len(text)
        y += LINE + 6 if self.key else 4
        for line in self.lines:
            if any(panel.title for panel in line):
                y += LINE
            for number, panel in enumerate(line):
                x = left + number * (self.width + GAP)
                title, end = escape(panel.title), x + self.width
                parts.append(f'<text class="strong" x="{x:.0f}" y="{y - 5:.0f}">{title}</text>')
                if panel.note:
                    note = f'x="{end:.0f}" y="{y - 5:.0f}" text-anchor="end"'
                    parts.append(f'<text class="soft" {note}>{escape(panel.note)}</text>')
                parts.append(panel.plot.placed(x, y, self.width))
            for number, name in enumerate(self.names):
                at = y + self.top + self.row * (number + 0.5) + 4
                parts.append(f'<text x="20" y="{at:.1f}">{escape(name)}</text>')
            y += max(panel.plot.height for panel in line) + 12
        width = max(width, x if self.key else 0)
        return document(parts, width, y + 4, dark=dark)

    def save(self, folder: Path) -> None:
        """Writes NAME.svg, .png, .pdf and .csv."""
        (folder / f"{self.name}.svg").write_text(self.svg(dark=True), encoding="utf-8")
        svg = self.svg()
        (folder / f"{self.name}.png").write_bytes(vl_convert.svg_to_png(svg, scale=2))
        (folder / f"{self.name}.pdf").write_bytes(vl_convert.svg_to_pdf(svg))
        columns: Mapping[str, None] = {key: None for row in self.rows for key in row}
        write_table(folder / f"{self.name}.csv", [*columns], self.rows)
