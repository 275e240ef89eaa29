"""What entries of params.yaml take over from other entries.

This works on the mappings of the file before they are validated, so it changes only what has the
right type and leaves the rest for validation to refuse.
"""

from collections.abc import Callable, Mapping
from typing import Any

from stages.core.components import Settings

NONE = "none"  # the corpus, tokenizer or parent of a model that has none
HUB = "hub"  # name of public checkpoints' architecture, and of their tokenizers' algorithm
# The training of a model that does not train, in a study without pretrain.training.
UNTRAINED = {"lr": 1.0, "num_steps": 1, "batch_rows": 1, "max_tokens": 1, "num_validations": 1}


def mapping(node: Any) -> Settings:
    """Returns a node if it is a mapping, else an empty one."""
    return node if isinstance(node, Mapping) else {}


def changed(entries: Any, change: Callable[[str, Settings], Settings]) -> Any:
    """Returns the entries of a section with ``change(key, entry)`` in the place of each mapping."""
    if not isinstance(entries, Mapping):
        return entries
    return {k: change(k, e) if isinstance(e, Mapping) else e for k, e in entries.items()}


def is_published(tokenizer: Any) -> bool:
    return mapping(tokenizer).get("algorithm") == HUB


def filled_in(study: Settings) -> dict[str, Any]:
    """Returns a study whose models state what they take over from the first one, from the public
    checkpoint that they continue and from ``pretrain:``, and whose tasks state what they take over
    from ``samples:``."""
    models, pretrain = mapping(study.get("models")), study.get("pretrain", {})
    drawn = {"seed": 1, **mapping(study.get("samples"))}
    drawn = {k: v for k, v in drawn.items() if k == "seed" or k.startswith("num_")}
    seeds = mapping(study.get("finetune")).get("seeds", [1])

    def task(_: str, entry: Settings) -> Settings:
        draws_anew = entry.get("split_per_seed") is True
        return {**drawn, **entry, **({"split_seeds": seeds} if draws_anew else {})}

    filled = {"tasks": changed(study.get("tasks"), task)}
    if isinstance(pretrain, Mapping):
        filled["pretrain"] = {"reference": next(iter(models), NONE), **pretrain}
    if models:
        filled["models"] = changed(models, lambda _, entry: _model(entry, study))
        trains = [
            _name(mapping(m).get("objective", NONE)) != NONE for m in filled["models"].values()
        ]
        if any(trains) and isinstance(pretrain, Mapping):  # else its settings are missing
            filled["pretrain"].setdefault("training", {})
    return {**study, **{key: value for key, value in filled.items() if value is not None}}


def _model(entry: Settings, study: Settings) -> Settings:
    """Returns a model's entry with all of its settings that have a value anywhere."""
    models, pretrain = study["models"], mapping(study.get("pretrain"))
    first, own = mapping(next(iter(models.values()))), entry.get("architecture")
    architecture = own or _continued(entry, models) or first.get("architecture")
    is_hub = _name(architecture) == HUB
    objective = entry.get("objective") or (NONE if own and is_hub else first.get("objective"))
    trains = _name(objective) != NONE
    taken = {
        "corpus": first.get("corpus") if trains else NONE,
        "tokenizer": _tokenizer(architecture, first, study, trains=trains),
        "architecture": architecture,
        "objective": objective,
        "seeds": pretrain.get("seeds", [1]),
    }
    filled = {key: value for key, value in taken.items() if value is not None} | dict(entry)
    changes = entry.get("training", {})
    if isinstance(changes, Mapping):
        untrained = UNTRAINED if not trains and "training" not in pretrain else {}
        shared = untrained | dict(mapping(pretrain.get("training")))
        if shared.get("micro_batch_rows") == shared.get("batch_rows"):
            # Lets the default, all rows of a step, follow a `batch_rows` of the model's own.
            shared.pop("micro_batch_rows", None)
        filled["training"] = shared | dict(changes)
    return filled


def _continued(entry: Settings, models: Settings) -> Any:
    """Returns the architecture of the public checkpoint that an entry continues from, directly or
    through other models; None if there is no such checkpoint."""
    for _ in models:  # a cycle is refused later
        entry = mapping(models.get(entry.get("parent", NONE)))
        if (architecture := entry.get("architecture")) is not None:
            return architecture if _name(architecture) == HUB else None
    return None


def _tokenizer(architecture: Any, first: Settings, study: Settings, *, trains: bool) -> str | None:
    """Returns the tokenizer of a model that states none. That of a public checkpoint is the
    checkpoint's own entry of ``tokenizers:``, or ``none`` without one."""
    entries = mapping(study.get("tokenizers"))
    if _name(architecture) == HUB:
        pinned = [mapping(architecture).get(key) for key in ("path", "revision")]
        own = (
            key
            for key, entry in entries.items()
            if is_published(entry) and [entry.get("path"), entry.get("revision")] == pinned
        )
        return next(own, NONE) if trains else NONE
    trained = [key for key, entry in entries.items() if not is_published(entry)]
    return first.get("tokenizer") or (trained[0] if len(trained) == 1 else None)


def _name(component: Any) -> Any:
    return component.get("name") if isinstance(component, Mapping) else component
