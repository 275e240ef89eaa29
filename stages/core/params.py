"""The typed top level of params.yaml. Nearly every field is required, so that the file shows what a
study does.

Components (``{name: ..., ...}``) are plain mappings here; ``stages.core.components.build`` checks
them against the constructor that they name.
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
MAX_VOCAB_SIZE = 10_000_000  # a larger one is a mistake, and takes gigabytes to check
HUB = "hub"  # the model of a public checkpoint, and the algorithm of its tokenizer

NAME = r"[a-z][a-z0-9_]*"
# The initial weights of a run from scratch: ``as_pretrained`` draws the weights that its
# pretraining would start from, with the model's ``locality``; ``usual`` draws them without it, as
# BERT and GPT-2.
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
    floats = [*map(float, rates)]
    return floats if len(floats) > 1 else floats[0]


class Strict(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        protected_namespaces=(),
        use_attribute_docstrings=True,
    )


class Compute(Strict):
    """The arithmetic of training. Every field can change the last bits of weights, so all of them
    are part of every trained artifact."""

    device: Literal["auto", "cpu", "cuda"]
    """Device of pretraining and fine-tuning; ``auto`` is CUDA if available."""
    precision: Literal["auto", "float32", "bfloat16"]
    """Precision of training; ``auto`` is bfloat16 if the hardware computes in it."""
    compile: bool
    """Whether models are compiled by ``torch.compile``."""
    threads: Positive
    """Threads of one pretraining."""
    trial_threads: Positive
    """Threads of one fine-tuning trial; ``threads // trial_threads`` trials run in parallel."""


class Distributed(Strict):
    """The processes of one pretraining, one for each device. Another number of processes changes
    the last bits of weights."""

    devices: Positive
    """Devices of each node; on a CPU, processes that share ``compute.threads``."""
    num_nodes: Positive
    """Nodes of one pretraining."""
    strategy: Literal["ddp", "fsdp"]
    """Whether the weights are on every device (``ddp``) or sharded over all (``fsdp``)."""

    @property
    def num_ranks(self) -> int:
        return self.devices * self.num_nodes


class Corpus(Strict):
    """One entry of ``corpora:``."""

    source: Component
    """Component of ``stages/sources`` that the documents come from."""
    max_tokens: NumberOrAll
    """Number of tokens to keep for training, or ``all``."""
    decontaminate_against: Literal["none", "tasks"]
    """Whether the test texts of the study's tasks are removed from the corpus."""


class Tokenizer(Strict):
    """One entry of ``tokenizers:``, trained on a corpus."""

    corpus: Name
    """Corpus that the tokenizer is trained on."""
    algorithm: Literal["unigram", "bpe", "char"]
    """Algorithm of sentencepiece."""
    vocab_size: Annotated[int, Field(gt=0, le=MAX_VOCAB_SIZE)]
    """Number of token ids, special tokens and sentinels included."""
    max_sentences: Positive
    """Number of sentences to sample for training the tokenizer."""


class PublishedTokenizer(Strict):
    """One entry of ``tokenizers:`` with a public checkpoint's tokenizer, for runs that pretrain the
    checkpoint further."""

    corpus: Literal["none"]
    """No corpus, since the tokenizer is trained already."""
    algorithm: Literal["hub"]
    """``hub`` for a tokenizer of a public checkpoint."""
    path: str
    """Name of the checkpoint on the hub, or a local folder."""
    revision: str
    """Hash of the commit on the hub, or of the folder's content."""


def _of_its_kind(entry: Any) -> Any:
    """Types an entry of ``tokenizers:`` by its algorithm, so that faults are those of the one
    type."""
    if isinstance(entry, BaseModel):
        return entry
    is_published = isinstance(entry, Mapping) and entry.get("algorithm") == HUB
    return (PublishedTokenizer if is_published else Tokenizer).model_validate(entry)


AnyTokenizer = Annotated[Tokenizer | PublishedTokenizer, BeforeValidator(_of_its_kind)]


class Schedule(Strict):
    """AdamW with linear warm-up, then the decay."""

    warmup_fraction: Fraction
    """Fraction of the steps that the warm-up takes."""
    decay: Literal["linear", "cosine", "constant"]
    """Shape of the learning rate after the warm-up."""
    weight_decay: Annotated[Real, Field(ge=0)]
    """Decoupled weight decay of AdamW."""
    max_grad_norm: Annotated[Real, Field(gt=0)]
    """Norm to which larger gradients are clipped."""


class Optimisation(Schedule):
    """A schedule at one learning rate."""

    lr: Annotated[Real, Field(gt=0)]
    """Highest learning rate, reached at the end of the warm-up."""


class Tuned(Schedule):
    """A schedule at one learning rate, or once at each of several, from which validation
    chooses."""

    lr: Annotated[float | list[float], BeforeValidator(_rates)]
    """Highest learning rate, or a list of rates to try."""

    @property
    def rates(self) -> list[float]:
        return self.lr if isinstance(self.lr, list) else [self.lr]

    def at(self, lr: float) -> Optimisation:
        schedule = {name: getattr(self, name) for name in Schedule.model_fields}
        return Optimisation(lr=lr, **schedule)


