"""The typed top level of params.yaml. It holds no defaults: what a study does stands in the file.

Components (``{name: ..., ...}``) are plain mappings here; ``stages.core.components.build`` checks
them against the constructor they name.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from stages.core.artifacts import Json
from stages.core.components import Settings, describe, unknown

PATH = Path("params.yaml")
T = TypeVar("T")
NONE = "none"  # the corpus, tokenizer or parent of a run that has none
MAX_VOCAB_SIZE = 10_000_000  # more is a mistake, and takes gigabytes to check
HUB = "hub"  # the model of a run that is a public checkpoint, and how its tokenizer came about

NAME = r"[a-z][a-z0-9_]*"
# Where a run from scratch starts: ``as_pretrained`` draws the weights that its pretraining would
# start from, with the model's ``locality``; ``usual`` draws the same without it, as BERT and GPT-2.
InitialWeights = Literal["as_pretrained", "usual"]
Name = Annotated[str, StringConstraints(pattern=rf"^{NAME}$")]
Sentence = Annotated[str, StringConstraints(min_length=1, max_length=160, pattern=r"^\S[^\n]*$")]
Component = dict[str, Any]
Positive = Annotated[int, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
# A whole number is a valid value of a real setting: `lr: 1` means 1.0.
Real = Annotated[float, BeforeValidator(lambda v: float(v) if type(v) is int else v)]


def _budget(value: int | str) -> int | str:
    if value != "all" and (isinstance(value, str) or value < 1):
        raise ValueError("must be a number of labels or 'all'")
    return value


NumberOrAll = Annotated[int | Literal["all"], AfterValidator(_budget)]


def _rates(value: Any) -> Any:
    rates = value if isinstance(value, list) else [value]
    if not rates or not all(type(r) in (int, float) and 0 < r < math.inf for r in rates):
        raise ValueError("must be a number greater than 0, or a list of such numbers")
    if len(set(rates)) < len(rates):
        raise ValueError("must not repeat a rate")
    found = [*map(float, rates)]
    return found if len(found) > 1 else found[0]


class Strict(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, protected_namespaces=()
    )


class Compute(Strict):
    """How numbers are computed. All of it may change weights in the last bit, so all of it is
    part of every trained artifact."""

    device: Literal["auto", "cpu", "cuda"]
    precision: Literal["auto", "float32", "bfloat16"]
    compile: bool
    threads: Positive  # of pretraining
    trial_threads: Positive  # of one fine-tuning trial; threads // trial_threads run side by side


class Distributed(Strict):
    """The processes of one pretraining, one for each device. Weights differ in the last bits from
    those of another number."""

    devices: Positive  # of each node; on a CPU processes, which share its compute.threads
    num_nodes: Positive
    strategy: Literal["ddp", "fsdp"]  # weights on each device, or sharded over all

    @property
    def num_ranks(self) -> int:
        return self.devices * self.num_nodes


class Corpus(Strict):
    source: Component
    max_tokens: NumberOrAll  # kept for training
    decontaminate_against: Literal["none", "tasks"]  # whose test texts are removed from it


class Tokenizer(Strict):
    corpus: Name
    algorithm: Literal["unigram", "bpe", "char"]
    vocab_size: Annotated[int, Field(gt=0, le=MAX_VOCAB_SIZE)]
    max_sentences: Positive  # sampled to train on


class PublishedTokenizer(Strict):
    """That of a public checkpoint, for runs that pretrain it further."""

    corpus: Literal["none"]
    algorithm: Literal["hub"]
    path: str
    revision: str


def _of_its_kind(entry: Any) -> Any:
    """An entry ``tokenizers:``, typed, so that its faults are those of its own kind alone."""
    if isinstance(entry, BaseModel):
        return entry
    is_published = isinstance(entry, Mapping) and entry.get("algorithm") == HUB
    return (PublishedTokenizer if is_published else Tokenizer).model_validate(entry)


AnyTokenizer = Annotated[Tokenizer | PublishedTokenizer, BeforeValidator(_of_its_kind)]


class Schedule(Strict):
    """AdamW, linear warm-up, then the decay."""

    warmup_fraction: Fraction
    decay: Literal["linear", "cosine", "constant"]
    weight_decay: Annotated[Real, Field(ge=0)]
    max_grad_norm: Annotated[Real, Field(gt=0)]


class Optimisation(Schedule):
    """At one learning rate."""

    lr: Annotated[Real, Field(gt=0)]


class Tuned(Schedule):
    """At one learning rate, or once at each of several: validation chooses."""

    lr: Annotated[float | list[float], BeforeValidator(_rates)]

    @property
    def rates(self) -> list[float]:
        return self.lr if isinstance(self.lr, list) else [self.lr]

    def at(self, lr: float) -> Optimisation:
        schedule = {name: getattr(self, name) for name in Schedule.model_fields}
        return Optimisation(lr=lr, **schedule)


class Training(Tuned):
    """Of a run, on unlabelled rows.

    With several learning rates the run is trained once at each, from the same start and for the
    same number of steps, and keeps the one whose validation loss is lowest at the end; ties go to
    the first in the list.
    """

    num_steps: Positive
    batch_rows: Positive  # rows of max_tokens tokens in a step
    micro_batch_rows: Positive  # rows in memory at once; without dropout no weight depends on it
    max_tokens: Positive
    num_validations: Positive  # evenly spaced over the steps, the last one at the end


class Run(Strict):
    """One entry of ``pretrain:``."""

    corpus: Name
    tokenizer: Name
    parent: Name
    model: Component
    objective: Component
    training: Training
    seed: int

    @property
    def is_public(self) -> bool:
        """Whether it is a public checkpoint: pretrained by others, who knows on what, and perhaps
        further by its own objective."""
        return self.model.get("name") == HUB

    @property
    def as_published(self) -> bool:
        """Whether it is a public checkpoint that is not pretrained further."""
        return self.is_public and self.objective.get("name") == NONE

    @property
    def from_scratch(self) -> bool:
        """Whether its weights are random: each of its trials draws weights of its own."""
        return self.objective.get("name") == self.parent == NONE and not self.is_public

    @property
    def learnt(self) -> tuple[str, str]:
        """By which objective and on which corpus, as tables say it; the last ones of several."""
        if self.as_published:
            return HUB, str(self.model["path"])
        return self.objective["name"], self.corpus

    def planned(self, plan: Settings) -> "Run":
        """The run as the matched budget has it: what ``data/plans/`` holds in place of its own."""
        training = self.training.model_copy(update={"num_steps": plan["num_steps"]})
        return self.model_copy(update={"model": plan["model"], "training": training})


class Budget(Strict):
    """What every run that trains has in common with the reference: its number of steps is set for
    that (tokens, flops), or the layers of an encoder-decoder, the cells of a biLSTM and the number
    of steps (parameters). With none each run keeps what its entry says."""

    matched: Literal["none", "tokens", "flops", "parameters"]
    reference: Name  # a run


class Task(Strict):
    """One entry of ``tasks:``."""

    task: Component
    source: Component
    num_train: NumberOrAll
    num_validation: NumberOrAll
    num_test: NumberOrAll
    seed: int  # of the samples


class Adaptation(Tuned):
    """The training of a trial, on labelled examples.

    It takes at least ``num_epochs`` epochs and at least ``min_steps`` steps, which few labels need
    (Mosbach et al. 2021; Zhang et al. 2021), and decays over all of them; the last epoch is kept.
    With ``patience`` it stops early, but not in the warm-up, after so many epochs without a better
    metric or a lower loss on validation, and the epoch that is best on validation is kept.

    With several learning rates each trial is trained once at each, and keeps the rate whose kept
    epoch is best on validation; ties go to the first in the list.
    """

    num_epochs: Positive
    min_steps: Annotated[int, Field(ge=0)]
    patience: Positive | Literal["none"]
    batch_examples: Positive


class Method(Strict):
    method: Component
    text_to_text: bool = False  # the task as one of writing: no head, the answers are texts
    training: Adaptation | None = None  # of a method that trains nothing, and of no other


class Screen(Strict):
    """On each task only the ``keep`` pretrained runs with the highest estimates are fine-tuned,
    beside those from scratch. Runs that differ in their seeds alone count as one."""

    by: Literal["h_score", "h_score_above_chance", "logme", "knn"]
    keep: Positive


class Finetune(Strict):
    methods: dict[Name, Method]
    label_budgets: list[NumberOrAll]
    seeds: list[int]
    max_tokens: Positive  # longer inputs are cut
    keep_weights: Literal["none", "first_seed", "all"]
    # Which initial weights each trial of a run from scratch tries.
    initial_weights: list[InitialWeights] = ["as_pretrained", "usual"]
    screen: Screen | None = None  # without one, every run is fine-tuned


class Evaluation(Strict):
    confidence: Annotated[float, Field(gt=0, lt=1)]


class About(Strict):
    """What the report calls things, in words that a reader knows. No result depends on it."""

    title: Sentence | None = None  # the question of the study
    tasks: dict[Name, Sentence] = {}
    corpora: dict[Name, Sentence] = {}
    methods: dict[Name, Sentence] = {}


class Params(Strict):
    study: Name
    about: About = About()
    compute: Compute
    distributed: Distributed
    corpora: dict[Name, Corpus]
    tokenizers: dict[Name, AnyTokenizer]
    tasks: dict[Name, Task]
    pretrain: dict[Name, Run]
    budget: Budget
    baselines: dict[Name, Component]
    finetune: Finetune
    evaluation: Evaluation

    @property
    def pretrain_seeds(self) -> list[int]:
        """The seeds that runs have, each once."""
        return sorted({run.seed for run in self.pretrain.values()})


def load(path: Path = PATH) -> Params:
    """params.yaml, typed.

    Raises ValueError with one line per fault, each beginning with its path.
    """
    return typed(read_yaml(path))


def typed(raw: Settings) -> Params:
    """The parsed params.yaml, typed; raises ValueError as ``load`` does."""
    if faults := [*_key_faults(raw)]:
        raise ValueError("\n".join(faults))
    try:
        return Params.model_validate(raw)
    except ValidationError as error:
        raise ValueError(describe(error, "", known=_fields)) from None


def read_yaml(path: Path) -> Json:
    """A YAML file as DVC reads it (YAML 1.2: ``1e-3`` is a number).

    Raises ValueError if there is no such file or it is no mapping.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file; copy one of studies/ to it") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: must be UTF-8: {error}") from None
    if "<<:" in text:
        raise ValueError(f"{path}: merge keys (<<:) break `dvc exp run -S`; write the keys out")
    try:
        raw = YAML(typ="safe").load(text)
    except YAMLError as error:
        fault = str(error).replace('in "<unicode string>", ', "")
        raise ValueError(f"{path}: {' '.join(fault.split())}") from None
    if not isinstance(raw, dict):
        raise ValueError(f"{path}: must be a mapping of settings")
    return raw


