"""Interactive charts on the page: Vega-Lite specifications, their colours, and the runtime.

The page contains the runtime (the scripts that draw charts), so that it works offline. Where
scripts are off, and on paper, a picture replaces each chart.
"""

import json
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

import vl_convert
from markupsafe import Markup

from stages.core import paths
from stages.core.artifacts import replacing
from stages.reporting.figures import forest, style
from stages.reporting.figures.gallery import can_draw
from stages.reporting.figures.style import Spec

BUNDLES = paths.SCRATCH / "vega"
# The CSS variable for each colour of the charts: the page has two themes.
VARIABLES = {
    style.INK: "var(--ink)",
    style.MUTED: "var(--muted)",
    style.GRID: "var(--line)",
    style.PAPER: "var(--paper)",
    style.BASELINE: "var(--baseline)",
    forest.YES: "var(--yes)",
    forest.PART: "var(--part)",
    **{colour: f"var(--c{i})" for i, colour in enumerate(style.PALETTE)},
}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"
SYMBOLS = dict(zip(style.SHAPES, "\u25cf\u25c6\u25b2\u25a0\u271a\u25bc", strict=True))
LINE, BRACKET, DOTTED = "\u25ac", "\u2503", "\u250a"


@cache
def runtime() -> Markup:
    """Returns Vega, Vega-Lite and Vega-Embed as one script, whose only global name is
    ``vegaEmbed``. Bundling takes seconds, so it is done once for each version of vl-convert.

    The script is empty if this process cannot draw; the page then has no charts."""
    if not can_draw():
        return Markup("")
    bundle = BUNDLES / f"{version('vl-convert-python')}.js"
    if not bundle.exists():
        with replacing(bundle) as new:
            script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
            new.write_text(script, encoding="utf-8")
    script = bundle.read_text(encoding="utf-8")
    return Markup("(() => {" + script.replace("</script", "<\\/script") + "\n})();")


def as_json(value: object) -> Markup:
    """Returns JSON for a script element, with "<" escaped so that no name can end it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return Markup(text.replace("<", "\\u003c"))


def chart(wide: Spec, narrow: Spec | None = None) -> Markup:
    """Returns the wide and the narrow form of a chart and their shared data, as JSON."""
    narrow = wide if narrow is None else narrow
    data = _replaced(wide["datasets"])
    return as_json({"data": data, "wide": _themed(wide), "narrow": _themed(narrow)})


def _themed(spec: Spec) -> Spec:
    """Returns a specification in the page's colours and font, without a legend: the page has the
    legend as text, which fits any width. Marks need no labels for screen readers, because the box
    of the chart has one."""
    own = {"background": "transparent", "font": FONT, "padding": 2}
    config = spec["config"] | own | {"mark": {"aria": False}}
    parts = {key: value for key, value in spec.items() if key not in ("datasets", "$schema")}
    fit = {"type": "fit-x", "contains": "padding"}
    return _replaced(_without_legends(parts) | {"config": config, "autosize": fit})


def _without_legends(node: Any) -> Any:
    if isinstance(node, dict):
        return {k: None if k == "legend" else _without_legends(v) for k, v in node.items()}
    return [_without_legends(value) for value in node] if isinstance(node, list) else node


def _replaced(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _replaced(value) for key, value in node.items()}
    if isinstance(node, Sequence) and not isinstance(node, str):
        return [_replaced(value) for value in node]
    return VARIABLES.get(node, node) if isinstance(node, str) else node
