"""What the rules share: the models and objectives of runs, built once without storage for weights,
and errors as faults."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from stages.budgets.budget import public_outline, vocabulary_for
from stages.core.components import Settings, unknown
from stages.core.params import Params, PublishedTokenizer, Run, Tokenizer
from stages.models._backbone import MODELS, Backbone, outline
from stages.objectives._objective import OBJECTIVES, Objective
from stages.text.tokenizer import Vocabulary
from stages.training.pretraining import objective_for

MOST_SHOWN = 300  # characters of a file's name in a message


@dataclass
class RunOutline:
    """A run's model and objective. Each is None if it is invalid (``faults`` has the reasons) or
    belongs to a public checkpoint that is not downloaded."""

    key: str
    run: Run
    vocabulary: Vocabulary | None = None
    backbone: Backbone | None = None
    objective: Objective | None = None
    faults: list[str] = field(default_factory=list)

    @property
    def where(self) -> str:
        return self.run.where(self.key)


Outlines = Mapping[str, RunOutline]


def outline_runs(params: Params) -> dict[str, RunOutline]:
    outlines = {key: RunOutline(key, run) for key, run in params.runs.items()}
    for outlined in outlines.values():
        for build in (_build_backbone, _build_objective):
            try:
                build(outlined, params.tokenizers.get(outlined.run.tokenizer))
            except ValueError as error:
                outlined.faults.append(str(error))
    return outlines


def _build_backbone(outlined: RunOutline, tokenizer: Tokenizer | PublishedTokenizer | None) -> None:
    run, where = outlined.run, f"{outlined.where}.architecture"
    if run.is_hub:
        with file_errors(f"{where}.path"):
            outlined.backbone = public_outline(run, where=where)
        if tokenizer and outlined.backbone is not None and belongs_to(tokenizer, run):
            outlined.vocabulary = vocabulary_for(run, tokenizer)
    elif isinstance(tokenizer, Tokenizer):
        outlined.vocabulary = vocabulary_for(run, tokenizer)
        outlined.backbone = outline(run.architecture, tokenizer.vocab_size, where=where)
    else:  # no tokenizer gives the vocabulary size
        MODELS.settings(run.architecture, where=where)


def _build_objective(outlined: RunOutline, tokenizer: object) -> None:
    run, vocabulary, backbone = outlined.run, outlined.vocabulary, outlined.backbone
    if vocabulary is not None and backbone is not None:
        outlined.objective = objective_for(run, vocabulary, backbone, where=outlined.where)
    else:
        OBJECTIVES.settings(run.objective, where=f"{outlined.where}.objective")


def belongs_to(tokenizer: object, run: Run) -> bool:
    """Whether a tokenizer's entry belongs to the run's public checkpoint."""
    pinned = [run.architecture.get(key) for key in ("path", "revision")]
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
    """Turns errors of the file system (a file that may not be read, too long a name) into
    ValueErrors that begin with ``where``, a path in params.yaml."""
    try:
        yield
    except OSError as error:
        named = "" if error.filename is None else f"{str(error.filename)[:MOST_SHOWN]}: "
        raise ValueError(f"{where}: {named}{error.strerror or error}") from None
