"""Which stages ``dvc repro`` would run.

``dvc status`` tells the stages whose command, dependencies or outputs are not as dvc.lock has them,
as the files stand now; so does ``dvc repro --dry``. Neither looks further: what stands behind a
changed stage counts as unchanged until that has run. So what follows from a changed stage, by DVC's
own graph, is added here.

``check_params`` would be an exception to that: every stage depends on the records of code and of
plans that it writes, and any edit of params.yaml or below ``stages/`` runs it, so that everything
would follow. It is quick and a function of what is there, so its records are made anew here, apart
from ``data/``, and compared with those that dvc.lock knows.

It is the most that would run: where a stage gives again what it gave before, DVC runs nothing that
follows from it, and what DVC's run cache has is not computed anew.
"""

import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stages.core.artifacts import Json, write_json
from stages.core.code import code_by_stage, hashes
from stages.core.components import Settings
from stages.core.params import Params
from stages.matching.budget import plans

CHECK = "check_params"


def pending(params: Params) -> dict[str, list[str]]:
    """The stages, in the order in which ``dvc repro`` runs them, with those among them that each
    waits for; none if all is up to date.

    Raises ValueError if DVC cannot tell.
    """
    from networkx import dfs_postorder_nodes

    with _repository() as repository:
        graph, status = repository.index.graph, repository.status()
        stages = [*dfs_postorder_nodes(graph)]
        checks = next(stage for stage in stages if stage.addressing == CHECK)
        written = {out.def_path for out in checks.outs}
        records = _records(params)
        found: set[object] = {checks} if CHECK in status else set()
        for stage in stages:
            follows = any(before in found for before in graph.successors(stage) if before != checks)
            if stage != checks and (
                follows
                or _is_changed(status.get(stage.addressing, []), written)
                or _has_other_records(stage, records)
            ):
                found.add(stage)
        return {
            stage.addressing: [
                before.addressing for before in graph.successors(stage) if before in found
            ]
            for stage in stages
            if stage in found
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
    """Whether a stage's status tells of more than of what ``check_params`` writes."""

    def counts(path: str) -> bool:
        return not any(path == out or path.startswith(f"{out}/") for out in written)

    for entry in entries:
        if not isinstance(entry, Mapping):  # of the stage itself: its command
            return True
        if any(counts(path) for paths in entry.values() for path in paths):
            return True
    return False


def _has_other_records(stage: Any, records: Mapping[str, str]) -> bool:
    """Whether a stage was run with other records of code, of a plan or of seeds than it would be
    now."""
    for dep in stage.deps:
        now = records.get(dep.def_path)
        if now is not None and (dep.hash_info is None or dep.hash_info.value != now):
            return True
    return False


def _records(params: Params) -> dict[str, str]:
    """The MD5 of each file that ``check_params`` would write, by its path."""
    contents: dict[str, Json] = {
        f"data/code/{stage}.json": hashes(stage.partition("/")[0], *modules)
        for stage, modules in code_by_stage(params).items()
    }
    for key, plan in plans(params).items():
        contents[f"data/plans/{key}.json"] = asdict(plan)
    contents["data/about.json"] = params.about.model_dump()
    contents["data/seeds.json"] = {"pretrain_seeds": params.pretrain_seeds}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "record"
        return {path: _md5(file, content) for path, content in contents.items()}


def _md5(file: Path, content: Settings) -> str:
    write_json(file, content)
    return hashlib.md5(file.read_bytes()).hexdigest()
