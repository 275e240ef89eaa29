"""Faults of runs of public checkpoints, as published or pretrained further.

Facts that only the hub knows are checked after the download.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from stages.checking.entries import fault_of, file_errors, name_of, unlisted
from stages.checking.outlines import RunOutline, belongs_to
from stages.core import paths
from stages.core.components import below
from stages.core.params import HUB, NONE, Params, Run
from stages.models._backbone import MODELS
from stages.objectives._objective import OBJECTIVES
from stages.text.tokenizer import Vocabulary
from stages.training.pretraining import built


def public_faults(params: Params, outlined: RunOutline) -> Iterator[str]:
    run, where = outlined.run, outlined.where
    folder = Path(str(run.model.get("path")))
    if folder.parent == paths.CHECKPOINTS:
        yield from unlisted(folder.name, params.packaged_checkpoints, f"{where}.model.path")
    if not run.as_published:
        yield from _further_faults(params, outlined)
        return
    for setting, given in (("corpus", run.corpus), ("tokenizer", run.tokenizer)):
        if given != NONE:
            yield (
                f"{where}.{setting}: must be {NONE}, not {given}: a public checkpoint without an "
                "objective is used as published"
            )


def _further_faults(params: Params, outlined: RunOutline) -> Iterator[str]:
    """Yields the faults of a public checkpoint that is pretrained further."""
    run, where = outlined.run, outlined.where
    yield from unlisted(run.corpus, params.corpora, f"{where}.corpus")
    own = [key for key, entry in params.tokenizers.items() if belongs_to(entry, run)]
    if run.tokenizer not in own:
        solution = f"use {own[0]}" if own else "add it"
        yield (
            f"{where}.tokenizer: must be the checkpoint's own, an entry of tokenizers with corpus "
            f"{NONE}, algorithm {HUB} and the path and revision of {where}.model, not "
            f"{run.tokenizer}; {solution}"
        )
    name = name_of(run.objective)
    if name not in OBJECTIVES.names():
        return
    kind = OBJECTIVES.find(name, where="")
    if kind.has_teacher:
        yield f"{where}.objective: {name} needs a teacher; public checkpoints do not support it"
    elif kind.has_prefix:
        yield (
            f"{where}.objective: {name} uses a bidirectional prefix; public checkpoints do not "
            "support it"
        )
    elif outlined.objective is not None and outlined.vocabulary is not None:
        vocabulary = outlined.vocabulary
        yield from fault_of(lambda: _prepare(run, vocabulary, where))


def _prepare(run: Run, vocabulary: Vocabulary, where: str) -> None:
    """Builds the model and the objective's head as ``pretrain`` does, with the layers that only
    pretraining needs, but without storage for weights.

    Raises ValueError if the objective and the model are incompatible.
    """
    with torch.device("meta"):
        backbone, objective = built(run, vocabulary, where=where)
        with below(f"{where}.objective"):
            objective.head(backbone)


def checkpoint_faults(path: str, revision: str, where: str) -> Iterator[str]:
    hub: Any = MODELS.find(HUB, where=where)  # only this model has `check`
    try:
        with file_errors("path"):
            hub.check(path=path, revision=revision)
    except ValueError as error:
        yield f"{where}.{error}"
