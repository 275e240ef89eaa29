"""All figures of the report, and how they are drawn: offline."""

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import vl_convert

from stages.core.artifacts import replacing
from stages.reporting.comparison.best_runs import best_runs
from stages.reporting.comparison.results import Results
from stages.reporting.figures import (
    epoch_curves,
    forest,
    label_budgets,
    loss_curves,
    score_dots,
    trade_offs,
)
from stages.reporting.figures.style import Spec

Picture = Callable[[], Spec]


def pictures(results: Results) -> dict[str, Picture]:
    """Every figure of the report, by the name of its file; ``draw`` draws one."""
    found: dict[str, Picture] = {
        "comparison": partial(score_dots.comparison, results),
        "forest": partial(forest.forest, results),
        **loss_curves.pictures(results),
        **label_budgets.pictures(results),
    }
    best = best_runs(results)
    for task, budget in product(results.params.tasks, results.label_budgets):
        found[f"scores_{task}_{budget}"] = partial(score_dots.scores, results, best[task, budget])
        found |= epoch_curves.pictures(results, task, budget)
        found |= trade_offs.pictures(results, task, budget)
    return found


def draw(picture: Picture, *, svg: Path, png: Path) -> str:
    """Write both files; returns the SVG. Needs no browser and no network."""
    drawn = vl_convert.vegalite_to_svg(picture())
    with replacing(svg) as temporary:
        temporary.write_text(drawn + "\n", encoding="utf-8")
    with replacing(png) as temporary:
        temporary.write_bytes(vl_convert.svg_to_png(drawn, scale=2))
    return drawn
