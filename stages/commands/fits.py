"""Show which models, tasks and methods go together, as a Markdown table.

A study may list all of them: what does not go together has no trials, and every other trial is
made. "As text" is with ``text_to_text: true``. A public checkpoint is of the architecture that it
is, but that prefix does not fit it.
"""

import argparse
from collections.abc import Iterator
from itertools import product

from stages.adaptation.fit import misfit
from stages.components import build, component_class, names
from stages.methods._method import Method
from stages.models._backbone import Backbone
from stages.params import HUB
from stages.tasks._task import Task
from stages.training.budget import outline

TRANSFORMER = {"d_model": 32, "num_layers": 2, "num_heads": 2, "d_ff": 64}
DIMENSIONS = {"bilstm": {"d_model": 32, "num_layers": 2, "d_cell": 48}}  # of what is none
VOCAB_SIZE = 100
YES, NO = "yes", "-"
AS_TEXT = ", as text"


def main() -> None:
    argparse.ArgumentParser(
        prog="python -m stages.commands.fits",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    print("\n".join(lines()))


def lines() -> Iterator[str]:
    """A row for each task and architecture that some method fits, a column for each method."""
    methods: dict[str, Method] = {
        name: build("methods", {"name": name}, where=name) for name in names("methods")
    }
    yield f"| task | model | {' | '.join(methods)} |"
    yield "|---" * (2 + len(methods)) + "|"
    architectures = [name for name in names("models") if name != HUB]
    for kind, text_to_text in product(names("tasks"), (False, True)):
        task: type[Task] = component_class("tasks", kind, where=kind)
        shown = f"{kind}{AS_TEXT}" if text_to_text else kind
        for architecture in architectures:
            entry = {"name": architecture, **DIMENSIONS.get(architecture, TRANSFORMER)}
            backbone = outline(entry, VOCAB_SIZE, where=architecture)
            cells = [
                YES if _fits(method, task, kind, backbone, text_to_text=text_to_text) else NO
                for method in methods.values()
            ]
            if YES in cells:
                yield f"| {shown} | {architecture} | {' | '.join(cells)} |"


def _fits(
    method: Method, task: type[Task], kind: str, backbone: Backbone, *, text_to_text: bool
) -> bool:
    if text_to_text and method.prompts:
        return False
    return misfit(method, task, kind, backbone, text_to_text=text_to_text) is None


if __name__ == "__main__":
    main()
