"""Pretrainings for benchmarks, in the folder of a study whose corpus is encoded: the start of a
run, and the reference run with another objective and another model."""

from collections.abc import Mapping
from dataclasses import dataclass

from stages.core import paths
from stages.core.params import Model, Params
from stages.core.seeding import torch_stream
from stages.models._backbone import Backbone, draw_weights
from stages.models._heads import ModelWithHead, initialise_head
from stages.objectives._objective import Objective
from stages.text.batch import Batch
from stages.text.corpus import EncodedCorpus
from stages.text.packing import Packing
from stages.text.tokenizer import Tokenizer
from stages.training.device import Device
from stages.training.loop import mean_loss
from stages.training.pretraining import (
    PretrainingData,
    begin_with_frequencies,
    built,
    tokenizer_of,
    validation_batches,
)

ARCHITECTURES = {"causal": "gpt2", "mlm": "bert", "span_corruption": "t5"}


@dataclass(frozen=True)
class Start:
    """A model before its first step, what it trains on and what it is validated by."""

    model: ModelWithHead
    objective: Objective
    data: PretrainingData
    device: Device
    compared: Objective  # computes the validation loss
    validation: list[Batch]

    def validation_loss(self) -> float:
        return mean_loss(self.model, self.compared, self.validation, self.device)


def reference(params: Params) -> Model:
    return params.models[params.pretrain.reference]


def start(entry: Model, device: Device, *, num_steps: int) -> Start:
    """Returns a model as the stage ``pretrain`` begins with it, from random weights."""
    backbone, objective, _ = _outline(entry)
    draw_weights(backbone, seed=entry.seeds[0])
    model = ModelWithHead(backbone, objective.head(backbone))
    initialise_head(model.head, generator=torch_stream(entry.seeds[0], "head"))
    model.to(device.torch)
    data = _data(entry, objective)
    begin_with_frequencies(backbone, data, num_steps=num_steps)
    compared = objective.for_validation()
    validation = validation_batches(
        _packing(entry, "validation", seed=0), compared, batch_rows=entry.training.micro_batch_rows
    )
    return Start(model, objective, data, device, compared, validation)


def pretraining(
    params: Params,
    name: str,
    sizes: Mapping[str, int],
    settings: Mapping[str, float] | None = None,
    *,
    rows: int,
    length: int,
) -> tuple[Backbone, Objective, Tokenizer, PretrainingData]:
    """Returns a model whose weights are not drawn, an objective of ARCHITECTURES with ``settings``,
    and the reference run's tokenizer and corpus, in steps of ``rows`` rows of ``length`` tokens."""
    entry = reference(params)
    steps = {"max_tokens": length, "batch_rows": rows, "micro_batch_rows": rows}
    model = entry.model_copy(
        update={
            "architecture": {"name": ARCHITECTURES[name], **sizes},
            "objective": {"name": name, **(settings or {})},
            "training": entry.training.model_copy(update=steps),
            "seeds": [1],
        }
    )
    backbone, objective, tokenizer = _outline(model)
    return backbone, objective, tokenizer, _data(model, objective)


def _outline(entry: Model) -> tuple[Backbone, Objective, Tokenizer]:
    """The model, whose weights are not drawn yet, the objective and the tokenizer of a run."""
    tokenizer = tokenizer_of(entry)
    return *built(entry, tokenizer, where="benchmark"), tokenizer


def _data(entry: Model, objective: Objective) -> PretrainingData:
    return PretrainingData(
        _packing(entry, "train", seed=entry.seeds[0]),
        objective,
        batch_rows=entry.training.batch_rows,
        micro_batch_rows=entry.training.micro_batch_rows,
        seed=entry.seeds[0],
    )


def _packing(entry: Model, split: str, *, seed: int) -> Packing:
    corpus = EncodedCorpus.load(paths.ENCODED / entry.corpus / entry.tokenizer / split)
    return Packing(corpus, entry.training.max_tokens, seed=seed)
