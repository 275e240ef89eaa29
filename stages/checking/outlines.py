"""What the rules share: models and their objectives, built once without storage for weights,
and errors as faults."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from stages.budgets.budget import public_outline, vocabulary_for
from stages.core.components import Settings, unknown
from stages.core.params import AnyTokenizer, Model, Params, PublishedTokenizer, Tokenizer
from stages.models._backbone import MODELS, Backbone, outline
from stages.objectives._objective import OBJECTIVES, Objective
from stages.text.tokenizer import Vocabulary
from stages.training.pretraining import objective_for


@dataclass
class ModelOutline:
    """A declared model with its objective. Each is None if it is invalid (``faults`` has the
    reasons) or belongs to a public checkpoint that is not downloaded."""

    key: str
    entry: Model
    vocabulary: Vocabulary | None = None
    backbone: Backbone | None = None
    objective: Objective | None = None
    faults: list[str] = field(default_factory=list)

    @property
    def where(self) -> str:
        return f"models.{self.key}"

    @property
    def kind(self) -> type[Objective] | None:
        """The class of the objective; None if it is unknown."""
        name = name_of(self.entry.objective)
        return OBJECTIVES.find(name, where="") if name in OBJECTIVES.names() else None


Outlines = Mapping[str, ModelOutline]


def outline_models(params: Params) -> dict[str, ModelOutline]:
    outlines = {key: ModelOutline(key, model) for key, model in params.models.items()}
    for outlined in outlines.values():
        for build in (_build_backbone, _build_objective):
            tokenizer = params.tokenizers.get(outlined.entry.tokenizer)
            outlined.faults += fault_of(build, outlined, tokenizer)
    return outlines


def _build_backbone(outlined: ModelOutline, tokenizer: AnyTokenizer | None) -> None:
    entry, where = outlined.entry, f"{outlined.where}.architecture"
    if entry.is_hub:
        with file_errors(f"{where}.path"):
            outlined.backbone = public_outline(entry, where=where)
        if tokenizer and outlined.backbone is not None and belongs_to(tokenizer, entry):
            outlined.vocabulary = vocabulary_for(tokenizer)
    elif isinstance(tokenizer, Tokenizer):
        outlined.vocabulary = vocabulary_for(tokenizer)
        outlined.backbone = outline(entry.architecture, tokenizer.vocab_size, where=where)
    else:  # no tokenizer gives the vocabulary size
        MODELS.settings(entry.architecture, where=where)


def _build_objective(outlined: ModelOutline, tokenizer: object) -> None:
    entry, vocabulary, backbone = outlined.entry, outlined.vocabulary, outlined.backbone
    if vocabulary is not None and backbone is not None:
        outlined.objective = objective_for(entry, vocabulary, backbone, where=outlined.where)
    else:
        OBJECTIVES.settings(entry.objective, where=f"{outlined.where}.objective")


def belongs_to(tokenizer: object, entry: Model) -> bool:
    """Whether a tokenizer's entry belongs to the model's public checkpoint."""
    pinned = [entry.architecture.get(key) for key in ("path", "revision")]
    is_published = isinstance(tokenizer, PublishedTokenizer)
    return is_published and pinned == [tokenizer.path, tokenizer.revision]


def name_of(entry: Settings) -> str:
    return str(entry.get("name", ""))


def unlisted(name: str, listed: Iterable[str], where: str) -> Iterator[str]:
    if name not in listed:
        yield f"{where}: {unknown(name, listed)}"


def fault_of(check: Callable[..., object], *arguments: Any, **settings: Any) -> Iterator[str]:
    """Yields the message of the ValueError that a check raises, if any."""
    try:
        check(*arguments, **settings)
    except ValueError as error:
        yield str(error)


@contextmanager
def file_errors(where: str) -> Iterator[None]:
    """Turns errors of the file system into ValueErrors that begin with ``where``."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{where}: {error.filename or ''}: {error.strerror or error}") from None
