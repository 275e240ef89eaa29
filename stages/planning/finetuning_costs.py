"""The cost of each fine-tuning, computed from params.yaml and from the tasks that are prepared."""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product

import torch
from torch import Tensor, nn

from stages.core.components import Settings
from stages.core.keys import TrialKey
from stages.core.params import Adaptation, Finetune, Params, Run
from stages.kinds._kind import rows_in_budget
from stages.methods._method import Method, SolvedMethod
from stages.models._backbone import Backbone
from stages.models._costs import FLOAT32
from stages.models._heads import ModelWithHead
from stages.objectives._objective import OBJECTIVES
from stages.planning.pretraining_costs import (
    COPIES,
    backbone_of,
    kept_activation_bytes,
    num_weights,
)
from stages.planning.task_texts import Rows, Texts, counts_of, rows_of, texts_of
from stages.tasks._task import TASKS
from stages.tasks._task import Task as TaskComponent
from stages.text.batch import Batch
from stages.training.finetuning import max_epochs, steps_per_epoch
from stages.training.flops import FlopsByBatch, OnMeta, of_outline
from stages.trials.compatibility import incompatibility
from stages.trials.prediction import PREDICTED_AT_ONCE
from stages.trials.runner import method_of
from stages.trials.variants import variants

_KnownFlops = defaultdict[tuple[str, bool], FlopsByBatch]  # by (forward or step, uses logits)


@dataclass
class Finetuning:
    """The cost of all trials of one run on one task by one method. Amounts of work leave out stored
    trials. ``flops`` are counted as in trials.csv, without validation and prediction."""

    run: str
    task: str
    method: str
    num_trials: int = 0
    num_stored: int = 0  # trials that the store has
    architecture: str | None = None
    d_model: int | None = None
    shares: list[float] = field(default_factory=list)  # of the work, one share per group of trials
    text_tokens: float | None = None  # mean of a text or window, with padding
    longest_text: int | None = None  # in tokens; the longest window of texts read in windows
    written: float = 0.0  # mean tokens of the text that is written; 0 if none
    num_steps: int | None = None  # None if nothing is trained by steps
    tokens: int | None = None
    flops: int | None = None
    prediction_flops: int | None = None
    prediction_flops_of_all: int | None = None  # stored trials included
    memory_bytes: int | None = None  # of one trial
    disk_bytes: int | None = None
    rows_cut: float = 0.0  # share of cut rows, in a sample of the task's rows
    tokens_cut: float = 0.0
    assumes_lengths: bool = False
    leaves_out_rows: bool = False  # whether some rows to predict are not counted yet
    pending: bool = False
    seconds: float | None = None
    alone_s: float | None = None  # seconds of its groups of trials, one after the other
    speed_from: str | None = None


def finetunings(
    study: Params, *, changed: Collection[str] = (), stored: Collection[TrialKey] = ()
) -> list[Finetuning]:
    """Returns the cost of each compatible combination of run, task and method, in a study under
    the matched budget.

    The tasks in ``changed`` will be prepared again: the lengths of their texts are taken from the
    rows that are prepared now, but the numbers of rows from params.yaml. The trials in ``stored``
    cost nothing.
    """
    backbones = {key: backbone_of(run, study.tokenizers) for key, run in study.runs.items()}
    flops = defaultdict[str, _KnownFlops](lambda: defaultdict(FlopsByBatch))

    @cache
    def rows(task: str) -> Rows | None:
        of_task = rows_of(task, study.tasks[task], study.finetune.seeds[0])
        if of_task and of_task.are_prepared and task in changed:
            return replace(of_task, counts=counts_of(study.tasks[task]))
        return of_task

    @cache
    def texts(run: str, task: str, text_to_text: bool) -> Texts:
        entry, settings = study.tasks[task], study.finetune
        return texts_of(
            run, study.runs[run], task, entry, settings, rows(task), text_to_text=text_to_text
        )

    costs = list[Finetuning]()
    for (key, run), (task, entry) in product(study.runs.items(), study.tasks.items()):
        for method in study.finetune.methods_of(key):
            if not _fits(study.finetune, method, entry.task["name"], backbones[key]):
                continue
            read = texts(key, task, study.finetune.methods[method].text_to_text)
            cost = Finetuning(key, task, method)
            counted = flops[json.dumps([run.model, run.tokenizer, method])]
            # A method changes its backbone, so each method gets a new backbone.
            backbone = backbone_of(run, study.tokenizers) if backbones[key] else None
            _estimate(cost, run, entry.task, study.finetune, backbone, read, stored, counted)
            costs.append(cost)
    return costs


