"""What each pretraining and each fine-tuning takes, from params.yaml and from what is prepared.

Nothing is computed here but sizes: models are outlines, without storage for their weights.
"""

from collections.abc import Collection
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn

from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl
from stages.core.params import Adaptation, Params, Run, Task
from stages.core.seeding import stream
from stages.kinds._kind import SPLITS, rows_in_budget
from stages.matching.budget import plans, public_outline, step_flops, trains, vocabulary_of
from stages.methods._method import Method
from stages.models._backbone import MODELS, Backbone, outline
from stages.models._costs import FLOAT32, activation_bytes_per_token
from stages.models._heads import ModelWithHead
from stages.models._transformer import TransformerBackbone
from stages.objectives._objective import Objective
from stages.tasks._task import TASKS
from stages.tasks._task import Task as TaskComponent
from stages.tasks._text_to_text import TextToText
from stages.text.batch import Batch
from stages.text.packing import Row
from stages.training.finetuning import BUCKET_BATCHES
from stages.training.pretraining import VALIDATION_ROWS, objective_for
from stages.trials.compatibility import incompatibility
from stages.trials.prediction import PREDICTED_AT_ONCE
from stages.trials.runner import method_of

COPIES = 4  # of each weight that trains: itself, its gradient, the two moments of Adam
SAMPLED_ROWS = 300  # of a split tell how long its texts are


@dataclass
class Pretraining:
    """Of a run; None is a number that is not known as yet (of a public checkpoint) or that does
    not apply."""

    run: str
    objective: str
    architecture: str | None
    num_layers: int | None
    num_params: int | None
    num_steps: int | None = None
    tokens: int | None = None
    flops: int | None = None
    validation_flops: int | None = None  # at most
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    pending: bool = False
    seconds: float | None = None
    speed_from: str | None = None


@dataclass
class Finetuning:
    """All trials of a run, a task and a method; ``flops`` as trials.csv counts them, those of
    validation and prediction apart."""

    run: str
    task: str
    method: str
    architecture: str | None
    num_trials: int
    shares: list[float] = field(default_factory=list)  # of the work, by the groups that run apart
    text_tokens: float | None = None  # of a text
    longest_text: int | None = None  # its tokens
    num_steps: int | None = None
    tokens: int | None = None
    flops: int | None = None
    prediction_flops: int | None = None
    memory_bytes: int | None = None  # of one trial
    disk_bytes: int | None = None
    assumes_lengths: bool = False
    leaves_out_rows: bool = False  # those to predict, where nobody has counted them as yet
    pending: bool = False
    seconds: float | None = None
    speed_from: str | None = None


@dataclass(frozen=True)
class Texts:
    """Of a task, to a tokenizer: how many rows and examples there are and how long they are."""

    train: int | None  # None is "all" of what nobody has counted
    validation: int | None
    test: int | None
    lengths: tuple[int, ...]  # the tokens of some examples
    written: float  # tokens of the text that is to be written; 0 where none is
    per_row: float  # examples of a row: more than one where texts are cut into windows
    assumed: bool  # nothing is prepared as yet: each is taken to be as long as it may be

    def padded(self, batch_examples: int) -> float:
        """The tokens of an example with its padding, in batches as fine-tuning cuts them."""
        lengths = np.array(self.lengths)
        bucket = np.arange(len(lengths)) // (BUCKET_BATCHES * batch_examples)
        lengths = lengths[np.lexsort((lengths, bucket))]
        batches = [
            lengths[at : at + batch_examples] for at in range(0, len(lengths), batch_examples)
        ]
        return sum(len(batch) * int(batch.max()) for batch in batches) / len(lengths)


def planned_runs(params: Params) -> dict[str, Run]:
    return {key: params.pretrain[key].planned(asdict(plan)) for key, plan in plans(params).items()}


def backbone_of(params: Params, run: Run) -> Backbone | None:
    """Without storage for its weights; None for a public checkpoint that is not here."""
    if run.is_public:
        return public_outline(run, where="model")
    vocabulary = vocabulary_of(params, run)
    assert vocabulary is not None
    return outline(run.model, vocabulary.vocab_size, where="model")


def num_weights(model: nn.Module, *, trained_only: bool = False) -> int:
    weights = (w for w in model.parameters() if w.requires_grad or not trained_only)
    return sum(weight.numel() for weight in weights)


# Of pretraining.


