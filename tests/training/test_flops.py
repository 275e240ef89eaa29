"""Counted, interpolated and planned operations, compared with those by hand and by torch."""

from collections.abc import Iterable
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import LongformerConfig, LongformerModel

from stages.core.seeding import stream, torch_stream
from stages.methods._method import TrainedMethod
from stages.models._backbone import MODELS, outline
from stages.models._heads import ModelWithHead, initialise_head
from stages.objectives._objective import OBJECTIVES
from stages.tasks.seq2seq import Seq2Seq
from stages.text.batch import Batch
from stages.text.packing import Packing
from stages.training.device import Device
from stages.training.finetuning import FinetuningData
from stages.training.flops import (
    FORMULAS,
    Counter,
    FlopsByBatch,
    OnMeta,
    StepFlops,
    aten,
    of_outline,
)
from stages.training.loop import Step, _without_gradients, accumulate, train
from stages.training.pretraining import PretrainingData
from tests.methods.test_methods import FITTING, applied, method_of
from tests.models.test_further import LEARNT, corpus_of, tokenizer_of
from tests.small import (
    D_CELL,
    DIMENSIONS,
    VOCAB_SIZE,
    documents,
    headless,
    small_corpus,
    small_model,
    small_schedule,
    small_settings,
    small_tokenizer,
)
from tests.small_hub import checkpoint, revision_of

pytestmark = pytest.mark.slow

CPU = Device("cpu", "float32", compile=False, threads=1)
ROWS, LENGTH, WRITTEN = 3, 20, 7
OWN = {
    "mlm": "encoder",
    "span_mlm": "encoder",
    "causal": "decoder",
    "prefix_lm": "decoder",
    "span_corruption": "encoder_decoder",
    "denoising": "encoder_decoder",
    "bidirectional_lm": "bilstm",
}


def ones(length: int) -> torch.Tensor:
    return torch.ones(ROWS, length, dtype=torch.long)


def by_hand(architecture: str) -> int:
    """Operations of the states and of the logits of each state: two for each weight of a layer and
    each token that the layer reads, and 4 n m d for attention of n tokens to m."""
    d, d_ff, layers = (DIMENSIONS[name] for name in ("d_model", "d_ff", "num_layers"))
    if architecture == "bilstm":
        width, cells = d // 2, D_CELL
        of_direction = 4 * cells * width + 4 * cells * width + width * cells
        states = 2 * LENGTH * DIMENSIONS["num_layers"] * 2 * of_direction
        return ROWS * (states + 2 * LENGTH * width * VOCAB_SIZE)
    block = 2 * LENGTH * (4 * d * d + 2 * d * d_ff) + 4 * LENGTH**2 * d
    if architecture != "encoder_decoder":
        return ROWS * (layers * block + 2 * LENGTH * d * VOCAB_SIZE)
    own = 2 * WRITTEN * (4 * d * d + 2 * d * d_ff) + 4 * WRITTEN**2 * d
    cross = 2 * WRITTEN * 2 * d * d + 2 * LENGTH * 2 * d * d + 4 * WRITTEN * LENGTH * d
    return ROWS * (layers * (block + own + cross) + 2 * WRITTEN * d * VOCAB_SIZE)


def logits_of(backbone: Any) -> torch.Tensor:
    batch = Batch(
        input_ids=ones(LENGTH),
        document_ids=ones(LENGTH),
        decoder_input_ids=ones(WRITTEN),
        decoder_document_ids=ones(WRITTEN),
        num_targets={},
    )
    if backbone.architecture == "encoder_decoder":
        return backbone.logits(batch)
    if backbone.architecture == "bilstm":  # only the states of one direction are unembedded
        return backbone.unembed(backbone.directions(batch)[0])
    return backbone.unembed(backbone(batch))


@pytest.mark.parametrize("architecture", ["encoder", "decoder", "encoder_decoder", "bilstm"])
def test_counted_operations_are_those_by_hand(architecture: str) -> None:
    backbone = small_model(architecture)
    with Counter() as forward:
        logits = logits_of(backbone)
    with Counter() as backward:
        logits.sum().backward()
    assert forward.total == by_hand(architecture)
    if architecture == "bilstm":  # the first tokens read zeros, which have no gradient
        cells, width = D_CELL, DIMENSIONS["d_model"] // 2
        assert 2 * forward.total - backward.total <= 2 * 4 * ROWS * 4 * cells * width
    else:
        assert backward.total == 2 * forward.total


@pytest.mark.parametrize("architecture", ["encoder", "encoder_decoder"])
def test_fused_attention_counts_as_its_products(architecture: str) -> None:
    backbone = small_model(architecture)
    with Counter() as fused:
        logits_of(backbone).sum().backward()
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as written_out:
        logits_of(backbone).sum().backward()
    assert fused.total == written_out.get_total_flops()