class Training(Tuned):
    """The pretraining of a run, on unlabelled rows.

    With several learning rates the run is trained once at each, from the same start and for the
    same number of steps, and keeps the rate with the lowest validation loss at the end; ties go to
    the first in the list.
    """

    num_steps: Positive
    """Optimizer steps of the run."""
    batch_rows: Positive
    """Rows of ``max_tokens`` tokens in one step."""
    micro_batch_rows: Positive
    """Rows in memory at once; without dropout no weight depends on it."""
    max_tokens: Positive
    """Tokens of one row."""
    num_validations: Positive
    """Number of validations, evenly spaced over the steps, the last one at the end."""


class Run(Strict):
    """One entry of ``pretrain:``."""

    corpus: Name
    """Corpus to pretrain on, or ``none``."""
    tokenizer: Name
    """Tokenizer of the model, or ``none`` for a public checkpoint as published."""
    parent: Name
    """Run whose weights this run continues from or whose model teaches it, or ``none``."""
    model: Component
    """Component of ``stages/models`` with its dimensions."""
    objective: Component
    """Component of ``stages/objectives``; ``none`` keeps the weights as they are."""
    training: Training
    """Pretraining schedule and batches."""
    seed: int
    """Pretraining seed of initial weights, order of rows, masks and dropout."""

    @property
    def is_public(self) -> bool:
        """Whether the run is a public checkpoint, pretrained by others and perhaps further by its
        own objective."""
        return self.model.get("name") == HUB

    @property
    def as_published(self) -> bool:
        """Whether the run is a public checkpoint that is not pretrained further."""
        return self.is_public and self.objective.get("name") == NONE

    @property
    def from_scratch(self) -> bool:
        """Whether the weights are random: each trial of the run draws its own."""
        return self.objective.get("name") == self.parent == NONE and not self.is_public

    @property
    def learnt(self) -> tuple[str, str]:
        """The objective and the corpus that the run learnt from last, as tables show them."""
        if self.as_published:
            return HUB, str(self.model["path"])
        return self.objective["name"], self.corpus

    def planned(self, plan: Settings) -> "Run":
        """Returns the run with the settings of its matched budget, which are in ``data/plans/``."""
        training = self.training.model_copy(update={"num_steps": plan["num_steps"]})
        return self.model_copy(update={"model": plan["model"], "training": training})


class Budget(Strict):
    """The budget that all runs that train share with the reference run.

    ``tokens`` and ``flops`` set the number of steps. ``parameters`` sets the layers of an
    encoder-decoder, the cells of a biLSTM and the number of steps. With ``none`` each run keeps its
    own settings.
    """

    matched: Literal["none", "tokens", "flops", "parameters"]
    """What is equal between runs."""
    reference: Name
    """Run whose budget the others match."""


class Task(Strict):
    """One entry of ``tasks:``."""

    task: Component
    """Component of ``stages/tasks``."""
    source: Component
    """Component of ``stages/sources`` that the labelled rows come from."""
    num_train: NumberOrAll
    """Training rows to sample, or ``all``."""
    num_validation: NumberOrAll
    """Validation rows to sample, or ``all``."""
    num_test: NumberOrAll
    """Test rows to sample, or ``all``."""
    seed: int
    """Seed of the samples."""


class Adaptation(Tuned):
    """The training of a trial, on labelled examples.

    A trial takes at least ``num_epochs`` epochs and at least ``min_steps`` steps, which few labels
    need (Mosbach et al. 2021; Zhang et al. 2021). The learning rate decays over all of them, and
    the last epoch is kept. With ``patience`` the trial stops after the warm-up as soon as that many
    epochs bring neither a better metric nor a lower loss on validation, and the epoch that is best
    on validation is kept.

    With several learning rates each trial is trained once at each, and keeps the rate whose kept
    epoch is best on validation; ties go to the first in the list.
    """

    num_epochs: Positive
    """Fewest epochs."""
    min_steps: Annotated[int, Field(ge=0)]
    """Fewest optimizer steps."""
    patience: Positive | Literal["none"]
    """Epochs without improvement on validation before a trial stops, or ``none``."""
    batch_examples: Positive
    """Labelled examples in one step."""


class Method(Strict):
    """One entry of ``finetune.methods:``."""

    method: Component
    """Component of ``stages/methods``."""
    text_to_text: bool = False
    """Whether the task is one of writing: no head, and the answers are texts."""
    training: Adaptation | None = None
    """Training of a trial; required for methods that train, and refused for others."""


class Screen(Strict):
    """Limits fine-tuning on each task to the ``keep`` pretrained runs with the highest estimates,
    in addition to the runs from scratch. Runs that differ in their seeds alone count as one."""

    by: Literal["h_score", "h_score_above_chance", "logme", "knn"]
    """Estimate that ranks the runs."""
    keep: Positive
    """Number of pretrained runs to fine-tune."""