def pretrainings(params: Params) -> list[Pretraining]:
    return [_pretraining(params, key, run) for key, run in planned_runs(params).items()]


def _pretraining(params: Params, key: str, run: Run) -> Pretraining:
    backbone = backbone_of(params, run)
    cost = Pretraining(key, run.learnt[0], None, None, None)
    if backbone is None:
        return cost
    cost.architecture, cost.num_layers = backbone.architecture, backbone.num_layers
    cost.num_params = num_weights(backbone)
    cost.disk_bytes = FLOAT32 * cost.num_params
    if trains(run):
        training = run.training
        cost.num_steps = training.num_steps
        cost.tokens = training.num_steps * training.batch_rows * training.max_tokens
        each = step_flops(params, run)
        cost.flops = training.num_steps * each
        validated = training.num_validations * VALIDATION_ROWS / training.batch_rows
        cost.validation_flops = round(validated * each / 3)
        shape = {"rows": training.micro_batch_rows, "length": training.max_tokens}
        batch = random_batch(objective_of(params, run), **shape)
        copied = COPIES * FLOAT32 * cost.num_params
        labels = 0 if batch.labels is None else batch.labels.numel()
        kept = _activation_bytes(backbone, batch, labels)
        cost.memory_bytes = None if kept is None else copied + kept
    return cost


def objective_of(params: Params, run: Run) -> Objective:
    """As it is for the run's architecture."""
    vocabulary, backbone = vocabulary_of(params, run), backbone_of(params, run)
    assert vocabulary is not None and backbone is not None
    return objective_for(run, vocabulary, backbone, where="")


def random_batch(objective: Objective, *, rows: int, length: int) -> Batch:
    """Of random tokens: each row is one document, in sentences of 16 tokens."""
    ids = objective.vocabulary.regular_ids
    documents = np.ones(length, dtype=np.int64)
    begins = np.arange(length) % 16 == 0
    made = []
    for i in range(rows):
        tokens = ids[stream(0, "plan", i).integers(len(ids), size=length)]
        row = Row(tokens, documents, starts_sentence=begins)
        made.append(Row(tokens, documents, other=row, starts_sentence=begins))
    return objective.collate(made, rngs=[stream(0, "plan corruption", i) for i in range(rows)])


def _activation_bytes(backbone: Backbone, batch: Batch, num_logits: int) -> int | None:
    """What the backward pass keeps, of transformers of this project. Of an encoder-decoder the
    account is that of two stacks of their own: what the decoder keeps of attention to the encoder
    is left out."""
    if not isinstance(backbone, TransformerBackbone):
        return None
    sides = [("encoder", batch.input_ids)]
    if batch.decoder_input_ids is not None:
        sides.append(("decoder", batch.decoder_input_ids))
    total = 0.0
    for i, (architecture, ids) in enumerate(sides):
        logits = num_logits if i == len(sides) - 1 else 0
        per_token = activation_bytes_per_token(
            architecture,  # type: ignore[arg-type] (a block keeps as much in either)
            backbone.vocab_size,
            backbone.dims,
            length=ids.shape[1],
            predicted=logits / ids.numel(),
        )
        total += ids.numel() * per_token
    return round(total)


# Of fine-tuning.


def finetunings(params: Params, *, changed: Collection[str] = ()) -> list[Finetuning]:
    """Of each run, task and method that go together. Tasks that are ``changed`` are to be prepared
    anew: the texts that are there tell how long texts are, not how many there will be."""
    runs = planned_runs(params)
    backbones = {key: backbone_of(params, run) for key, run in runs.items()}

    @cache
    def texts(run: str, task: str, text_to_text: bool) -> Texts:
        found = _texts(params, run, task, text_to_text=text_to_text)
        asked = _counts(params.tasks[task])
        return replace(found, **asked) if task in changed else found

    return [
        _finetuning(params, key, task, method, backbones[key], texts)
        for key in runs
        for task in params.tasks
        for method in params.finetune.methods
        if _fits(params, task, method, backbones[key])
    ]


def _fits(params: Params, task_key: str, method_key: str, backbone: Backbone | None) -> bool:
    if backbone is None:  # which is found out when it is downloaded
        return True
    entry, name = params.finetune.methods[method_key], params.tasks[task_key].task["name"]
    kind: type[TaskComponent] = TASKS.find(name, where="")
    method = method_of(params, method_key)
    return incompatibility(method, kind, name, backbone, text_to_text=entry.text_to_text) is None


