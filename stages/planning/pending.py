"""The stages that ``dvc repro`` would run.

``dvc status`` and ``dvc repro --dry`` list the stages whose command, dependencies or outputs differ
from dvc.lock now, but not the stages whose dependencies change only when an earlier stage runs. So
all stages that follow a changed stage in DVC's own graph are added here.

For two stages this rule would add too much. Any edit of params.yaml or below ``stages/`` runs the
root stage, which writes the plan of every stage. Making plans is quick, so they are made here,
outside of ``data/``, and only stages whose plan differs from the one in dvc.lock are added. And a
new run or corpus runs ``record_inputs``, but the pretraining of a run is only added if the inputs
of this run change.

The result is the most that would run: a stage that writes the same outputs as before does not make
DVC run the stages after it, and DVC takes outputs that it has computed before from its run cache.
"""

import hashlib
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stages.core import paths
from stages.core.artifacts import read_json
from stages.core.params import NONE, Params
from stages.core.plans import Plan
from stages.planning.stage_plans import corpus_inputs, model_inputs, plans, write_plans

ROOT, INPUTS = "resolve", "record_inputs"


def pending(params: Params) -> dict[str, list[str]]:
    """Returns the stages that would run, in the order of ``dvc repro``, each with the pending
    stages that it depends on; empty if all is up to date.

    Raises ValueError if DVC fails.
    """
    from networkx import dfs_postorder_nodes

    with _repository() as repository:
        graph, status = repository.index.graph.copy(), repository.status()
        named = {stage.addressing: stage for stage in graph}
        for key, run in params.runs.items():
            if run.parent != NONE:  # which no template of dvc.yaml can name
                graph.add_edge(named[f"pretrain@{key}"], named[f"pretrain@{run.parent}"])
        stages = [*dfs_postorder_nodes(graph)]
        root = next(stage for stage in stages if stage.addressing == ROOT)
        written = {out.def_path for out in root.outs}
        hashes = _hashes(plans(params))
        waiting: set[Any] = {root} if ROOT in status else set()
        read = {  # what each corpus and each model reads, by the path of its record in data/inputs
            str(paths.INPUTS / section / f"{key}.json"): files
            for section, inputs in (
                ("corpora", corpus_inputs(params)),
                ("models", model_inputs(params)),
            )
            for key, files in inputs.items()
        }
        for stage in stages:
            follows = any(
                before in waiting
                for before in graph.successors(stage)
                if before != root
                and (
                    not before.addressing.startswith(INPUTS)
                    or _has_other_inputs(stage, read, waiting)
                )
            )
            if stage != root and (
                follows
                or _is_changed(status.get(stage.addressing, []), written)
                or _has_another_plan(stage, hashes)
            ):
                waiting.add(stage)
        return {
            stage.addressing: [b.addressing for b in graph.successors(stage) if b in waiting]
            for stage in stages
            if stage in waiting
        }


@contextmanager
def _repository() -> Iterator[Any]:
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with Repo() as repository:
            yield repository
    except DvcException as error:
        raise ValueError(f"dvc: {error}") from None


def _is_changed(entries: list[Any], written: set[str]) -> bool:
    """Returns whether a stage's status lists more than changed outputs of the root stage."""

    def counts(path: str) -> bool:
        return not any(path == out or path.startswith(f"{out}/") for out in written)

    for entry in entries:
        if not isinstance(entry, Mapping):  # the stage itself has changed, such as its command
            return True
        if any(counts(path) for changed in entry.values() for path in changed):
            return True
    return False


def _has_other_inputs(stage: Any, read: Mapping[str, list[str]], waiting: Collection[Any]) -> bool:
    """Returns whether ``record_inputs`` will change its record of the inputs that a stage's run
    reads. Changed outputs of the root stage do not count: a run reads only one of them, the file
    for runs without a tokenizer, which never changes."""
    written = {out.def_path for b in waiting if b.addressing != ROOT for out in b.outs}
    for path in {dep.def_path for dep in stage.deps} & read.keys():
        recorded = read_json(Path(path)).keys() if Path(path).is_file() else None
        if recorded != {*read[path]} or not written.isdisjoint(read[path]):
            return True
    return False


def _has_another_plan(stage: Any, hashes: Mapping[str, str]) -> bool:
    """Returns whether a stage last ran with a different plan from the one that it would get now."""
    return any(
        dep.hash_info is None or dep.hash_info.value != hashes[dep.def_path]
        for dep in stage.deps
        if dep.def_path in hashes
    )


def _hashes(planned: Mapping[tuple[str, ...], Plan]) -> dict[str, str]:
    """Returns the MD5 of each plan that the root stage would write, by its path."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_plans(planned, folder)
        return {
            str(paths.PLANS / file.relative_to(folder)): hashlib.md5(file.read_bytes()).hexdigest()
            for file in folder.rglob("*.json")
        }
