"""The models and objectives of runs, built once without storage for weights."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from stages.checking.entries import fault_of, file_errors
from stages.core.params import PublishedTokenizer, Run, Tokenizer
from stages.matching.budget import public_outline, vocabulary_for
from stages.models._backbone import MODELS, Backbone, outline
from stages.objectives._objective import OBJECTIVES, Objective
from stages.text.tokenizer import Vocabulary
from stages.training.pretraining import objective_for

MOST_WEIGHTS = 10**12  # more than any machine holds

Tokenizers = Mapping[str, Tokenizer | PublishedTokenizer]


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


def outline_runs(runs: Mapping[str, Run], tokenizers: Tokenizers) -> dict[str, RunOutline]:
    return {key: _outlined(key, run, tokenizers) for key, run in runs.items()}


def _outlined(key: str, run: Run, tokenizers: Tokenizers) -> RunOutline:
    outlined = RunOutline(key, run)
    where, entry = f"{outlined.where}.objective", tokenizers.get(run.tokenizer)
    try:
        if run.is_public:
            with file_errors(f"{outlined.where}.model.path"):
                outlined.backbone = public_outline(run, where=f"{outlined.where}.model")
            if entry is not None and outlined.backbone is not None and belongs_to(entry, run):
                outlined.vocabulary = vocabulary_for(run, entry)
        elif isinstance(entry, Tokenizer):
            outlined.vocabulary = vocabulary_for(run, entry)
            size = entry.vocab_size
            backbone = outline(run.model, size, where=f"{outlined.where}.model")
            num_weights = sum(weights.numel() for weights in backbone.parameters())
            if num_weights > MOST_WEIGHTS:
                raise ValueError(
                    f"{outlined.where}.model: has {num_weights:,} weights; make it smaller"
                )
            outlined.backbone = backbone
        else:  # no tokenizer gives the vocabulary size
            MODELS.settings(run.model, where=f"{outlined.where}.model")
    except ValueError as error:
        outlined.faults.append(str(error))
    except (OverflowError, RuntimeError, TypeError) as error:  # from torch: too large a shape
        reason = " ".join(str(error).split())
        outlined.faults.append(
            f"{outlined.where}.model: weights of this size do not exist: {reason}"
        )
    vocabulary, backbone = outlined.vocabulary, outlined.backbone
    if vocabulary is not None and backbone is not None:
        try:
            outlined.objective = objective_for(run, vocabulary, backbone, where=outlined.where)
        except ValueError as error:
            outlined.faults.append(str(error))
    else:
        outlined.faults += fault_of(lambda: OBJECTIVES.settings(run.objective, where=where))
    return outlined


def belongs_to(tokenizer: Tokenizer | PublishedTokenizer, run: Run) -> bool:
    """Whether a tokenizer belongs to the run's public checkpoint."""
    pinned = [run.model.get(key) for key in ("path", "revision")]
    return isinstance(tokenizer, PublishedTokenizer) and pinned == [
        tokenizer.path,
        tokenizer.revision,
    ]
