"""A planned run's model and objective without weights, and the sizes that follow from them."""

from dataclasses import asdict

import numpy as np
from torch import nn

from stages.core.params import Params, Run
from stages.core.seeding import stream
from stages.matching.budget import plans, public_outline, vocabulary_of
from stages.models._backbone import Backbone, outline
from stages.models._costs import activation_bytes_per_token
from stages.models._transformer import TransformerBackbone
from stages.objectives._objective import Objective
from stages.text.batch import Batch
from stages.text.packing import Row
from stages.training.pretraining import objective_for

COPIES = 4  # of each trained weight: itself, its gradient, the two moments of Adam


def planned_runs(params: Params) -> dict[str, Run]:
    return {key: params.pretrain[key].planned(asdict(plan)) for key, plan in plans(params).items()}


def backbone_of(params: Params, run: Run) -> Backbone | None:
    """The run's model without storage for weights; None for a public checkpoint that is not
    downloaded."""
    if run.is_public:
        return public_outline(run, where="model")
    vocabulary = vocabulary_of(params, run)
    assert vocabulary is not None
    return outline(run.model, vocabulary.vocab_size, where="model")


def objective_of(params: Params, run: Run) -> Objective:
    """The run's objective, for the architecture of its model."""
    vocabulary, backbone = vocabulary_of(params, run), backbone_of(params, run)
    assert vocabulary is not None and backbone is not None
    return objective_for(run, vocabulary, backbone, where="")


def num_weights(model: nn.Module, *, trained_only: bool = False) -> int:
    weights = (w for w in model.parameters() if w.requires_grad or not trained_only)
    return sum(weight.numel() for weight in weights)


def random_batch(objective: Objective, *, rows: int, length: int) -> Batch:
    """Random tokens; each row is one document of sentences of 16 tokens."""
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
    """Bytes of activations that the backward pass of a transformer of this project keeps; None of
    other models. An encoder-decoder counts as two separate stacks, without cross-attention."""
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
