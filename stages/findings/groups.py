"""Groups: the runs that were fine-tuned, each with all of its seeds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from stages.core.artifacts import Json
from stages.core.keys import RunKey
from stages.core.params import NONE, Params, Run, Tokenizer
from stages.evaluation.records import ScoredTrial


@dataclass(frozen=True)
class Group:
    """A run of params.yaml, fine-tuned on at least one task, with all of its seeds."""

    name: str
    entry: Run
    architecture: str
    num_params: int  # of the checkpoint; what trials use of it is ``Used``
    tokenizer_corpus: str  # that the tokenizer was trained on; "none" of a public checkpoint's
    corpus_tokens: int | None = None  # encoded of its training set; None without one of the study
    corpus_text: str | None = None  # what corpora share that differ in their amount of text alone
    kept_rates: tuple[float, ...] = ()  # the learning rates that pretraining kept, sorted

    @property
    def seeds(self) -> list[int]:
        """The pretraining seeds."""
        return self.entry.seeds

    @property
    def checkpoints(self) -> list[RunKey]:
        return [RunKey(self.name, seed) for seed in self.seeds]

    @property
    def epochs(self) -> float | None:
        """How often it read its training set; below 1 is a part of it."""
        if not self.corpus_tokens:
            return None
        training = self.entry.training
        return training.num_steps * training.batch_rows * training.max_tokens / self.corpus_tokens

    @property
    def pretrained(self) -> bool:
        return self.objective != NONE

    @property
    def objective(self) -> str:
        return self.entry.learnt[0]

    @property
    def corpus(self) -> str:
        return self.entry.learnt[1] if self.pretrained else NONE

    @cached_property
    def settings(self) -> Json:
        """The settings that are confounds where something else differs, and an axis where nothing
        else does.

        A run from scratch or a published checkpoint has no pretraining settings. A public
        checkpoint has one tokenizer, whether its entry names it or not.
        """
        entry = self.entry
        trained = self.pretrained and not entry.as_published
        training = entry.training.model_dump() if trained else {}
        optimizer = {"optimizer": training.pop("optimizer")} if training else {}
        return {
            **({} if entry.is_public else {"tokenizer": entry.tokenizer}),
            "parent": entry.parent,
            **optimizer,
            **{f"training.{key}": value for key, value in training.items()},
        }


def groups(
    params: Params, trials: Sequence[ScoredTrial], rates: Mapping[RunKey, float] | None = None
) -> list[Group]:
    """Returns the groups that were fine-tuned on at least one task, in the order of params.yaml.

    ``rates`` are the learning rates that the pretrainings kept.
    """
    rates = rates or {}
    first = {trial.run: trial for trial in reversed(trials)}
    return [
        Group(
            name=name,
            entry=run,
            architecture=first[name].architecture,
            num_params=first[name].num_pretrained_params,
            tokenizer_corpus=_tokenizer_corpus(params, run),
            kept_rates=tuple(sorted({rate for key, rate in rates.items() if key.run == name})),
        )
        for name, run in params.runs.items()
        if name in first
    ]


def names_of(checkpoints: Iterable[RunKey], runs: Mapping[str, Run]) -> list[str]:
    """Returns the names of checkpoints in sentences: the name of a run where all of its seeds are
    listed, and else "RUN, seed N"."""
    names: list[str] = []
    for run, members in groupby(checkpoints, key=lambda checkpoint: checkpoint.run):
        of_run = [str(checkpoint) for checkpoint in members]
        names += [run] if len(of_run) == len(runs[run].seeds) else of_run
    return names


def _tokenizer_corpus(params: Params, run: Run) -> str:
    entry = params.tokenizers.get(run.tokenizer)
    return entry.corpus if isinstance(entry, Tokenizer) else NONE


@dataclass(frozen=True)
class Used:
    """What the trials of a group on one task with one method use of its model: on a task with a
    head no decoder beside an encoder, and no layers that only the vocabulary's logits need."""

    num_params: int
    architecture: str
    design: str | None  # equal where two models compute states alike, but for their weights

    @staticmethod
    def by_group(
        all_groups: Sequence[Group], trials: Iterable[ScoredTrial], *, task: str, method: str
    ) -> dict[str, "Used"]:
        """Returns what each group with such trials uses, in the order of the groups."""
        trial_of = {
            trial.run: trial for trial in trials if (trial.task, trial.method) == (task, method)
        }
        return {
            group.name: Used(trial.num_params, trial.used_architecture, trial.design)
            for group in all_groups
            if (trial := trial_of.get(group.name))
        }
