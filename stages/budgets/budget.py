"""Matched budgets: the number of steps and the model size at which a run has the reference run's
budget.

The choice of budget decides comparisons between architectures: at equal dimensions an
encoder-decoder has about twice the parameters of an encoder, but about as many operations per token
(Raffel et al. 2020, section 3.2.2). On a task with a head the encoder-decoder's decoder is not
used, and the rest has as many parameters as an encoder.
"""

import json
from bisect import bisect_left
from pathlib import Path
from typing import Any

import numpy as np

from stages.core.artifacts import Json
from stages.core.components import Settings, below
from stages.core.params import HUB, AnyTokenizer, Params, PublishedTokenizer, Run
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
from stages.training.loop import accumulate
from stages.training.pretraining import built

_STEP_FLOPS = dict[str, int]()  # by the settings that determine FLOPs; runs may share them


class AnyWords(Vocabulary):
    """A vocabulary in which every token is a word. It is for counting operations, because their
    number does not depend on the words."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.starts_word = np.ones(vocab_size, dtype=bool)


def vocabulary_for(run: Run, tokenizer: AnyTokenizer) -> Vocabulary | None:
    """Returns a run's vocabulary, as far as it is known before any tokenizer is trained, or None
    if its checkpoint is not downloaded. ``tokenizer`` is the entry of the run's tokenizer."""
    if not isinstance(tokenizer, PublishedTokenizer):
        return AnyWords(tokenizer.vocab_size)
    if not Path(tokenizer.path).is_dir():
        return None
    return Tokenizer(Path(tokenizer.path))


def trains(run: Run) -> bool:
    return OBJECTIVES.find(run.objective["name"], where="").trains


def matched(params: Params) -> Params:
    """Returns the study with each run's number of steps or size set to match the budget. The
    settings must be valid.

    The FLOPs of a run include all learning rates that it tries; its tokens are only those that the
    kept model sees.
    """
    budget, reference = params.pretrain, params.runs[params.pretrain.reference]

    def cost(run: Run) -> int:
        if budget.matched == "flops":
            return len(run.training.rates) * step_flops(params, run)
        return run.training.batch_rows * run.training.max_tokens

    total = reference.training.num_steps * cost(reference)

    def under_budget(run: Run) -> Run:
        num_steps, architecture = run.training.num_steps, run.architecture
        if budget.matched != "none" and trains(run):
            num_steps = max(1, round(total / cost(run)))
        if not run.is_hub:
            if budget.matched == "parameters" and run != reference:
                architecture = _model_of_size(params, run, _num_used(params, reference))
            vocabulary = vocabulary_for(run, params.tokenizers[run.tokenizer])
            assert vocabulary is not None
            architecture = with_sizes(
                architecture, outline(architecture, vocabulary.vocab_size, where="architecture")
            )
        training = run.training.model_copy(update={"num_steps": num_steps})
        return run.model_copy(update={"architecture": architecture, "training": training})

    runs = {key: under_budget(run) for key, run in params.runs.items()}
    return params.model_copy(update={"runs": runs})


def with_sizes(architecture: Settings, backbone: Backbone) -> Json:
    """Returns an entry ``architecture:`` with all of its sizes, also those that follow from
    d_model."""
    return {**architecture, **{name: getattr(backbone, name) for name in backbone.sizes}}


def _model_of_size(params: Params, run: Run, wanted: int) -> Json:
    """Returns a run's entry ``architecture:`` with the number of layers (``d_cell`` of a bilstm) at
    which the study's tasks use a number of parameters nearest to ``wanted``."""
    setting, least = ("num_layers", 1)
    if run.architecture["name"] == "bilstm":  # a narrower cell has no projection
        setting, least = "d_cell", run.architecture["d_model"] // 2 + 1
    architecture = dict(run.architecture)

    def used(value: int) -> int:
        changed = {"architecture": architecture | {setting: value}}
        return _num_used(params, run.model_copy(update=changed))

    most = least
    while used(most) < wanted:
        most *= 2
    above = bisect_left(range(least, most), wanted, key=used) + least
    nearest = min((max(above - 1, least), above), key=lambda value: abs(used(value) - wanted))
    return architecture | {setting: nearest}


def _num_used(params: Params, run: Run) -> int:
    """Returns the number of a run's parameters that the study's tasks use: without output layers
    and decoder, unless all of the tasks have texts as answers."""
    vocabulary = vocabulary_for(run, params.tokenizers[run.tokenizer])
    if vocabulary is None:
        raise ValueError(
            f"pretrain.reference: download {run.architecture['path']} to match parameters"
        )
    backbone = outline(run.architecture, vocabulary.vocab_size, where="architecture")
    kinds = [TASKS.find(task.task["name"], where="") for task in params.tasks.values()]
    if not kinds or not all(kind.generates or kind.scores_text for kind in kinds):
        backbone.drop_output_layers()
    return sum(weight.numel() for weight in backbone.parameters())


def step_flops(params: Params, run: Run) -> int:
    """Returns the FLOPs of one step, counted while a model with random weights computes the
    gradients of one row."""
    parent, training = params.runs.get(run.parent), run.training
    entries = [run.architecture, run.objective, parent and parent.architecture, run.tokenizer]
    tokenizer = params.tokenizers[run.tokenizer]
    key = json.dumps([*entries, tokenizer.model_dump(), training.max_tokens])
    if key not in _STEP_FLOPS:
        vocabulary = vocabulary_for(run, tokenizer)
        assert vocabulary is not None
        _STEP_FLOPS[key] = _row_flops(run, parent, vocabulary)
    return training.batch_rows * _STEP_FLOPS[key]


def _row_flops(run: Run, parent: Run | None, vocabulary: Vocabulary) -> int:
    """Counts a row of random tokens. For an objective that reads rows of another form this is an
    estimate."""
    device = Device("cpu", "float32", compile=False, threads=1)
    model, objective = untrained(run, parent, vocabulary, device)
    batch = random_batch(objective, vocabulary, rows=1, length=run.training.max_tokens)
    with counting() as counter:
        accumulate(model, objective, [batch], device)
    return counter.get_total_flops()


def untrained(
    run: Run, parent: Run | None, vocabulary: Vocabulary, device: Device
) -> tuple[ModelWithHead, Objective]:
    """Returns what a run begins its pretraining with, on random weights: its model with the head of
    its objective, and the objective. So has its teacher, a model of the ``parent``."""
    backbone, objective = built(run, vocabulary, where="")
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


def public_outline(run: Run, *, where: str) -> Backbone | None:
    """Returns the model, without storage for its weights, of a public checkpoint in a folder, or
    None if only the hub has the checkpoint.

    Raises ValueError for invalid settings, names and folders.
    """
    hub: Any = MODELS.find(HUB, where=where)  # only this model has `check`
    settings = MODELS.settings(run.architecture, where=where)
    with below(where):
        vocab_size = hub.check(**settings)
    return None if vocab_size is None else outline(run.architecture, vocab_size, where=where)