def _key_faults(node: Any, where: str = "", *, inside: tuple[Any, ...] = ()) -> Iterator[str]:
    """Of keys and values anywhere below a node that DVC does not handle."""
    is_mapping = isinstance(node, Mapping)
    for key, value in node.items() if is_mapping else enumerate(node):
        path = f"{where}.{key}".lstrip(".")
        if is_mapping and not isinstance(key, str):
            yield f"{where or PATH}: the key {key!r} must be a string"
        elif key in ("size", "nfiles"):
            # DVC's run cache ignores these keys and would restore a stale result.
            yield f"{path}: DVC ignores the key {key!r}; choose another name"
        elif value is None or value == []:
            # DVC leaves both out of a stage's command, so editing them would rerun nothing.
            yield f"{path}: must not be empty; leave the key out or write {NONE!r}"
        elif any(value is outer for outer in (*inside, node)):
            yield f"{path}: must not contain itself (an alias inside its own anchor)"
        elif isinstance(value, Mapping | list):
            yield from _key_faults(value, path, inside=(*inside, node))


def _fields(loc: tuple[str | int, ...]) -> list[str]:
    """The valid keys at a place in params.yaml, for the message about an unknown one."""
    kind: Any = Params
    for part in loc:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kind = kind.model_fields[str(part)].annotation
            kind = next(iter(get_args(kind)), kind) if isinstance(kind, UnionType) else kind
        else:  # dict[Name, Model]: the entry's own name leads to Model
            kind = kind.__args__[1]
    return list(kind.model_fields) if isinstance(kind, type) else []  # type: ignore[attr-defined]


def entry(section: Mapping[str, T], key: str, *, where: str) -> T:
    """``section[key]``; raises ValueError that lists the valid keys."""
    if key not in section:
        raise ValueError(f"{where}: {unknown(key, section)}")
    return section[key]
