"""Runs of public checkpoints, as they were published or pretrained further.

What only the hub knows is found out when it is downloaded.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from stages.checking.entries import fault_of, name_of, unlisted
from stages.checking.lengths import length_faults
from stages.core.components import below, check
from stages.core.params import HUB, NONE, Params, PublishedTokenizer, Run, Tokenizer
from stages.matching.budget import outline, vocabulary_of
from stages.models._backbone import MODELS, Backbone
from stages.objectives._objective import OBJECTIVES
from stages.training.pretraining import built


def public_faults(params: Params, run: Run, where: str, backbone: Backbone | None) -> Iterator[str]:
    if run.parent != NONE:
        yield (
            f"{where}.parent: must be {NONE}, not {run.parent}: a public checkpoint has weights of "
            "its own"
        )
    if run.as_published:
        for setting, given in (("corpus", run.corpus), ("tokenizer", run.tokenizer)):
            if given != NONE:
                yield (
                    f"{where}.{setting}: must be {NONE}, not {given}: a public checkpoint without "
                    "an objective is as it was published"
                )
    else:
        yield from _further_faults(params, run, where, backbone)
    if backbone is not None:  # its folder was read and found to be what is pinned
        yield from length_faults(params, run, backbone, where)
        return
    hub: Any = MODELS.find(HUB, where=where)
    settings = {key: value for key, value in run.model.items() if key != "name"}
    try:
        checked = check(hub, settings, where=f"{where}.model")
    except ValueError as error:
        yield str(error)
        return
    faults = [*checkpoint_faults(checked["path"], checked["revision"], f"{where}.model")]
    yield from faults
    if not faults and Path(checked["path"]).is_dir():
        yield from fault_of(lambda: _outline(run, f"{where}.model"))


def _further_faults(
    params: Params, run: Run, where: str, backbone: Backbone | None
) -> Iterator[str]:
    """Of a public checkpoint that is pretrained further."""
    yield from unlisted(run.corpus, params.corpora, f"{where}.corpus")
    own = [key for key, entry in params.tokenizers.items() if _is_of(entry, run)]
    if run.tokenizer not in own:
        listed = f"that is {own[0]}" if own else "add it"
        yield (
            f"{where}.tokenizer: must be that of the checkpoint, an entry of tokenizers with "
            f"algorithm {HUB} and the path and revision of {where}.model, not {run.tokenizer}; "
            f"{listed}"
        )
    here, name = f"{where}.objective", name_of(run.objective)
    try:
        kind: Any = OBJECTIVES.find(name, where=here)
        OBJECTIVES.settings(run.objective, where=here)
    except ValueError as error:
        yield str(error)
        return
    if kind.has_teacher:
        yield f"{here}: {name} has a teacher, and a public checkpoint is taught by no other run"
    elif kind.has_prefix:
        yield f"{here}: {name} shows a prefix in both directions, which a public checkpoint has not"
    elif backbone is not None and run.tokenizer in own:
        vocabulary = vocabulary_of(params, run)
        yield from fault_of(lambda: _begin_further(run, vocabulary, where))


def _is_of(tokenizer: Tokenizer | PublishedTokenizer, run: Run) -> bool:
    """Whether a tokenizer is that of the run's public checkpoint."""
    pinned = [run.model.get(key) for key in ("path", "revision")]
    return isinstance(tokenizer, PublishedTokenizer) and pinned == [
        tokenizer.path,
        tokenizer.revision,
    ]


def _begin_further(run: Run, vocabulary: Any, where: str) -> None:
    """As ``pretrain`` does, without storage for weights.

    Raises ValueError for what does not go together.
    """
    with torch.device("meta"):
        backbone, objective = built(run, vocabulary, where=where)
        with below(f"{where}.objective"):
            objective.head(backbone)


def checkpoint_faults(path: str, revision: str, where: str) -> Iterator[str]:
    hub: Any = MODELS.find(HUB, where=where)
    try:
        hub.check(path=path, revision=revision)
    except ValueError as error:
        yield f"{where}.{error}"


def _outline(run: Run, where: str) -> Backbone:
    """Of a public checkpoint in a folder, without storage for its weights."""
    hub: Any = MODELS.find(HUB, where=where)
    vocabulary = hub.tokenizer_of(run.model, Path(run.model["path"]))
    return outline(run.model, vocabulary.vocab_size, where=where)
