"""The models and objectives of runs, built once without storage for weights."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from stages.budgets.budget import public_outline, vocabulary_for
from stages.checking.entries import file_errors
from stages.core.params import Params, PublishedTokenizer, Run, Tokenizer
from stages.models._backbone import MODELS, Backbone, outline
from stages.objectives._objective import OBJECTIVES, Objective
from stages.text.tokenizer import Vocabulary
from stages.training.pretraining import objective_for


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
    return {
        key: _outlined(key, run, params.tokenizers.get(run.tokenizer))
        for key, run in params.runs.items()
    }


def _outlined(key: str, run: Run, tokenizer: Tokenizer | PublishedTokenizer | None) -> RunOutline:
    outlined = RunOutline(key, run)
    where = f"{outlined.where}.architecture"
    try:
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
    except ValueError as error:
        outlined.faults.append(str(error))
    vocabulary, backbone = outlined.vocabulary, outlined.backbone
    try:
        if vocabulary is not None and backbone is not None:
            outlined.objective = objective_for(run, vocabulary, backbone, where=outlined.where)
        else:
            OBJECTIVES.settings(run.objective, where=f"{outlined.where}.objective")
    except ValueError as error:
        outlined.faults.append(str(error))
    return outlined


def belongs_to(tokenizer: object, run: Run) -> bool:
    """Whether a tokenizer's entry belongs to the run's public checkpoint."""
    pinned = [run.architecture.get(key) for key in ("path", "revision")]
    return isinstance(tokenizer, PublishedTokenizer) and pinned == [
        tokenizer.path,
        tokenizer.revision,
    ]
