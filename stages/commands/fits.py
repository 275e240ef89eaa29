"""Show which models, tasks and methods go together, as a Markdown table.

A study may list all of them: what does not go together has no trials, and every other trial is
made. A public checkpoint is of the architecture that it is, but that prefix does not fit it.
"""

import argparse
from collections.abc import Iterator

from stages.adaptation.fit import misfit
from stages.components import build, component_class, names
from stages.methods._method import Method
from stages.params import HUB
from stages.tasks._task import Task
from stages.training.budget import outline

TRANSFORMER = {"d_model": 32, "num_layers": 2, "num_heads": 2, "d_ff": 64}
DIMENSIONS = {"bilstm": {"d_model": 32, "num_layers": 2, "d_cell": 48}}  # of what is none
VOCAB_SIZE = 100
YES, NO = "yes", "-"


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
    for kind in names("tasks"):
        task: type[Task] = component_class("tasks", kind, where=kind)
        for architecture in names("models"):
            if architecture == HUB:
                continue
            entry = {"name": architecture, **DIMENSIONS.get(architecture, TRANSFORMER)}
            backbone = outline(entry, VOCAB_SIZE, where=architecture)
            cells = [
                NO if misfit(method, task, kind, backbone) else YES for method in methods.values()
            ]
            if YES in cells:
                yield f"| {kind} | {architecture} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