def _fits(finetune: Finetune, method: str, task: str, backbone: Backbone | None) -> bool:
    """Returns whether a method can adapt ``backbone`` to a kind of task."""
    if backbone is None:  # not downloaded, so assumed to fit
        return True
    kind: type[TaskComponent] = TASKS.find(task, where="")
    made, text_to_text = method_of(finetune, method), finetune.methods[method].text_to_text
    return incompatibility(made, kind, task, backbone, text_to_text=text_to_text) is None


def _estimate(
    cost: Finetuning,
    run: Run,
    component: Settings,
    settings: Finetune,
    backbone: Backbone | None,
    of_task: Texts,
    stored: Collection[TrialKey],
    flops: "_KnownFlops",
) -> None:
    """Sets the numbers of ``cost``, as far as they are known."""
    key, task, method = cost.run, cost.task, cost.method
    trials = [
        TrialKey(key, pretrain_seed, task, method, str(budget), seed)
        for pretrain_seed, budget, seed in product(
            run.seeds, settings.label_budgets, settings.seeds
        )
    ]
    missing = [trial for trial in trials if trial not in stored]
    cost.num_trials, cost.num_stored = len(trials), len(trials) - len(missing)
    if backbone is None:
        return
    cost.architecture, cost.d_model = backbone.architecture, backbone.d_model
    if of_task.train is None and "all" in settings.label_budgets:
        return
    tried = variants(
        settings,
        method,
        component,
        backbone,
        has_prefix=OBJECTIVES.find(run.objective["name"], where="").has_prefix,
        from_scratch=run.from_scratch,
        where=f"tasks.{task}.task",
    )
    entry, kind = settings.methods[method].of(key), TASKS.find(component["name"], where="")
    made = method_of(settings, method)
    shape = _Shape(
        of_task,
        made,
        entry.training,
        kind.generates or kind.scores_text or entry.text_to_text or made.prompts,
        {
            str(budget): int(budget)
            if of_task.train is None
            else rows_in_budget(str(budget), of_task.train, task=task)
            for budget in settings.label_budgets
        },
        len(tried),
        len({variant.backbone for variant in tried}),
    )
    cost.leaves_out_rows = None in (of_task.validation, of_task.test)
    cost.assumes_lengths, cost.text_tokens = of_task.assumed, round(shape.tokens, 1)
    cost.longest_text = max(size.longest for size in of_task.sizes)
    cost.written = of_task.written
    cost.rows_cut, cost.tokens_cut = of_task.rows_cut, of_task.tokens_cut
    model = _adapted(backbone, made, writes=shape.uses_logits)
    forward, step = _flops(shape, model, flops)
    _add_work(cost, run, shape, forward, step, trials)
    cost.prediction_flops_of_all = cost.prediction_flops
    if missing != trials:
        _add_work(cost, run, shape, forward, step, missing)
    _add_room(cost, len(run.seeds), settings, shape, model)