@pytest.mark.parametrize("projection", [0, 4])
def test_lstms_of_torch_count_as_their_products(projection: int) -> None:
    """Operations are counted as run on a CPU, and from the shapes that cuDNN gets on a GPU."""
    lstm, states = nn.LSTM(6, 8, proj_size=projection), torch.randn(5, 3, 6, requires_grad=True)
    weights = [weight.shape for weight in lstm.parameters()]
    expected = 2 * 5 * 3 * sum(a * b for a, b in (each for each in weights if len(each) == 2))
    with Counter() as forward:
        output, _ = lstm(states)
    with Counter() as backward:
        output.sum().backward()
    assert forward.total == expected
    assert backward.total == pytest.approx(2 * expected, rel=0.2)

    values = [weight.detach() for weight in lstm.parameters()]
    forward, backward = FORMULAS[aten._cudnn_rnn], FORMULAS[aten._cudnn_rnn_backward]
    assert forward(states, values, 4, None, out_val=output) == expected
    for trains, share in ((True, 2), (False, 1)):
        mask = [True, True, True, trains]
        assert backward(states, values, 4, mask, out_val=output) == share * expected


def weighted(terms: Any) -> torch.Tensor:
    return torch.stack([weight * loss for weight, loss in terms.values()]).sum()


def entry_of(name: str) -> dict[str, Any]:
    """The settings of one of our models, or of a family's public checkpoint."""
    if name in LEARNT:
        folder = checkpoint(name)
        return {"name": "hub", "path": str(folder), "revision": revision_of(folder)}
    return {"name": name, **small_settings(name)}


def pretraining_of(name: str, objective_name: str) -> tuple[ModelWithHead, Any, PretrainingData]:
    """A model, its objective, and steps of two micro-batches of packed documents."""
    if name in LEARNT:
        packing, vocabulary = Packing(corpus_of(name), 48, seed=1), tokenizer_of(name)
    else:
        packing, vocabulary = Packing(small_corpus(), 48, seed=1), small_tokenizer()
    objective = OBJECTIVES.build({"name": objective_name}, vocabulary, 48, where="objective")
    backbone = MODELS.build(entry_of(name), vocabulary.vocab_size, where="model")
    backbone.add_pretraining_layers()
    backbone.initialise(generator=torch_stream(1, "weights"))
    model = ModelWithHead(backbone, objective.head(backbone))
    initialise_head(model.head, generator=torch_stream(1, "head"))
    data = PretrainingData(packing, objective, batch_rows=8, micro_batch_rows=4, seed=1)
    return model, objective, data


def check_interpolation(
    model: ModelWithHead, criterion: Any, steps: Iterable[list[Batch]], *, most: int
) -> None:
    """Checks that interpolated operations equal counted ones, and that at most ``most`` steps have
    to be counted."""
    flops, num_counted = FlopsByBatch(), 0
    for batches in steps:
        with Counter() as counter:
            accumulate(model, criterion, batches, CPU)
        if (interpolated := flops.known(batches)) is None:
            flops.add(batches, counter.total)
            num_counted += 1
        else:
            assert interpolated == counter.total
    assert num_counted <= most


PRETRAINED = [*((name, objective) for objective, name in OWN.items()), *LEARNT.items()]


@pytest.mark.parametrize(("name", "objective_name"), PRETRAINED)
def test_operations_of_pretraining_are_interpolated_exactly(name, objective_name) -> None:
    model, objective, data = pretraining_of(name, objective_name)
    check_interpolation(model, objective, map(data.micro_batches, range(28)), most=20)


@pytest.mark.parametrize(("name", "objective_name"), PRETRAINED)
def test_operations_of_pretraining_are_known_without_weights(name, objective_name) -> None:
    model, objective, data = pretraining_of(name, objective_name)
    planned = outline(entry_of(name), objective.vocabulary.vocab_size, where="model")
    with torch.device("meta"):
        planned.add_pretraining_layers()
        without_weights = ModelWithHead(planned, objective.head(planned))
    for batch in data.micro_batches(0):
        with Counter() as counter:
            accumulate(model, objective, [batch], CPU)
        assert counter.total == of_outline(
            lambda b=batch: weighted(objective.loss(without_weights, b))
        )


@pytest.mark.parametrize(
    ("architecture", "name", "epoch"),
    [
        (architecture, name, epoch)
        for architecture, name in FITTING
        if isinstance(method_of(name), TrainedMethod)
        for epoch in ((0, 1, 2) if name == "gradual_unfreezing" else (0,))
    ],
)
def test_operations_of_fine_tuning_are_interpolated_exactly(architecture, name, epoch) -> None:
    """Batches differ in size and length, and methods freeze some weights."""
    method = method_of(name)
    task, model, examples = applied(architecture, method)
    data = FinetuningData(examples, task, batch_examples=3, seed=1)
    with _without_gradients([*method.frozen(model, epoch)]):
        check_interpolation(model, task, map(data.micro_batches, range(12)), most=10)