class Finetune(Strict):
    """The section ``finetune:``."""

    methods: dict[Name, Method]
    """Ways to adapt a run to a task."""
    label_budgets: list[NumberOrAll]
    """Numbers of labelled examples to train on, or ``all``."""
    seeds: list[int]
    """Fine-tuning seeds of every trial."""
    max_tokens: Positive
    """Longest input in tokens; longer inputs are cut."""
    keep_weights: Literal["none", "first_seed", "all"]
    """Trials whose weights are stored."""
    initial_weights: list[InitialWeights] = ["as_pretrained", "usual"]
    """Initial weights that each trial of a run from scratch tries."""
    screen: Screen | None = None
    """Selection of runs by estimates; without it, every run is fine-tuned."""


class Evaluation(Strict):
    """The section ``evaluation:``."""

    confidence: Annotated[float, Field(gt=0, lt=1)]
    """Confidence level of intervals."""


class About(Strict):
    """Names of things in the report, in words that a reader knows. No result depends on them."""

    title: Sentence | None = None
    """Question of the study."""
    tasks: dict[Name, Sentence] = {}
    """Description of each task."""
    corpora: dict[Name, Sentence] = {}
    """Description of each corpus."""
    methods: dict[Name, Sentence] = {}
    """Description of each method."""


class Params(Strict):
    """The whole of params.yaml."""

    study: Name
    """Name of the study."""
    about: About = About()
    """Names of things in the report."""
    compute: Compute
    """Device, precision and threads."""
    distributed: Distributed
    """Processes of one pretraining."""
    corpora: dict[Name, Corpus]
    """Unlabelled texts, by name."""
    tokenizers: dict[Name, AnyTokenizer]
    """Tokenizers, by name."""
    tasks: dict[Name, Task]
    """Labelled data, by name."""
    pretrain: dict[Name, Run]
    """Pretraining runs, by name."""
    budget: Budget
    """Budget that runs have in common."""
    baselines: dict[Name, Component]
    """Classical models without pretraining, by name."""
    finetune: Finetune
    """Methods, label budgets and seeds of fine-tuning."""
    evaluation: Evaluation
    """Statistics of the report."""

    @property
    def pretrain_seeds(self) -> list[int]:
        """The seeds of the runs, each once."""
        return sorted({run.seed for run in self.pretrain.values()})


def load(path: Path = PATH) -> Params:
    """Reads and types params.yaml.

    Raises ValueError with one line per fault, each beginning with its path.
    """
    return typed(read_yaml(path))


def typed(raw: Settings) -> Params:
    """Returns the parsed params.yaml as ``Params``; raises the errors of ``load``."""
    if faults := [*_key_faults(raw)]:
        raise ValueError("\n".join(faults))
    try:
        return Params.model_validate(raw)
    except ValidationError as error:
        raise ValueError(describe(error, "", known=_fields)) from None


def read_yaml(path: Path) -> Json:
    """Reads a YAML file as DVC does (YAML 1.2: ``1e-3`` is a number).

    Raises ValueError if the file does not exist or is no mapping.
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
    """Yields the faults of keys and values anywhere below a node that DVC cannot handle."""
    is_mapping = isinstance(node, Mapping)
    for key, value in node.items() if is_mapping else enumerate(node):
        path = f"{where}.{key}".lstrip(".")
        if is_mapping and not isinstance(key, str):
            yield f"{where or PATH}: the key {key!r} must be a string"
        elif key in ("size", "nfiles"):
            # DVC's run cache ignores these keys and would restore a stale result.
            yield f"{path}: DVC ignores the key {key!r}; choose another name"
        elif value is None or value == []:
            # DVC omits both from a stage's command, so editing them would rerun nothing.
            yield f"{path}: must not be empty; leave the key out or write {NONE!r}"
        elif any(value is outer for outer in (*inside, node)):
            yield f"{path}: must not contain itself (an alias inside its own anchor)"
        elif isinstance(value, Mapping | list):
            yield from _key_faults(value, path, inside=(*inside, node))


def _fields(loc: tuple[str | int, ...]) -> list[str]:
    """Returns the valid keys at a location in params.yaml, for the message about an unknown key."""
    kind: Any = Params
    for part in loc:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kind = kind.model_fields[str(part)].annotation
            kind = next(iter(get_args(kind)), kind) if isinstance(kind, UnionType) else kind
        else:  # dict[Name, Model]: the entry's own name leads to Model
            kind = kind.__args__[1]
    return list(kind.model_fields) if isinstance(kind, type) else []  # type: ignore[attr-defined]


def entry(section: Mapping[str, T], key: str, *, where: str) -> T:
    """Returns ``section[key]``; raises ValueError that lists the valid keys."""
    if key not in section:
        raise ValueError(f"{where}: {unknown(key, section)}")
    return section[key]
