"""The cost of each pretraining, computed from params.yaml alone, and the sizes of models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import nn

from stages.core.params import Params, Run
from stages.core.seeding import stream
from stages.matching.budget import (
    AnyEntry,
    public_outline,
    step_flops,
    trains,
    vocabulary_for,
)
from stages.models._backbone import Backbone, outline
from stages.models._costs import FLOAT32, activation_bytes_per_token
from stages.models._transformer import TransformerBackbone
from stages.objectives._objective import Objective
from stages.text.batch import Batch
from stages.text.packing import Row
from stages.training.pretraining import VALIDATION_ROWS, objective_for

COPIES = 4  # of each trained weight: itself, its gradient, the two moments of Adam


@dataclass
class Pretraining:
    """The cost of pretraining a run at all of its learning rates, for the seeds that its pending
    stage has to train or, if there are none, for all seeds. A number is None if it is unknown (a
    public checkpoint before its download) or does not apply."""

    run: str
    objective: str
    num_seeds: int
    num_stored: int = 0  # seeds that a pending stage takes from the store
    architecture: str | None = None
    d_model: int | None = None
    num_layers: int | None = None
    num_params: int | None = None
    num_steps: int | None = None
    tokens: int | None = None
    flops: int | None = None
    validation_flops: int | None = None  # at most
    memory_bytes: int | None = None  # of the training with one seed
    disk_bytes: int | None = None
    pending: bool = False
    seconds: float | None = None
    speed_from: str | None = None


def pretrainings(study: Params, missing: Mapping[str, Sequence[int]]) -> list[Pretraining]:
    """Returns the cost of each run of a study under the matched budget; ``missing`` has the seeds
    that each run still has to train."""
    costs = []
    for key, run in study.runs.items():
        backbone, number = backbone_of(run, study.tokenizers), len(missing[key] or run.seeds)
        cost = Pretraining(key, run.learnt[0], len(run.seeds), len(run.seeds) - number)
        costs.append(cost)
        cost.pending = bool(missing[key])
        if backbone is None:
            continue
        cost.architecture, cost.d_model = backbone.architecture, backbone.d_model
        cost.num_layers, cost.num_params = backbone.num_layers, num_weights(backbone)
        cost.disk_bytes = number * FLOAT32 * cost.num_params
        if trains(run):
            training, of_step = run.training, step_flops(study, run)
            trainings = number * len(training.rates)
            cost.num_steps = trainings * training.num_steps
            cost.tokens = cost.num_steps * training.batch_rows * training.max_tokens
            cost.flops = cost.num_steps * of_step
            validated = trainings * training.num_validations * VALIDATION_ROWS / training.batch_rows
            cost.validation_flops = round(validated * of_step / 3)
            shape = {"rows": training.micro_batch_rows, "length": training.max_tokens}
            batch = random_batch(objective_of(run, study.tokenizers), **shape)
            labels = 0 if batch.labels is None else batch.labels.numel()
            activations = kept_activation_bytes(backbone, batch, labels)
            copied = COPIES * FLOAT32 * cost.num_params
            cost.memory_bytes = None if activations is None else copied + activations
    return costs


def backbone_of(run: Run, tokenizers: Mapping[str, AnyEntry]) -> Backbone | None:
    """Returns the run's model without storage for weights, or None for a public checkpoint that is
    not downloaded."""
    if run.is_public:
        return public_outline(run, where="model")
    vocabulary = vocabulary_for(run, tokenizers[run.tokenizer])
    assert vocabulary is not None
    return outline(run.model, vocabulary.vocab_size, where="model")


def objective_of(run: Run, tokenizers: Mapping[str, AnyEntry]) -> Objective:
    """Returns the run's objective, built for the architecture of its model."""
    vocabulary = vocabulary_for(run, tokenizers[run.tokenizer])
    backbone = backbone_of(run, tokenizers)
    assert vocabulary is not None and backbone is not None
    return objective_for(run, vocabulary, backbone, where="")


def num_weights(model: nn.Module, *, trained_only: bool = False) -> int:
    weights = (w for w in model.parameters() if w.requires_grad or not trained_only)
    return sum(weight.numel() for weight in weights)


def random_batch(objective: Objective, *, rows: int, length: int) -> Batch:
    """Returns a batch of random tokens. Each row is one document; each sentence has 16 tokens."""
    ids = objective.vocabulary.regular_ids
    documents = np.ones(length, dtype=np.int64)
    begins = np.arange(length) % 16 == 0
    made = []
    for i in range(rows):
        tokens = ids[stream(0, "plan", i).integers(len(ids), size=length)]
        row = Row(tokens, documents, starts_sentence=begins)
        made.append(Row(tokens, documents, other=row, starts_sentence=begins))
    return objective.collate(made, rngs=[stream(0, "plan corruption", i) for i in range(rows)])


def kept_activation_bytes(backbone: Backbone, batch: Batch, num_logits: int) -> int | None:
    """Returns the bytes of activations that the backward pass of a transformer of this project
    keeps, or None for other models. An encoder-decoder counts as two separate stacks, without
    cross-attention."""
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
