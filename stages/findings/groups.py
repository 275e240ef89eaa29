"""Groups: the models that were fine-tuned, each with all of its seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from stages.core.artifacts import Json
from stages.core.keys import RunKey
from stages.core.params import NONE, PublishedTokenizer, Run, Tokenizer
from stages.evaluation.records import ScoredTrial


@dataclass(frozen=True, eq=False)
class Group:
    """A model of params.yaml that was fine-tuned on at least one task, with all of its seeds."""

    name: str
    entry: Run
    architecture: str
    num_params: int  # that its trials on the first task use
    design: str | None  # equal for models whose states differ only by their weights
    tokenizer_corpus: str  # the corpus that the tokenizer was trained on; "none" if published
    corpus_tokens: int | None = None  # of the training set; None unless a corpus of the study
    corpus_text: str | None = None  # a hash, equal for two amounts of one text
    kept_rates: tuple[float, ...] = ()  # the learning rates that pretraining kept, sorted

    @property
    def checkpoints(self) -> list[RunKey]:
        return [RunKey(self.name, seed) for seed in self.entry.seeds]

    @property
    def epochs(self) -> float | None:
        """How often pretraining read the training set; below 1 if it read only a part. None if the
        number of tokens is unknown."""
        if not self.corpus_tokens:
            return None
        training = self.entry.training
        return training.num_steps * training.batch_rows * training.max_tokens / self.corpus_tokens

    @property
    def objective(self) -> str:
        return self.entry.learnt[0]

    @property
    def pretrained(self) -> bool:
        return self.objective != NONE

    @property
    def corpus(self) -> str:
        return self.entry.learnt[1] if self.pretrained else NONE

    @property
    def targets_per_token(self) -> float | None:
        """The share of a row's tokens that the objective predicts, where a setting says it."""
        objective = self.entry.objective
        if objective["name"] == "causal":
            return 1.0
        return objective.get("mask_prob") or objective.get("noise_density")

    @cached_property
    def settings(self) -> Json:
        """The settings of pretraining. A model from scratch and a published checkpoint have none of
        training; a public checkpoint determines its tokenizer."""
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
    runs: Mapping[str, Run],
    tokenizers: Mapping[str, Tokenizer | PublishedTokenizer],
    trials: Sequence[ScoredTrial],
    *,
    rates: Mapping[RunKey, float],
    likeness: Mapping[tuple[str, str], Json],
) -> list[Group]:
    """Returns the models that were fine-tuned on at least one task, in the order of params.yaml.

    ``rates`` are the learning rates that the pretrainings kept. ``likeness`` has the measurements
    of each (corpus, tokenizer).
    """
    first = {trial.run: trial for trial in reversed(trials)}
    members = []
    for name, run in runs.items():
        if name in first:
            tokenizer = tokenizers.get(run.tokenizer)
            pretrained = run.learnt[0] != NONE
            about = likeness.get((run.corpus, run.tokenizer), {}) if pretrained else {}
            members.append(
                Group(
                    name=name,
                    entry=_without_published_parent(run, runs),
                    architecture=first[name].architecture,
                    num_params=first[name].num_params,
                    design=first[name].design,
                    tokenizer_corpus=tokenizer.corpus if tokenizer else NONE,
                    corpus_tokens=about.get("tokens"),
                    corpus_text=about.get("sha256"),
                    kept_rates=tuple(sorted({r for key, r in rates.items() if key.run == name})),
                )
            )
    return members


def _without_published_parent(run: Run, runs: Mapping[str, Run]) -> Run:
    """Returns a run without its parent if the parent is a published checkpoint: the run would begin
    with this checkpoint even if its entry named no parent."""
    parent = runs.get(run.parent)
    if parent is None or not parent.as_published:
        return run
    return run.model_copy(update={"parent": NONE})
