"""What each fine-tuning takes, computed from params.yaml and from the tasks that are prepared."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from stages.core.params import Adaptation, Params, Run
from stages.kinds._kind import rows_in_budget
from stages.methods._method import Method, SolvedMethod
from stages.models._backbone import MODELS, Backbone
from stages.models._backward import trains
from stages.models._costs import FLOAT32
from stages.models._heads import ModelWithHead
from stages.objectives._objective import OBJECTIVES
from stages.planning.run_sizes import (
    COPIES,
    backbone_of,
    kept_activation_bytes,
    num_weights,
    planned_runs,
)
from stages.planning.task_texts import Texts, counts_of, texts_of
from stages.tasks._task import TASKS
from stages.tasks._task import Task as TaskComponent
from stages.text.batch import Batch
from stages.training.finetuning import max_epochs, steps_per_epoch
from stages.trials.compatibility import incompatibility
from stages.trials.outcome import TrialKey
from stages.trials.prediction import PREDICTED_AT_ONCE
from stages.trials.runner import method_of
from stages.trials.variants import Variant, variants

ITERATIONS = 50  # about as many as a probe takes for each C


@dataclass
class Finetuning:
    """All trials of a run, a task and a method; ``flops`` as trials.csv counts them, without those
    of validation and prediction."""

    run: str
    task: str
    method: str
    architecture: str | None
    num_trials: int
    num_stored: int = 0  # of them in the store; what is said of work is of the others
    shares: list[float] = field(default_factory=list)  # of the work, by group of trials
    text_tokens: float | None = None  # of a text
    longest_text: int | None = None  # its tokens
    num_steps: int | None = None  # of a solved probe: passes over a batch of states
    tokens: int | None = None
    flops: int | None = None
    prediction_flops: int | None = None
    prediction_flops_of_all: int | None = None  # stored trials included
    memory_bytes: int | None = None  # of one trial
    disk_bytes: int | None = None
    rows_cut: float = 0.0  # share of some of the task's rows
    tokens_cut: float = 0.0
    assumes_lengths: bool = False
    leaves_out_rows: bool = False  # rows to predict that are not counted yet
    pending: bool = False
    seconds: float | None = None
    speed_from: str | None = None


def finetunings(
    params: Params,
    *,
    changed: Collection[str] = (),
    stored: Mapping[tuple[str, str], Collection[TrialKey]] = MappingProxyType({}),
) -> list[Finetuning]:
    """Of each compatible run, task and method. Tasks that are ``changed`` will be prepared again:
    what is prepared tells how long their texts are, but not how many there will be. The trials that
    are ``stored``, by run and task, take nothing."""
    runs = planned_runs(params)
    backbones = {key: backbone_of(params, run) for key, run in runs.items()}

    @cache
    def texts(run: str, task: str, text_to_text: bool) -> Texts:
        found = texts_of(params, run, task, text_to_text=text_to_text)
        asked: dict[str, Any] = {**counts_of(params.tasks[task])}
        return replace(found, **asked) if task in changed else found

    return [
        _finetuning(
            params, key, run, task, method, backbones[key], texts, stored.get((key, task), ())
        )
        for key, run in runs.items()
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
    params: Params,
    key: str,
    run: Run,
    task: str,
    method: str,
    outlined: Backbone | None,
    texts: Callable[[str, str, bool], Texts],
    stored: Collection[TrialKey],
) -> Finetuning:
    settings = params.finetune
    keys = [
        TrialKey(method, str(budget), seed)
        for budget, seed in product(settings.label_budgets, settings.seeds)
    ]
    missing = [trial for trial in keys if trial not in stored]
    architecture = None if outlined is None else outlined.architecture
    cost = Finetuning(key, task, method, architecture, len(keys), len(keys) - len(missing))
    of_task = texts(key, task, settings.methods[method].text_to_text)
    if outlined is None or (of_task.train is None and "all" in settings.label_budgets):
        return cost
    tried = variants(
        settings,
        method,
        params.tasks[task].task,
        outlined,
        has_prefix=OBJECTIVES.find(run.objective["name"], where="").has_prefix,
        from_scratch=run.from_scratch,
        where=f"tasks.{task}.task",
    )
    shape = _Shape.of(params, task, method, of_task, tried)
    cost.leaves_out_rows = None in (of_task.validation, of_task.test)
    cost.assumes_lengths, cost.text_tokens = of_task.assumed, round(shape.tokens, 1)
    cost.longest_text = max(of_task.lengths)
    cost.rows_cut, cost.tokens_cut = of_task.rows_cut, of_task.tokens_cut
    model = _adapted(params, run, method, writes=shape.uses_logits)
    _add_work(cost, run, shape, model, keys)
    cost.prediction_flops_of_all = cost.prediction_flops
    if missing != keys:
        _add_work(cost, run, shape, model, missing)
    _add_room(cost, params, shape, model)
    return cost


@dataclass(frozen=True)
class _Shape:
    """Of the trials of a task and a method: their texts, and what of the model they use."""

    texts: Texts
    method: Method
    training: Adaptation | None
    uses_logits: bool  # the vocabulary's: to write a text, or to score one
    labels: dict[str, int]  # of each label budget
    num_variants: int  # that each trial tries
    num_backbones: int  # in them, that differ in what a frozen one computes

    @property
    def tokens(self) -> float:
        """Of a text that is trained on, padding included."""
        return self.texts.padded(PREDICTED_AT_ONCE if not self.training else self._batch_examples)

    @property
    def _batch_examples(self) -> int:
        assert self.training is not None
        return self.training.batch_examples

    @staticmethod
    def of(
        params: Params, task: str, method: str, texts: Texts, tried: Sequence[Variant]
    ) -> "_Shape":
        entry = params.finetune.methods[method]
        kind = TASKS.find(params.tasks[task].task["name"], where="")
        made = method_of(params, method)
        return _Shape(
            texts,
            made,
            entry.training,
            kind.generates or kind.scores_text or entry.text_to_text or made.prompts,
            {
                str(b): int(b)
                if texts.train is None
                else rows_in_budget(str(b), texts.train, task=task)
                for b in params.finetune.label_budgets
            },
            len(tried),
            len({variant.backbone for variant in tried}),
        )

    def flops(self, backbone: Backbone) -> float:
        """Of a text, forward; without those of a head, which are few."""
        return backbone.flops(self.one_text()) + self._unembed_flops(backbone)

    def step_flops(self, backbone: Backbone) -> float:
        """The same, forward and backward, for the weights that train in the end."""
        gradients = trains(backbone.output_weights()) + trains(backbone.parameters())
        backward = backbone.backward_flops(self.one_text())
        return self.flops(backbone) + backward + gradients * self._unembed_flops(backbone)

    def _unembed_flops(self, backbone: Backbone) -> float:
        logits = self.texts.written or (self.tokens if self.uses_logits else 0)
        unembed = getattr(backbone, "unembed_flops", None)
        return unembed(round(logits)) if logits and unembed else 0

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


def _adapted(params: Params, run: Run, method: str, *, writes: bool) -> ModelWithHead:
    """The planned run's model as the method trains it, without a head; without storage for weights
    if the method computes nothing with them."""

    def made(backbone: Backbone | None) -> ModelWithHead:
        assert backbone is not None
        if not writes:
            backbone.drop_output_layers()
        model = ModelWithHead(backbone, nn.Identity())
        method_of(params, method).apply(model, generator=torch.Generator())
        return model

    try:
        return made(backbone_of(params, run))
    except RuntimeError:  # the method computes with the model's own weights
        vocab_size = backbone_of(params, run).vocab_size  # type: ignore[union-attr]
        return made(MODELS.build(run.model, vocab_size, where="model"))


def _add_work(
    cost: Finetuning, run: Run, shape: _Shape, model: ModelWithHead, trials: Sequence[TrialKey]
) -> None:
    """That of these trials, the missing ones."""
    texts, method, training = shape.texts, shape.method, shape.training
    forward, test = shape.flops(model.backbone.uncached), texts.test or 0
    examples = [round(shape.labels[trial.label_budget] * texts.per_row) for trial in trials]
    if training is not None:  # without patience: the most that it can take
        step = shape.step_flops(model.backbone)
        tries = len(training.rates) * shape.num_variants
        passes = [max_epochs(training, n) * tries for n in examples]
        seen = sum(n * p for n, p in zip(examples, passes, strict=True))
        steps = sum(steps_per_epoch(training, n) * p for n, p in zip(examples, passes, strict=True))
        # Each epoch is validated, and each variant predicts the test rows.
        rows = [p * (texts.validation or 0) + test * shape.num_variants for p in passes]
        works = [
            step / forward * n * p + r * texts.per_row
            for n, p, r in zip(examples, passes, rows, strict=True)
        ]
        cost.shares = [work / (sum(works) or 1) for work in works]
        cost.num_steps, cost.flops = steps, round(seen * step)
        predicted = sum(rows)
    else:
        # The states of validation and test rows are computed once, for all trials; from scratch for
        # each seed, which has a backbone of its own.
        seeds = {trial.finetune_seed for trial in trials}
        groups = len(seeds) if run.from_scratch else min(len(seeds), 1)
        backbones = groups * shape.num_backbones
        solved = isinstance(method, SolvedMethod)
        seen = sum(examples) * shape.num_backbones if solved else 0
        batches = sum(-(-n // PREDICTED_AT_ONCE) for n in examples)
        tries = len(method.C) * shape.num_variants if solved else 0
        cost.num_steps = tries * ITERATIONS * batches
        cost.shares = [1 / groups] * groups if groups else []
        cost.flops = round(seen * forward)
        predicted = backbones * (test + (texts.validation or 0) * solved)
    cost.tokens = round(seen * (shape.tokens + texts.written))
    cost.prediction_flops = round(predicted * texts.per_row * forward)


def _add_room(cost: Finetuning, params: Params, shape: _Shape, model: ModelWithHead) -> None:
    trained, settings = num_weights(model, trained_only=True), params.finetune
    kept = {"none": 0, "first_seed": 1, "all": len(settings.seeds)}[settings.keep_weights]
    trains_any = shape.training is not None or isinstance(shape.method, SolvedMethod)
    cost.disk_bytes = FLOAT32 * trained * kept * len(shape.labels) if trains_any else 0
    weights = FLOAT32 * (num_weights(model) + (COPIES - 1) * trained)
    if not trains_any or shape.method.freezes_backbone:
        cost.memory_bytes = weights  # no backward pass through the blocks
        return
    assert shape.training is not None
    batch = shape.one_text()
    logits = round(shape.texts.written or shape.tokens * shape.uses_logits)
    activations = kept_activation_bytes(model.backbone.uncached, batch, logits)
    if activations is not None:
        cost.memory_bytes = weights + shape.training.batch_examples * activations
