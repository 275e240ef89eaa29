"""Matched budgets: steps and sizes of models are set so that they have the reference's budget.

The choice decides comparisons between architectures: at equal dimensions an encoder-decoder has
about twice the parameters of an encoder, but about as many operations per token (Raffel et al.
2020, section 3.2.2). A task with a head does not use the decoder.
"""

import json
from bisect import bisect_left
from pathlib import Path
from typing import Any

import numpy as np

from stages.core.artifacts import Json
from stages.core.components import Settings, below
from stages.core.params import HUB, AnyTokenizer, Model, Params, PublishedTokenizer
from stages.core.seeding import stream
from stages.models._backbone import MODELS, Backbone, draw_weights, outline
from stages.models._heads import ModelWithHead
from stages.objectives._objective import OBJECTIVES, Objective
from stages.tasks._task import TASKS
from stages.text.batch import Batch
from stages.text.packing import Row
from stages.text.tokenizer import Tokenizer, Vocabulary
from stages.training.device import Device
from stages.training.flops import counting
from stages.training.loop import add_gradients
from stages.training.pretraining import built

_ROW_FLOPS = dict[str, int]()  # by the settings that determine FLOPs; models may share them


def vocabulary_for(tokenizer: AnyTokenizer) -> Vocabulary | None:
    """Returns the vocabulary of an entry of ``tokenizers:``, as far as it is known before any
    tokenizer is trained (every token is a word then), or None if it is a checkpoint's, which is not
    downloaded."""
    if isinstance(tokenizer, PublishedTokenizer):
        return Tokenizer(Path(tokenizer.path)) if Path(tokenizer.path).is_dir() else None
    vocabulary = Vocabulary(tokenizer.vocab_size)
    vocabulary.starts_word = np.ones(tokenizer.vocab_size, dtype=bool)
    return vocabulary


def trains(entry: Model) -> bool:
    return OBJECTIVES.find(entry.objective["name"], where="").trains


def matched(params: Params) -> Params:
    """Returns the study with each model's number of steps or size set to match the budget. The
    settings must be valid.

    The FLOPs of a model include all learning rates that it tries; its tokens are only those that
    the kept model sees.
    """
    budget, reference = params.pretrain, params.models[params.pretrain.reference]

    def cost(entry: Model) -> int:
        if budget.matched == "flops":
            return len(entry.training.rates) * step_flops(params, entry)
        return entry.training.batch_rows * entry.training.max_tokens

    total = reference.training.num_steps * cost(reference)

    def under_budget(entry: Model) -> Model:
        num_steps, architecture = entry.training.num_steps, entry.architecture
        if budget.matched != "none" and trains(entry):
            num_steps = max(1, round(total / cost(entry)))
        if not entry.is_hub:
            if budget.matched == "parameters" and entry != reference:
                architecture = _model_of_size(params, entry, _num_used(params, reference))
            vocabulary = vocabulary_for(params.tokenizers[entry.tokenizer])
            assert vocabulary is not None
            architecture = with_sizes(
                architecture, outline(architecture, vocabulary.vocab_size, where="architecture")
            )
        training = entry.training.model_copy(update={"num_steps": num_steps})
        return entry.model_copy(update={"architecture": architecture, "training": training})

    models = {key: under_budget(entry) for key, entry in params.models.items()}
    return params.model_copy(update={"models": models})


def with_sizes(architecture: Settings, backbone: Backbone) -> Json:
    """Returns an entry ``architecture:`` with all of its sizes, also those that follow from
    d_model."""
    return {**architecture, **{name: getattr(backbone, name) for name in backbone.sizes}}


def _model_of_size(params: Params, entry: Model, wanted: int) -> Json:
    """Returns a model's entry ``architecture:`` with the number of layers (``d_cell`` of a bilstm)
    at which the study's tasks use a number of parameters nearest to ``wanted``."""
    setting, least = ("num_layers", 1)
    if entry.architecture["name"] == "bilstm":  # a narrower cell has no projection
        setting, least = "d_cell", entry.architecture["d_model"] // 2 + 1

    def used(value: int) -> int:
        changed = {"architecture": {**entry.architecture, setting: value}}
        return _num_used(params, entry.model_copy(update=changed))

    most = least
    while used(most) < wanted:
        most *= 2
    above = bisect_left(range(least, most), wanted, key=used) + least
    nearest = min((max(above - 1, least), above), key=lambda value: abs(used(value) - wanted))
    return {**entry.architecture, setting: nearest}


