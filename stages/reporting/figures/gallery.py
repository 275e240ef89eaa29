"""All figures of the report, and the functions that draw them offline."""

import resource
import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import vl_convert

from stages.findings import answers
from stages.findings.results import Results
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
# Shown instead of a figure that cannot be drawn; a viewer scales it.
NOT_DRAWN = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 60" font-size="14"
font-family="sans-serif"><text x="10" y="25">Not drawn: a limit of the report's process
<tspan x="10" y="45">(ulimit -v) allows too little address space.</tspan></text></svg>"""
TINY = {"mark": "point", "data": {"values": [{}]}}


def pictures(results: Results) -> dict[str, Picture]:
    """Returns a function for each figure of the report, by the name of its file. The function makes
    the figure's specification, which ``draw`` draws."""
    scores = results.scores
    losses = loss_curves.Losses(results.groups, results.params.runs, results.progress)
    pictures: dict[str, Picture] = {
        "comparison": partial(score_dots.comparison, scores),
        "forest": partial(forest.forest, results.contrasts),
        **loss_curves.pictures(scores, losses),
        **label_budgets.pictures(scores, results.num_labels),
    }
    for (task, budget), best in results.best_runs[None].items():
        rivals = answers.rivals(best, scores, results.contrasts_of, results.outside)
        pictures[f"scores_{task}_{budget}"] = partial(score_dots.task_scores, scores, rivals)
        pictures |= epoch_curves.pictures(scores, results.curves, task, budget)
        pictures |= trade_offs.pictures(scores, task, budget)
    return pictures


@cache
def can_draw() -> bool:
    """Returns whether this process can draw.

    The renderer's V8 reserves many times the address space that it uses, and aborts its process if
    a limit (``ulimit -v``, or a batch system's) does not allow that. If there is a limit, a child
    process tries to draw.
    """
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        return True
    trial = f"import vl_convert; vl_convert.vegalite_to_svg({TINY!r})"
    return subprocess.run([sys.executable, "-c", trial], capture_output=True).returncode == 0


def draw(picture: Picture, *, svg: Path, png: Path) -> str:
    """Writes a picture to both files and returns the SVG. Needs no browser and no network.

    If this process cannot draw, the SVG says so and there is no PNG.
    """
    drawn = vl_convert.vegalite_to_svg(picture()) if can_draw() else NOT_DRAWN
    svg.write_text(drawn + "\n", encoding="utf-8")
    if can_draw():
        png.write_bytes(vl_convert.svg_to_png(drawn, scale=2))
    return drawn
