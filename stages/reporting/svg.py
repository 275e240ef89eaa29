"""Pictures of the report as SVG: panels side by side, each with a plot, in which x is in percent of
its width and y in pixels.

Text keeps its size at every width, so that one plot serves a phone, a screen and a printed file.
Colours come from the classes of ``file_style``, for which the page has its own.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import vl_convert
from markupsafe import Markup, escape

from stages.core.artifacts import Json
from stages.evaluation.records import write_table

# Of Okabe and Ito's palette, darkened to be read on white, and lighter ones for the dark.
COLOURS = ("#1f66b0", "#b8500b", "#1b7a5b", "#a3417f", "#7a6200", "#0f7f93")
LIGHTER = ("#78b1ee", "#f39a55", "#5cc9a2", "#e58fc4", "#d6bf5a", "#5fcbdc")


def file_style(
    ink: str, soft: str, grid: str, paper: str, band: str, pair: str, colours: Sequence[str]
) -> str:
    """Returns the rules of a file's classes."""
    # One font weight: with two, the order of the fonts in a PDF is random.
    return (
        f"text{{fill:{ink}}} .tick,.soft{{fill:{soft};color:{soft}}} .paper{{fill:{paper}}} "
        f".strong{{stroke:{ink};stroke-width:.45px}} "
        f".grid{{stroke:{grid}}} .zero{{stroke:{soft}}} .band{{fill:{band}}} "
        f".baseline{{stroke:{soft};stroke-dasharray:4 3;stroke-width:1.5}} "
        f".unsure{{color:{soft}}} .sure{{color:{ink}}} .bar{{stroke:currentColor;stroke-width:2}} "
        f".curve{{stroke:currentColor;stroke-width:1.75}} .dashed{{stroke-dasharray:5 3}} "
        "circle{fill:currentColor;stroke:currentColor;stroke-width:2} "
        f".hollow circle{{fill:{paper}}} .pair{{fill:{pair};stroke:none}} "
        + " ".join(f".c{i}{{color:{colour}}}" for i, colour in enumerate(colours))
    )


LIGHT = file_style("#16191d", "#5a626c", "#e3e6ea", "#ffffff", "#e9eaec", "#b5babf", COLOURS)
DARK = file_style("#e9ecef", "#a3acb6", "#30363d", "#14171b", "#23282e", "#565d66", LIGHTER)
FONT = "Arial, Helvetica, Liberation Sans, sans-serif"  # Liberation Sans is what vl-convert has
LETTER, LINE, GAP = 6.6, 18, 24  # pixels
PER_LINE = 3  # panels side by side