def _num_used(params: Params, entry: Model) -> int:
    """Returns the number of a model's parameters that the study's tasks use: without output layers
    and decoder, unless all of the tasks have texts as answers."""
    vocabulary = vocabulary_for(params.tokenizers[entry.tokenizer])
    if vocabulary is None:
        path = entry.architecture["path"]
        raise ValueError(f"pretrain.reference: download {path} to match parameters")
    backbone = outline(entry.architecture, vocabulary.vocab_size, where="architecture")
    kinds = [TASKS.find(task.task["name"], where="") for task in params.tasks.values()]
    if not kinds or not all(kind.generates or kind.scores_text for kind in kinds):
        backbone.drop_output_layers()
    return sum(weight.numel() for weight in backbone.parameters())


def step_flops(params: Params, entry: Model) -> int:
    """Returns the FLOPs of one step, counted while a model with random weights computes the
    gradients of one row of random tokens. For an objective that reads rows of another form this is
    an estimate."""
    parent, length = params.models.get(entry.parent), entry.training.max_tokens
    tokenizer = params.tokenizers[entry.tokenizer]
    entries = [entry.architecture, entry.objective, parent and parent.architecture, entry.tokenizer]
    key = json.dumps([*entries, tokenizer.model_dump(), length])
    if key not in _ROW_FLOPS:
        device = Device("cpu", "float32", compile=False, threads=1)
        vocabulary = vocabulary_for(tokenizer)
        assert vocabulary is not None
        model, objective = untrained(entry, parent, vocabulary, device)
        batch = random_batch(objective, vocabulary, rows=1, length=length)
        with counting() as counter:
            add_gradients(model, objective, [batch], device)
        _ROW_FLOPS[key] = counter.flops
    return entry.training.batch_rows * _ROW_FLOPS[key]


def untrained(
    entry: Model, parent: Model | None, vocabulary: Vocabulary, device: Device
) -> tuple[ModelWithHead, Objective]:
    """Returns a model with random weights and the head of its objective, and the objective. A
    teacher (the ``parent``) has random weights, too."""
    backbone, objective = built(entry, vocabulary, where="")
    draw_weights(backbone, seed=0)
    backbone.to(device.torch)
    if objective.has_teacher and parent is not None:
        teacher = MODELS.build(parent.architecture, vocabulary.vocab_size, where="")
        draw_weights(teacher, seed=0)
        objective.learn_from(teacher.to(device.torch).requires_grad_(False).eval(), backbone)
    return ModelWithHead(backbone, objective.head(backbone)), objective


def random_batch(objective: Objective, vocabulary: Vocabulary, *, rows: int, length: int) -> Batch:
    """Returns a batch of equal rows, corrupted by the objective. A row is one document of random
    tokens, in sentences of 16 tokens."""
    tokens = stream(0, "budget").choice(vocabulary.regular_ids, length)
    tokens[: len(vocabulary.before)] = vocabulary.before
    documents, begins = np.ones(length, dtype=np.int64), np.arange(length) % 16 == 0
    row = Row(tokens, documents, Row(tokens, documents), starts_sentence=begins)
    return objective.collate([row] * rows, rngs=[stream(0, "budget", i) for i in range(rows)])


def public_outline(entry: Model, *, where: str) -> Backbone | None:
    """Returns the model of a public checkpoint in a folder, without storage for weights; None if
    only the hub has the checkpoint.

    Raises ValueError for invalid settings, names and folders.
    """
    hub: Any = MODELS.find(HUB, where=where)  # only this model has `check`
    settings = MODELS.settings(entry.architecture, where=where)
    with below(where):
        vocab_size = hub.check(**settings)
    return None if vocab_size is None else outline(entry.architecture, vocab_size, where=where)
