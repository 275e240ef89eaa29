"""Repetitions: runs of params.yaml whose entries differ only in ``seed``."""

from collections import Counter, defaultdict
from collections.abc import Mapping

from stages.core.params import Run


def repetitions(runs: Mapping[str, Run]) -> list[tuple[str, ...]]:
    """Returns the groups of runs that repeat one another, each as names in the order of
    params.yaml."""

    def kind(name: str) -> str:
        """Returns the entries of a run and its ancestors, without their seeds."""
        if name not in runs:
            return name
        run = runs[name]
        seed = run.seed if run.as_published else 0  # seeds do not vary a public checkpoint
        return repr(run.model_copy(update={"seed": seed, "parent": kind(run.parent)}))

    members: dict[tuple[str, int], list[str]] = defaultdict(list)
    seen: Counter[tuple[str, int]] = Counter()
    for name, run in runs.items():
        repetition = kind(name), run.seed
        members[kind(name), seen[repetition]].append(name)  # a repeated seed begins another group
        seen[repetition] += 1
    return [tuple(names) for names in members.values()]
