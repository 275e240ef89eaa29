"""All figures of the report, and how they are drawn: offline."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import vl_convert

from stages.core.artifacts import replacing
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


def pictures(results: Results) -> dict[str, Picture]:
    """Every figure of the report, by the name of its file; ``draw`` draws one."""
    scores = results.scores
    losses = loss_curves.Losses(results.groups, results.params.runs, results.progress)
    pictures: dict[str, Picture] = {
        "comparison": partial(score_dots.comparison, scores),
        "forest": partial(forest.forest, results.contrasts),
        **loss_curves.pictures(scores, losses),
        **label_budgets.pictures(scores, results.num_labels),
    }
    for (task, budget), best in results.best_runs[None].items():
        rivals = answers.rivals(best, scores, results.contrasts_of)
        pictures[f"scores_{task}_{budget}"] = partial(score_dots.task_scores, scores, rivals)
        pictures |= epoch_curves.pictures(scores, results.curves, task, budget)
        pictures |= trade_offs.pictures(scores, task, budget)
    return pictures


def draw(picture: Picture, *, svg: Path, png: Path) -> str:
    """Write both files; returns the SVG. Needs no browser and no network."""
    drawn = vl_convert.vegalite_to_svg(picture())
    with replacing(svg) as temporary:
        temporary.write_text(drawn + "\n", encoding="utf-8")
    with replacing(png) as temporary:
        temporary.write_bytes(vl_convert.svg_to_png(drawn, scale=2))
    return drawn