@dataclass(frozen=True)
class _Shape:
    """The properties of the trials of a task and a method that set their cost."""

    texts: Texts
    method: Method
    training: Adaptation | None
    uses_logits: bool  # over the vocabulary, to write or to score a text
    labels: dict[str, int]  # label budget -> number of labels
    num_variants: int  # variants that each trial tries
    num_backbones: int  # different frozen backbones among the variants

    @property
    def tokens(self) -> float:
        """The mean tokens of a text, or of a window of a text, padding included."""
        at_once = PREDICTED_AT_ONCE if not self.training else self._batch_examples
        return self.texts.padded(at_once) / self.texts.num_windows

    @property
    def _batch_examples(self) -> int:
        assert self.training is not None
        return self.training.batch_examples

    def outputs(self, backbone: Backbone) -> Tensor:
        """Returns the states of one text, or its logits over the vocabulary if trials use them."""
        batch = self.one_text()
        if batch.decoder_input_ids is not None:
            return backbone.logits(batch)
        states = backbone(batch)
        return backbone.unembed(states) if self.uses_logits else states

    def one_text(self) -> Batch:
        """Returns a batch with one text, or one window of a text, of the mean length."""
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


def _adapted(backbone: Backbone, method: Method, *, writes: bool) -> ModelWithHead:
    """Returns the model as the method trains it, without a head and without storage for weights."""
    if not writes:
        backbone.drop_output_layers()
    model = ModelWithHead(backbone, nn.Identity())
    with OnMeta():  # a method may compute with the model's own weights
        method.apply(model, generator=torch.Generator())
    return model.to("meta")


def _flops(shape: _Shape, model: ModelWithHead, counted: "_KnownFlops") -> tuple[int, int]:
    """Returns the operations for one text with all its windows: of a forward pass, and of a
    training step in which all weights that are ever trained get a gradient. The few operations of
    the head are left out."""
    batch = [shape.one_text()]

    def flops(of: str, loss: Callable[[], Tensor]) -> int:
        function = counted[of, shape.uses_logits]
        if (number := function.known(batch)) is None:
            function.add(batch, number := of_outline(loss))
        return round(number * shape.texts.num_windows)

    with torch.no_grad():
        forward = flops("forward", lambda: shape.outputs(model.backbone.uncached))
    if shape.training is None:
        return forward, forward
    return forward, flops("step", lambda: shape.outputs(model.backbone).sum())


def _add_work(
    cost: Finetuning,
    run: Run,
    shape: _Shape,
    forward: int,
    step: int,
    trials: Sequence[TrialKey],
) -> None:
    """Sets the amounts of work in ``cost`` to the work of ``trials``."""
    texts, method, training = shape.texts, shape.method, shape.training
    test = texts.test or 0
    examples = [round(shape.labels[trial.label_budget] * texts.per_row) for trial in trials]
    if training is not None:  # with all epochs, as if ``patience`` ended no training
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
        # The states of validation and test rows are computed once for all trials of a checkpoint.
        # From scratch, they are computed once for each seed, which has a backbone of its own.
        groups = len({(t.checkpoint, run.from_scratch and t.finetune_seed) for t in trials})
        backbones = groups * shape.num_backbones
        solved = isinstance(method, SolvedMethod)
        seen = sum(examples) * shape.num_backbones if solved else 0
        cost.shares = [1 / groups] * groups if groups else []
        cost.flops = round(seen * forward)
        predicted = backbones * (test + (texts.validation or 0) * solved)
    cost.tokens = round(seen * (shape.tokens * texts.num_windows + texts.written))
    cost.prediction_flops = round(predicted * texts.per_row * forward)


def _add_room(
    cost: Finetuning, num_checkpoints: int, settings: Finetune, shape: _Shape, model: ModelWithHead
) -> None:
    trained = num_weights(model, trained_only=True)
    kept = {"none": 0, "first_seed": 1, "all": len(settings.seeds)}[settings.keep_weights]
    kept *= num_checkpoints
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
        most = max(size.num_windows for size in shape.texts.sizes)
        cost.memory_bytes = weights + max(shape.training.batch_examples, most) * activations