def _finetuning(
    params: Params, run: str, task: str, method: str, outlined: Backbone | None, texts: Any
) -> Finetuning:
    settings = params.finetune
    num_trials = len(settings.label_budgets) * len(settings.seeds)
    architecture = None if outlined is None else outlined.architecture
    cost = Finetuning(run, task, method, architecture, num_trials)
    of_task: Texts = texts(run, task, settings.methods[method].text_to_text)
    if outlined is None or (of_task.train is None and "all" in settings.label_budgets):
        return cost
    shape = _Shape.of(params, task, method, of_task)
    cost.leaves_out_rows = None in (of_task.validation, of_task.test)
    cost.assumes_lengths, cost.text_tokens = of_task.assumed, round(shape.tokens, 1)
    cost.longest_text = max(of_task.lengths)
    model = _adapted(params, run, method, writes=shape.uses_logits)
    _add_work(cost, params, shape, model)
    _add_room(cost, params, shape, model)
    return cost


@dataclass(frozen=True)
class _Shape:
    """Of the trials of a task and a method: their texts, and what of the model they use."""

    texts: Texts
    method: Method
    training: Adaptation | None
    uses_logits: bool  # the vocabulary's: to write a text, or to score one
    label_budgets: list[int]

    @property
    def tokens(self) -> float:
        """Of a text that is trained on, padding included."""
        return self.texts.padded(PREDICTED_AT_ONCE if not self.training else self._batch_examples)

    @property
    def _batch_examples(self) -> int:
        assert self.training is not None
        return self.training.batch_examples

    @staticmethod
    def of(params: Params, task: str, method: str, texts: Texts) -> "_Shape":
        entry = params.finetune.methods[method]
        kind: Any = TASKS.find(params.tasks[task].task["name"], where="")
        made = method_of(params, method)
        return _Shape(
            texts,
            made,
            entry.training,
            kind.generates or kind.scores_text or entry.text_to_text or made.prompts,
            [
                int(b) if texts.train is None else rows_in_budget(str(b), texts.train, task=task)
                for b in params.finetune.label_budgets
            ],
        )

    def flops(self, backbone: Any) -> float:
        """Of a text, forward; without those of a head, which are few."""
        total = backbone.flops(self.one_text())
        logits = self.texts.written or (self.tokens if self.uses_logits else 0)
        unembed = getattr(backbone, "unembed_flops", None)
        return total + (unembed(round(logits)) if logits and unembed else 0)

    def one_text(self) -> Batch:
        """Of the mean length."""
        ids = torch.zeros(1, max(round(self.tokens), 1), dtype=torch.long)
        length = round(self.texts.written)
        written = torch.zeros(1, length, dtype=torch.long) if length else None
        return Batch(
            input_ids=ids,
            document_ids=torch.ones_like(ids),
            decoder_input_ids=written,
            decoder_document_ids=None if written is None else torch.ones_like(written),
            num_targets={},
        )


def _adapted(params: Params, run: str, method: str, *, writes: bool) -> ModelWithHead:
    """The run's model as the method trains it, without a head; without storage if that will do."""
    planned = planned_runs(params)[run]

    def made(backbone: Backbone | None) -> ModelWithHead:
        assert backbone is not None
        if not writes:
            backbone.drop_output_layers()
        model = ModelWithHead(backbone, nn.Identity())
        method_of(params, method).apply(model, generator=torch.Generator())
        return model

    try:
        return made(backbone_of(params, planned))
    except RuntimeError:  # a method that computes something with the model's own weights
        vocab_size = backbone_of(params, planned).vocab_size  # type: ignore[union-attr]
        return made(MODELS.build(planned.model, vocab_size, where="model"))