class Scale:
    """A scale from ``low`` to ``high`` over the percents ``left`` to ``right`` of a plot."""

    def __init__(
        self, low: float, high: float, *, log: bool = False, left: float = 0, right: float = 100
    ) -> None:
        self.low, self.high, self.log, self.left, self.right = low, high, log, left, right

    def percent(self, value: float) -> float:
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        share = (at - low) / (high - low) if high > low else 0.5
        return self.left + (self.right - self.left) * share

    def __call__(self, value: float) -> str:
        return f"{self.percent(value):.2f}%"

    def ticks(self, number: int = 5) -> list[float]:
        """Returns about ``number`` round values on the scale."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            powers = [10.0**power for power in range(first, last + 1)]
            every = [digit * power for power in powers for digit in (1, 2, 5)]
            inside = [value for value in every if self.low <= value <= self.high]
            tens = [value for value in inside if value in powers]
            return tens if len(inside) > 2 * number and len(tens) > 1 else inside
        rough = max(self.high - self.low, 1e-9) / number
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * digit for digit in (1, 2, 5, 10) if power * digit >= rough * 0.999)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [step * number for number in range(first, last + 1)]


class Plot:
    """One panel of a picture."""

    def __init__(self, height: float, label: str) -> None:
        self.height, self.label = height, label
        self.parts: list[str] = []

    def add(self, *parts: str) -> None:
        self.parts += parts

    def line(self, name: str, x1: object, y1: float, x2: object, y2: float) -> None:
        ends = f'x1="{x1}" y1="{y1:.1f}" x2="{x2}" y2="{y2:.1f}"'
        self.add(f'<line class="{name}" {ends}/>')

    def text(
        self, name: str, x: object, y: float, text: str, *, anchor: str = "start", dx: float = 0
    ) -> None:
        where = f'x="{x}" dx="{dx}" y="{y:.1f}" text-anchor="{anchor}"'
        self.add(f'<text class="{name}" {where}>{escape(text)}</text>')

    def mark(
        self, name: str, x: object, y: float, title: str, ends: tuple[object, object] | None = None
    ) -> None:
        """Adds a mark, with the horizontal bar of its interval."""
        bar = ""
        if ends:
            low, high = ends
            bar = f'<line class="bar" x1="{low}" x2="{high}" y1="{y:.1f}" y2="{y:.1f}"/>'
        circle = f'<circle cx="{x}" cy="{y:.1f}" r="5"/>'
        self.add(f'<g class="{name}"><title>{escape(title)}</title>{bar}{circle}</g>')

    def grid(self, scale: Scale, top: float, bottom: float, number: int = 5) -> None:
        """Adds vertical lines at about ``number`` ticks of a scale, with numbers below."""
        for value in scale.ticks(number):
            self.line("grid", scale(value), top, scale(value), bottom)
            text = f"{round(value, 10):g}".replace("-", "\N{MINUS SIGN}")
            self.text("tick", scale(value), bottom + 15, text, anchor="middle")

    def curve(self, name: str, points: Iterable[tuple[float, float]], x: Scale) -> None:
        """Adds a line through points (value on the scale, pixels), piece by piece, because the
        points of a path have no percents."""
        points = [*points]
        pieces = [
            f'<line x1="{x(a)}" y1="{y1:.1f}" x2="{x(b)}" y2="{y2:.1f}"/>'
            for (a, y1), (b, y2) in zip(points, points[1:], strict=False)
        ]
        self.add(f'<g class="{name}">{"".join(pieces)}</g>')

    def html(self) -> Markup:
        form = '<svg role="img" aria-label="{}" width="100%" height="{}">{}</svg>'
        return Markup(form).format(self.label, f"{self.height:.0f}", Markup("".join(self.parts)))

    def placed(self, x: float, y: float, width: float) -> str:
        """Returns the plot at a place of a file; sizes are in pixels."""
        size = f'x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{self.height:.0f}"'
        return f'<svg {size} overflow="visible">{"".join(self.parts)}</svg>'


def document(parts: Sequence[str], width: float, height: float, *, dark: bool) -> str:
    """Returns an SVG file, for printing or (``dark``) for screens, which may be dark."""
    style = f"{LIGHT} @media (prefers-color-scheme:dark){{{DARK}}}" if dark else LIGHT
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{FONT}" font-size="12.5">'
        f'<style>{style}</style><rect class="paper" width="100%" height="100%"/>'
        f"{''.join(parts)}</svg>\n"
    )


def spread(places: Sequence[float], distance: float) -> list[float]:
    """Returns places of labels, in pixels, moved down as far as needed to be ``distance`` apart."""
    moved, last = [0.0] * len(places), -math.inf
    for i in sorted(range(len(places)), key=lambda i: places[i]):
        moved[i] = last = max(places[i], last + distance)
    return moved


@dataclass(frozen=True)
class Panel:
    """A plot with its title, and a note at the right end of the title's line."""

    plot: Plot
    title: str = ""
    note: str = ""


@dataclass(frozen=True)
class Picture:
    """A picture, whose files are called ``name``. ``names`` label the rows of all panels, which
    begin ``top`` pixels below the upper end and are ``row`` pixels high. ``key`` has the class of a
    mark and what it means. ``rows`` are the numbers, as CSV."""

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
