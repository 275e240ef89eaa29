"""Show which models, tasks and methods go together, as a Markdown table.

A study may list all of them: only compatible combinations get trials. "As text" means
``text_to_text: true``. A public checkpoint counts as its architecture, except that the method
prefix does not fit it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby, product

from stages.commands._parser import parser_of
from stages.core.params import HUB
from stages.methods._method import METHODS, Method
from stages.models._backbone import MODELS, Backbone, outline
from stages.tasks._task import TASKS, Task
from stages.trials.compatibility import incompatibility

D_MODEL, VOCAB_SIZE = 64, 100
YES, NO = "yes", "-"
AS_TEXT = ", as text"


def main() -> None:
    parser_of("fits", __doc__).parse_args()
    print("\n".join(lines()))


@dataclass(frozen=True)
class Combination:
    """A task (as it is, or as text) with an architecture and a method."""

    kind: str
    text_to_text: bool
    architecture: str
    method: str

    @property
    def task(self) -> str:
        return f"{self.kind}{AS_TEXT}" if self.text_to_text else self.kind

    def reason(self) -> str | None:
        """Returns why the three do not go together, or None if they do."""
        method: Method = METHODS.build({"name": self.method}, where=self.method)
        task: type[Task] = TASKS.find(self.kind, where=self.kind)
        backbone = _outline(self.architecture)
        return incompatibility(method, task, self.kind, backbone, text_to_text=self.text_to_text)


@cache
def _outline(architecture: str) -> Backbone:
    """Returns a model without weights, which all cells with this architecture share."""
    return outline({"name": architecture, "d_model": D_MODEL}, VOCAB_SIZE, where=architecture)


def cells() -> list[Combination]:
    architectures = [name for name in MODELS.names() if name != HUB]
    combinations = product(TASKS.names(), (False, True), architectures, METHODS.names())
    return [Combination(*values) for values in combinations]


def lines() -> Iterator[str]:
    """Yields a row for each task and architecture that some method fits, with a column for each
    method."""
    methods = METHODS.names()
    yield f"| task | model | {' | '.join(methods)} |"
    yield "|---" * (2 + len(methods)) + "|"
    for (task, architecture), row in groupby(cells(), key=lambda c: (c.task, c.architecture)):
        fitting = [YES if cell.reason() is None else NO for cell in row]
        if YES in fitting:
            yield f"| {task} | {architecture} | {' | '.join(fitting)} |"


if __name__ == "__main__":
    main()
