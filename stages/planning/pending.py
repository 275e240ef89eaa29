"""The stages that ``dvc repro`` would run.

``dvc status`` lists the stages whose command, dependencies or outputs differ from dvc.lock now, but
not the stages whose dependencies change only when an earlier stage runs. So all stages that follow
a changed stage in DVC's own graph are added here.

For two stages this rule would add too much. Any edit of params.yaml or below ``stages/`` runs the
root stage, which writes the plan of every stage. Making plans is quick, so they are made here,
outside of ``data/``, and only stages whose plan differs from the one in dvc.lock are added. And a
new model or corpus runs ``record_inputs``, but the pretraining of a model is only added if the
inputs of this model change.

The result is the most that would run: a stage that writes the same outputs as before does not make
DVC run the stages after it, and DVC takes outputs that it has computed before from its run cache.
"""

import hashlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.core import paths
from stages.core.artifacts import read_json
from stages.core.params import NONE, Params
from stages.planning.stage_plans import corpus_inputs, model_inputs, plans, write_plans

ROOT, INPUTS = "resolve", "record_inputs"


def pending(params: Params) -> dict[str, list[str]]:
    """Returns the stages that would run, in the order of ``dvc repro``, each with the pending
    stages that it depends on; empty if all is up to date.

    Raises ValueError if DVC fails.
    """
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with Repo() as repository:
            return _pending(params, repository.index.graph.copy(), repository.status())
    except DvcException as error:
        raise ValueError(f"dvc: {error}") from None


def _pending(params: Params, graph: Any, status: Mapping[str, Any]) -> dict[str, list[str]]:
    """Returns what ``pending`` does, from the graph of the stages and the output of ``dvc
    status``."""
    from networkx import dfs_postorder_nodes

    named = {stage.addressing: stage for stage in graph}
    for key, model in params.models.items():
        if model.parent != NONE:  # which no template of dvc.yaml can name
            graph.add_edge(named[f"pretrain@{key}"], named[f"pretrain@{model.parent}"])
    stages, root = [*dfs_postorder_nodes(graph)], named[ROOT]
    written, hashes = [out.def_path for out in root.outs], _hashes_of_plans(params)
    waiting: set[Any] = {root} if ROOT in status else set()
    read = {  # what each corpus and each model reads, by the path of its record in data/inputs
        str(paths.INPUTS / section / f"{key}.json"): files
        for section, inputs in (
            ("corpora", corpus_inputs(params)),
            ("models", model_inputs(params)),
        )
        for key, files in inputs.items()
    }

    def has_other_inputs(stage: Any) -> bool:
        """Whether ``record_inputs`` will change its record of what a stage reads. Changed
        outputs of the root stage do not count: a model reads only one of them, that for models
        without a tokenizer, which never changes."""
        changing = {out.def_path for b in waiting if b != root for out in b.outs}
        for path in {dep.def_path for dep in stage.deps} & read.keys():
            recorded = read_json(Path(path)).keys() if Path(path).is_file() else None
            if recorded != {*read[path]} or not changing.isdisjoint(read[path]):
                return True
        return False

    def is_changed(stage: Any) -> bool:
        """Whether DVC reports a change of a stage other than of the root stage's outputs."""
        for entry in status.get(stage.addressing, []):
            if not isinstance(entry, Mapping):  # the stage itself has changed, such as its command
                return True
            for path in (path for changed in entry.values() for path in changed):
                if not any(path == out or path.startswith(f"{out}/") for out in written):
                    return True
        return False

    def has_another_plan(stage: Any) -> bool:
        """Whether it last ran with a different plan from the one that it would get now."""
        plan = (dep for dep in stage.deps if dep.def_path in hashes)
        return any(not d.hash_info or d.hash_info.value != hashes[d.def_path] for d in plan)

    for stage in stages:
        before = [b for b in graph.successors(stage) if b in waiting and b != root]
        follows = any(
            not b.addressing.startswith(INPUTS) or has_other_inputs(stage) for b in before
        )
        if stage != root and (follows or is_changed(stage) or has_another_plan(stage)):
            waiting.add(stage)
    return {
        stage.addressing: [b.addressing for b in graph.successors(stage) if b in waiting]
        for stage in stages
        if stage in waiting
    }


def _hashes_of_plans(params: Params) -> dict[str, str]:
    """Returns the MD5 of each plan that the root stage would write, by its path."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_plans(plans(params), folder)
        return {
            str(paths.PLANS / file.relative_to(folder)): hashlib.md5(file.read_bytes()).hexdigest()
            for file in folder.rglob("*.json")
        }