def _add_work(cost: Finetuning, params: Params, shape: _Shape, model: ModelWithHead) -> None:
    texts, method, training = shape.texts, shape.method, shape.training
    forward = shape.flops(model.backbone.uncached)
    seeds, seen = len(params.finetune.seeds), []  # examples, by label budget
    validated, steps, passes = 0.0, 0, 0
    for budget in shape.label_budgets:
        examples = round(budget * texts.per_row)
        if training is not None:
            passes = training.num_epochs * len(training.rates)
            steps += seeds * passes * -(-examples // training.batch_examples)
            validated = passes * (texts.validation or 0)
        seen.append(examples * (1 if method.freezes_backbone else passes))
    cost.num_steps = steps
    trained = 0 if training is None else seeds * sum(seen)
    cost.tokens = round(trained * (shape.tokens + texts.written))
    if method.freezes_backbone:  # the states of each text are computed once, for all trials
        cost.flops = round(trained * forward)
        rows = (texts.test or 0) + (0 if training is None else texts.validation or 0)
        cost.shares = [1.0]
    else:
        cost.flops = round(3 * trained * forward)
        each = validated + (texts.test or 0)
        rows = seeds * len(seen) * each
        works = [3 * examples + each * texts.per_row for examples in seen for _ in range(seeds)]
        cost.shares = [work / (sum(works) or 1) for work in works]
    cost.prediction_flops = round(rows * texts.per_row * forward)


def _add_room(cost: Finetuning, params: Params, shape: _Shape, model: ModelWithHead) -> None:
    trained, settings = num_weights(model, trained_only=True), params.finetune
    kept = {"none": 0, "first_seed": 1, "all": len(settings.seeds)}[settings.keep_weights]
    trains_any = shape.training is not None
    cost.disk_bytes = FLOAT32 * trained * kept * len(shape.label_budgets) if trains_any else 0
    weights = FLOAT32 * (num_weights(model) + (COPIES - 1) * trained)
    if not trains_any or shape.method.freezes_backbone:
        cost.memory_bytes = weights  # no backward pass through the blocks
        return
    assert shape.training is not None
    batch = shape.one_text()
    logits = round(shape.texts.written or shape.tokens * shape.uses_logits)
    activations = _activation_bytes(model.backbone.uncached, batch, logits)
    if activations is not None:
        cost.memory_bytes = weights + shape.training.batch_examples * activations


# Of the texts of a task.


def _texts(params: Params, run_key: str, task_key: str, *, text_to_text: bool) -> Texts:
    """From what is prepared, where both the task and the tokenizer are; else as params.yaml has
    it."""
    try:
        return _prepared(params, run_key, task_key, text_to_text=text_to_text)
    except (ValueError, OSError):
        return _assumed(params.tasks[task_key], params, text_to_text=text_to_text)


def _prepared(params: Params, run_key: str, task_key: str, *, text_to_text: bool) -> Texts:
    """Raises ValueError or OSError where something is not there."""
    run, examples = params.pretrain[run_key], paths.examples(task_key)
    kind: Any = MODELS.find(run.model["name"], where="model")
    folder = paths.PRETRAINED / run_key if run.is_public else paths.TOKENIZERS / run.tokenizer
    if not folder.is_dir():
        raise FileNotFoundError(folder)
    record = read_json(examples / "task.json")
    if record["task"]["name"] != params.tasks[task_key].task["name"]:
        raise ValueError(f"{examples}: prepared as another task")
    rows = {split: read_jsonl(examples / f"{split}.jsonl") for split in SPLITS}
    task: TaskComponent = TASKS.build(
        record["task"],
        record["labels"],
        kind.tokenizer_of(run.model, folder),
        params.finetune.max_tokens,
        where="task",
    )
    if text_to_text:
        task = TextToText(task_key, record, task)
    sampled = rows["train"][:SAMPLED_ROWS]
    encoded = task.encode(sampled)
    written = [len(e.labels) if task.generates else 0 for e in encoded]
    return Texts(
        *(len(rows[split]) for split in SPLITS),
        lengths=tuple(len(example.tokens) for example in encoded),
        written=float(np.mean(written)),
        per_row=len(encoded) / len(sampled),
        assumed=False,
    )


def _assumed(task: Task, params: Params, *, text_to_text: bool) -> Texts:
    """Texts that are as long as ``finetune.max_tokens`` allows, which is the most."""
    longest = params.finetune.max_tokens
    kind: Any = TASKS.find(task.task["name"], where="task")
    written = 0
    if kind.generates or text_to_text:
        written = int(task.task.get("max_target_tokens", longest))
    lengths = (longest,)
    return Texts(**_counts(task), lengths=lengths, written=written, per_row=1, assumed=True)


def _counts(task: Task) -> dict[str, int | None]:
    """How many rows params.yaml asks for, by split; None is all of what there is."""
    asked = {"train": task.num_train, "validation": task.num_validation, "test": task.num_test}
    return {split: None if n == "all" else int(n) for split, n in asked.items()}
