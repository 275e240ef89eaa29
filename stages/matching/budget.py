"""Matched budgets: the number of steps and the model size at which a run has the reference run's
budget.

The choice of budget decides comparisons between architectures: at equal dimensions an
encoder-decoder has about twice the parameters of an encoder, but about as many operations per token
(Raffel et al. 2020, section 3.2.2). On a task with a head the encoder-decoder's decoder is not
used, and the rest has as many parameters as an encoder.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stages.core.artifacts import Json
from stages.core.components import Settings, below
from stages.core.params import HUB, Params, PublishedTokenizer, Run, Task
from stages.core.params import Method as MethodEntry
from stages.core.params import Tokenizer as TokenizerEntry
from stages.core.seeding import stream
from stages.methods._method import METHODS, UntrainedMethod
from stages.models._backbone import MODELS, Backbone, outline
from stages.models._heads import ModelWithHead
from stages.objectives._objective import OBJECTIVES, Objective
from stages.tasks._task import TASKS
from stages.text.batch import Batch
from stages.text.packing import Row
from stages.text.tokenizer import Tokenizer, Vocabulary
from stages.training.flops import FlopsByBatch, of_outline
from stages.training.pretraining import objective_for

AnyEntry = TokenizerEntry | PublishedTokenizer
SHORTEST = 8  # tokens of the shortest row whose operations are counted
_STEP_FLOPS = dict[str, int]()  # by the settings that determine FLOPs; runs may share them


class AnyWords(Tokenizer):
    """A vocabulary in which every token is a word. It is for counting operations, because their
    number does not depend on the words."""

    def __init__(self, vocab_size: int) -> None:
        Vocabulary.__init__(self, vocab_size)
        self.starts_word = np.ones(vocab_size, dtype=bool)


def vocabulary_for(run: Run, tokenizer: AnyEntry) -> Vocabulary | None:
    """Returns a run's vocabulary, as far as it is known before any tokenizer is trained, or None
    if its checkpoint is not downloaded. ``tokenizer`` is the entry of the run's tokenizer."""
    if not isinstance(tokenizer, PublishedTokenizer):
        return AnyWords(tokenizer.vocab_size)
    if not Path(tokenizer.path).is_dir():
        return None
    kind = MODELS.find(run.model["name"], where="")
    return kind.tokenizer_of(run.model, Path(tokenizer.path))


def trains(run: Run) -> bool:
    objective = OBJECTIVES.find(run.objective["name"], where="")
    return objective.trains


def matched(params: Params) -> Params:
    """Returns the study with each run's number of steps and sizes set to match the budget. The
    settings must be valid.

    The FLOPs of a run include all learning rates that it tries; its tokens are only those that the
    kept model sees.
    """
    budget, reference = params.budget, params.runs[params.budget.reference]

    def cost(run: Run) -> int:
        if budget.matched == "flops":
            return len(run.training.rates) * step_flops(params, run)
        return run.training.batch_rows * run.training.max_tokens

    total = reference.training.num_steps * cost(reference)

    def under_budget(key: str, run: Run) -> Run:
        num_steps, model = run.training.num_steps, run.model
        if budget.matched != "none" and trains(run):
            num_steps = max(1, round(total / cost(run)))
        if not run.is_public:
            backbone = _outline(run, params.tokenizers)
            model = with_sizes(model, backbone)
            if budget.matched == "parameters":
                model = matched_model(params, key, backbone)
        training = run.training.model_copy(update={"num_steps": num_steps})
        return run.model_copy(update={"model": model, "training": training})

    runs = {key: under_budget(key, run) for key, run in params.runs.items()}
    return params.model_copy(update={"runs": runs})


def with_sizes(model: Settings, backbone: Backbone) -> Json:
    """Returns an entry ``model:`` with all of its sizes, including those derived from d_model."""
    return {key: value for key, value in model.items() if key != "aspect_ratio"} | backbone.sizes


def matched_model(params: Params, key: str, backbone: Backbone) -> Json:
    """Returns the entry ``model:`` of a run with sizes at which the study's tasks use as many
    parameters as an encoder has.

    Raises ValueError if no sizes match, and if the sizes would differ between tasks with a head and
    tasks whose answers are texts.
    """
    run, methods = params.runs[key], params.finetune.methods.values()
    if run.is_public:
        return run.model
    model = with_sizes(run.model, backbone)
    settings = {key: value for key, value in model.items() if key != "name"}
    uses = dict(_uses(params.tasks, (m for m in methods if m.leaves_out(key) is None)))
    sizes = [
        backbone.matched_to_encoder(settings, backbone.vocab_size, with_head=with_head)
        for with_head in uses or (True,)
    ]
    if any(model | each != model | sizes[0] for each in sizes):
        raise ValueError(
            f"pretrain.matched: parameters has two meanings for {run.model['name']}: "
            f"{uses[True]} has a head, for which the model is used without its output layers and "
            f"without a decoder, and {uses[False]} has answers that are texts; match tokens or "
            "flops, or study the two apart"
        )
    return model | sizes[0]


