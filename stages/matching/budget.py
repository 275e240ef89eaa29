"""Matched budgets: how long each run trains, and how large its model is, beside the reference run.

Which budget is matched decides comparisons between architectures: at equal dimensions an
encoder-decoder has about twice the parameters of an encoder and about its operations per token
(Raffel et al. 2020, section 3.2.2).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stages.core.components import below
from stages.core.params import HUB, Params, PublishedTokenizer, Run
from stages.core.params import Tokenizer as TokenizerEntry
from stages.core.seeding import stream
from stages.models._backbone import MODELS, Backbone, outline
from stages.models._costs import num_params
from stages.models._dimensions import Dimensions
from stages.models._heads import ModelWithHead
from stages.objectives._objective import OBJECTIVES
from stages.text.packing import Row
from stages.text.tokenizer import Tokenizer, Vocabulary
from stages.training.pretraining import objective_for


@dataclass(frozen=True)
class RunPlan:
    """What the budget makes of a run's settings."""

    num_steps: int
    model: dict[str, Any]  # the entry, with all of its sizes


class AnyWords(Tokenizer):
    """Every token is a word: which ones are drawn changes no count of operations."""

    def __init__(self, vocab_size: int) -> None:
        Vocabulary.__init__(self, vocab_size)
        self.starts_word = np.ones(vocab_size, dtype=bool)


def vocabulary_of(params: Params, run: Run) -> Vocabulary | None:
    """What is known before any tokenizer is trained; None of a checkpoint that is not here."""
    return vocabulary_for(run, params.tokenizers[run.tokenizer])


def vocabulary_for(run: Run, tokenizer: TokenizerEntry | PublishedTokenizer) -> Vocabulary | None:
    """The same, of the run's entry of ``tokenizers:``."""
    if not isinstance(tokenizer, PublishedTokenizer):
        return AnyWords(tokenizer.vocab_size)
    if not Path(tokenizer.path).is_dir():
        return None
    kind: Any = MODELS.find(run.model["name"], where="")
    return kind.tokenizer_of(run.model, Path(tokenizer.path))


def trains(run: Run) -> bool:
    objective: Any = OBJECTIVES.find(run.objective["name"], where="")
    return objective.trains


def plans(params: Params) -> dict[str, RunPlan]:
    """The plan of every run; the settings must be valid."""
    cost = step_flops if params.budget.matched == "flops" else _step_tokens
    reference = params.pretrain[params.budget.reference]
    total = reference.training.num_steps * cost(params, reference)

    def num_steps(run: Run) -> int:
        if params.budget.matched == "none" or not trains(run):
            return run.training.num_steps
        return max(1, round(total / cost(params, run)))

    return {
        key: RunPlan(num_steps(run), _model(params, run)) for key, run in params.pretrain.items()
    }


def _model(params: Params, run: Run) -> dict[str, Any]:
    if run.is_public:
        return run.model
    backbone = _outline(params, run)
    if params.budget.matched == "parameters":
        return matched_model(run, backbone)
    return with_sizes(run.model, backbone)


def with_sizes(model: Mapping[str, Any], backbone: Backbone) -> dict[str, Any]:
    """An entry ``model:`` with all of its sizes, including those that d_model gives."""
    return {key: value for key, value in model.items() if key != "aspect_ratio"} | backbone.sizes


def matched_model(run: Run, backbone: Backbone) -> dict[str, Any]:
    """The same, with the sizes that matched parameters give in place of its own.

    Raises ValueError if no sizes match.
    """
    if run.is_public:
        return run.model
    model = with_sizes(run.model, backbone)
    if model["name"] == "encoder_decoder":
        model["num_layers"] = _num_layers(model, backbone.vocab_size)
    elif model["name"] == "bilstm":
        model["d_cell"] = _d_cell(model, backbone.vocab_size)
    return model


def _num_layers(model: Mapping[str, Any], vocab_size: int) -> int:
    """Both halves of an encoder-decoder together have the parameters of an encoder of its
    dimensions, as nearly as whole layers allow."""
    dims = Dimensions(**{key: value for key, value in model.items() if key != "name"})
    most = num_params("encoder", vocab_size, dims).total

    def excess(layers: int) -> int:
        changed = replace(dims, num_layers=layers)
        return abs(num_params("encoder_decoder", vocab_size, changed).total - most)

    return min(range(1, dims.num_layers + 1), key=excess)


def _d_cell(model: dict[str, Any], vocab_size: int) -> int:
    """A biLSTM has the parameters of an encoder of its d_model in the default shape, as nearly as
    whole cells allow."""
    d_model, shared = model["d_model"], ("d_model", "tied", "output_bias")
    dims = Dimensions.from_settings(**{key: model[key] for key in shared if key in model})
    most = num_params("encoder", vocab_size, dims).total

    def count(d_cell: int) -> int:
        changed = outline(model | {"d_cell": d_cell}, vocab_size, where="model")
        return sum(weight.numel() for weight in changed.parameters())

    # All cells that are projected have equally many, and the least are not projected.
    each = count(d_model + 1) - count(d_model)
    projected = d_model + round((most - count(d_model)) / each)
    least = d_model // 2
    return min(least, max(projected, least + 1), key=lambda d_cell: abs(count(d_cell) - most))


def _step_tokens(params: Params, run: Run) -> int:
    return run.training.batch_rows * run.training.max_tokens


def step_flops(params: Params, run: Run) -> int:
    """Operations of one step on rows that hold one document each, of sentences of 16 tokens. What
    ``multi_task`` will read and write is not known as yet: here it reads the first of them."""
    training = run.training
    vocabulary, backbone = vocabulary_of(params, run), _outline(params, run)
    assert vocabulary is not None
    some = vocabulary.regular_ids[np.arange(training.max_tokens) % 64]
    tokens = stream(0, "budget", 0).permutation(some)
    tokens[: len(vocabulary.before)] = vocabulary.before
    documents = np.ones(training.max_tokens, dtype=np.int64)
    begins = np.arange(training.max_tokens) % 16 == 0
    row = Row(tokens, documents, Row(tokens, documents), starts_sentence=begins)
    rngs = [stream(0, "budget", i) for i in range(training.batch_rows)]
    objective = objective_for(run, vocabulary, backbone, where="")
    batch = objective.collate([row] * training.batch_rows, rngs=rngs)
    with torch.device("meta"):
        backbone = backbone.for_pretraining()
        if objective.has_teacher:
            objective.learn_from(_outline(params, params.pretrain[run.parent]), backbone)
        own = objective.flops(ModelWithHead(backbone, objective.head(backbone)), batch)
        return 3 * own + objective.frozen_flops(batch)


def _outline(params: Params, run: Run) -> Backbone:
    """The run's model without storage for its weights."""
    vocabulary = vocabulary_of(params, run)
    assert vocabulary is not None
    return outline(run.model, vocabulary.vocab_size, where="model")


def public_outline(run: Run, *, where: str) -> Backbone | None:
    """The same of a public checkpoint in a folder; None if only the hub knows it.

    Raises ValueError for what is wrong with its settings, its name or its folder.
    """
    hub: Any = MODELS.find(HUB, where=where)
    settings = MODELS.settings(run.model, where=where)
    with below(where):
        vocab_size = hub.check(**settings)
    return None if vocab_size is None else outline(run.model, vocab_size, where=where)