@pytest.mark.parametrize(("architecture", "name"), FITTING)
def test_operations_of_fine_tuning_are_known_without_weights(architecture, name) -> None:
    method = method_of(name)
    task, model, examples = applied(architecture, method)
    planned = outline(entry_of(architecture), model.backbone.vocab_size, where="model")
    planned.drop_output_layers()
    with OnMeta():
        without_weights = ModelWithHead(planned, task.head(planned))
        method.apply(without_weights, generator=torch.Generator())
    without_weights.to("meta")
    batch = task.collate(examples, rngs=[])
    with Counter() as counter:
        accumulate(model, task, [batch], CPU)
    planned_flops = of_outline(lambda: weighted(task.loss(without_weights, batch)))
    # Fused attention computes gradients of queries that the lowest prefix does not need.
    assert counter.total == pytest.approx(planned_flops, rel=0.015 if name == "prefix" else 0)


def test_operations_of_tasks_are_interpolated_exactly() -> None:
    lines = [line for document in documents() for line in document][:60]
    pairs = [
        {"id": str(i), "text": text, "target": text[: 5 + i % 20]} for i, text in enumerate(lines)
    ]
    task = Seq2Seq([], small_tokenizer(), 32, max_target_tokens=12)
    model = headless(small_model("encoder_decoder"))
    data = FinetuningData(task.encode(pairs), task, batch_examples=4, seed=1)
    check_interpolation(model, task, map(data.micro_batches, range(40)), most=22)


@torch.no_grad()
def test_operations_with_steps_are_counted_at_each_length() -> None:
    """Longformer pads texts to multiples of its window. Interpolated operations are still right,
    and batches of a counted length are interpolated."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = LongformerConfig(vocab_size=9, intermediate_size=8, attention_window=16, **sizes)
    model, flops, rng = LongformerModel(config).eval(), FlopsByBatch(), stream(1, "lengths")
    num_known = 0
    for _ in range(60):
        ids = torch.zeros(*rng.integers([1, 5], [4, 40]), dtype=torch.long)
        batch = Batch(input_ids=ids, document_ids=torch.ones_like(ids), num_targets={})
        with Counter() as counter:
            model(input_ids=ids, attention_mask=torch.ones_like(ids))
        if (interpolated := flops.known([batch])) is None:
            flops.add([batch], counter.total)
        else:
            assert interpolated == counter.total
            num_known += 1
    assert num_known > 5


def test_frozen_models_with_small_additions_take_about_two_forward_passes() -> None:
    """They take about two thirds of full fine-tuning in a model with several layers."""
    shares = {}
    for name in ("full", "bitfit", "lora", "adapter"):
        task, model, examples = applied("encoder", method_of(name), num_layers=6)
        batch = task.collate(examples, rngs=[])
        with Counter() as forward:
            task.loss(model, batch)
        with Counter() as step:
            accumulate(model, task, [batch], CPU)
        shares[name] = step.total / forward.total
    assert shares.pop("full") == 3
    assert all(1.9 < share < 2.25 for share in shares.values()), shares


def trained(name: str, objective_name: str) -> tuple[dict[str, torch.Tensor], list[Step]]:
    model, objective, data = pretraining_of(name, objective_name)
    schedule = small_schedule(rows=8, max_tokens=48, num_steps=4, lr=1e-3).at(1e-3)
    history = list[Step]()
    steps = train(
        model, objective, data, schedule, num_steps=4, seed=1, device=CPU, history=history
    )
    assert len([*steps]) == 4
    return model.state_dict(), history


@pytest.mark.parametrize(("name", "objective_name"), PRETRAINED)
def test_counting_changes_no_bit(name, objective_name, monkeypatch) -> None:
    """Losses and weights stay equal, also with the dropout of public checkpoints."""
    weights, history = trained(name, objective_name)
    assert all(step.flops > 0 for step in history)
    monkeypatch.setattr(StepFlops, "of", lambda self, step, *others: (step(), 0))
    uncounted, expected = trained(name, objective_name)
    assert [step.loss for step in history] == [step.loss for step in expected]
    assert all(torch.equal(weights[key], value) for key, value in uncounted.items())


def test_what_is_compiled_is_counted_in_a_pass_of_its_own() -> None:
    """The gradients of this pass are dropped, and batches of known sizes need no such pass."""
    model, objective, data = pretraining_of("encoder", "mlm")
    weights, gradients, flops = list(model.parameters()), list[Any](), list[int]()
    for compiles in (False, True):
        steps = StepFlops(compiles=compiles)
        for index in range(2):
            batches = data.micro_batches(index)
            step = Mock(side_effect=partial(accumulate, model, objective, batches, CPU))
            flops.append(steps.of(step, weights, batches)[1])
            assert step.call_count == 1 + (compiles and index == 0)
            gradients.append([weight.grad for weight in weights])
            for weight in weights:
                weight.grad = None
        assert steps.of(again := Mock(), weights, batches)[1] == flops[-1]
        assert again.call_count == 1
    assert flops[:2] == flops[2:]
    for alone, apart in zip(gradients[:2], gradients[2:], strict=True):
        assert all(map(torch.equal, alone, apart))