def _uses(tasks: Mapping[str, Task], methods: Iterable[MethodEntry]) -> Iterator[tuple[bool, str]]:
    """Yields (has_head, task) for each pair of a task and a method: whether the method gives the
    task a head, and the task's path in params.yaml. Entries with unknown names are left out,
    because they are refused elsewhere."""
    for (key, task), method in product(tasks.items(), methods):
        name, adapts = str(task.task.get("name")), str(method.method.get("name"))
        if name not in TASKS.names() or adapts not in METHODS.names():
            continue
        kind = TASKS.find(name, where="")
        writes = kind.generates or kind.scores_text or method.text_to_text
        if writes or not issubclass(METHODS.find(adapts, where=""), UntrainedMethod):
            yield not writes, f"tasks.{key}"


def step_flops(params: Params, run: Run) -> int:
    """Returns the FLOPs of one step on rows of one document each, in sentences of 16 tokens. For an
    objective that reads rows of another form this is an estimate."""
    parent, training = params.runs.get(run.parent), run.training
    entries = [run.model, run.objective, parent and parent.model, run.tokenizer]
    shape = [training.batch_rows, training.max_tokens]
    key = json.dumps([*entries, params.tokenizers[run.tokenizer].model_dump(), *shape])
    if key not in _STEP_FLOPS:
        _STEP_FLOPS[key] = _counted(run, params.runs, params.tokenizers)
    return _STEP_FLOPS[key]


def _counted(run: Run, runs: Mapping[str, Run], tokenizers: Mapping[str, AnyEntry]) -> int:
    training = run.training
    vocabulary = vocabulary_for(run, tokenizers[run.tokenizer])
    backbone = _outline(run, tokenizers)
    assert vocabulary is not None
    objective = objective_for(run, vocabulary, backbone, where="")
    with torch.device("meta"):
        backbone.add_pretraining_layers()
        if objective.has_teacher:
            objective.learn_from(_outline(runs[run.parent], tokenizers), backbone)
        model = ModelWithHead(backbone, objective.head(backbone))

    def loss(batch: Batch) -> Tensor:
        return torch.stack([loss for _, loss in objective.loss(model, batch).values()]).sum()

    def flops(batch: Batch) -> int:
        return of_outline(lambda: loss(batch))

    def batch_of(length: int) -> Batch:
        return _batch(objective, vocabulary, rows=training.batch_rows, length=length)

    known, batch = FlopsByBatch(), batch_of(training.max_tokens)
    if not backbone.is_transformer:  # counting long rows is slow, and short rows suffice
        for length in range(SHORTEST, training.max_tokens, SHORTEST):
            if (extrapolated := known.known([batch], extrapolates=True)) is not None:
                return extrapolated
            short = batch_of(length)
            known.add([short], flops(short))
    return flops(batch)


def _batch(objective: Objective, vocabulary: Vocabulary, *, rows: int, length: int) -> Batch:
    """Returns a batch of rows of one document each, in sentences of 16 tokens."""
    cycle = vocabulary.regular_ids[np.arange(length) % 64]
    tokens = stream(0, "budget", 0).permutation(cycle)
    tokens[: len(vocabulary.before)] = vocabulary.before
    documents = np.ones(length, dtype=np.int64)
    begins = np.arange(length) % 16 == 0
    row = Row(tokens, documents, Row(tokens, documents), starts_sentence=begins)
    rngs = [stream(0, "budget", i) for i in range(rows)]
    return objective.collate([row] * rows, rngs=rngs)


def _outline(run: Run, tokenizers: Mapping[str, AnyEntry]) -> Backbone:
    """Returns the run's model without storage for its weights."""
    vocabulary = vocabulary_for(run, tokenizers[run.tokenizer])
    assert vocabulary is not None
    return outline(run.model, vocabulary.vocab_size, where="model")


def public_outline(run: Run, *, where: str) -> Backbone | None:
    """Returns the model, without storage for its weights, of a public checkpoint in a folder, or
    None if only the hub has the checkpoint.

    Raises ValueError for invalid settings, names and folders.
    """
    hub: Any = MODELS.find(HUB, where=where)  # only this model has `check`
    settings = MODELS.settings(run.model, where=where)
    with below(where):
        vocab_size = hub.check(**settings)
    return None if vocab_size is None else outline(run.model, vocab_size, where=where)
