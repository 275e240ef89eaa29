"""The start of pretraining: the output bias begins with the frequencies of targets."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from stages.core.seeding import torch_stream
from stages.models._heads import ModelWithHead, initialise_head
from stages.objectives._objective import OBJECTIVES
from stages.text.batch import IGNORE_INDEX
from stages.text.packing import Packing
from stages.training.device import Device
from stages.training.loop import mean_loss, train
from stages.training.pretraining import (
    PretrainingData,
    begin_with_frequencies,
    target_frequencies,
)
from tests.small import VOCAB_SIZE, small_corpus, small_model, small_schedule, small_tokenizer

CPU = Device("cpu", "float32", compile=False, threads=1)
LENGTH, ROWS, STEPS = 64, 8, 40
PAIRS = [
    ("encoder", {"name": "mlm"}),
    ("encoder", {"name": "span_mlm", "boundary_objective": False}),
    ("decoder", {"name": "causal"}),
    ("decoder", {"name": "prefix_lm"}),
    ("encoder_decoder", {"name": "span_corruption"}),
    ("encoder_decoder", {"name": "denoising"}),
    ("bilstm", {"name": "bidirectional_lm"}),
]


def objective_of(settings: dict[str, Any]) -> Any:
    return OBJECTIVES.build(settings, small_tokenizer(), LENGTH, where="objective")


def data_of(objective: Any) -> PretrainingData:
    packing = Packing(small_corpus(), LENGTH, seed=1)
    return PretrainingData(packing, objective, batch_rows=ROWS, micro_batch_rows=ROWS, seed=1)


def headed(objective: Any, backbone: Any) -> ModelWithHead:
    model = ModelWithHead(backbone, objective.head(backbone))
    initialise_head(model.head, generator=torch_stream(1, "head"))
    return model


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "settings"), PAIRS)
def test_begin_with_frequencies_gives_the_entropy_of_targets_as_first_loss(
    architecture, settings
) -> None:
    """Before the bias is set the loss is that of guessing. A model without a bias is unchanged."""
    objective = objective_of(settings)
    data = data_of(objective)
    batches = [batch for step in range(STEPS) for batch in data.micro_batches(step)]
    targets = torch.cat([batch.labels.flatten() for batch in batches if batch.labels is not None])
    shares = torch.bincount(targets[targets != IGNORE_INDEX]).double()
    shares = shares[shares > 0] / shares.sum()
    entropy = float(-(shares * shares.log()).sum())
    guessing = float(torch.tensor(VOCAB_SIZE).log())
    assert entropy < 0.9 * guessing

    backbone = small_model(architecture)
    model = headed(objective, backbone)
    before = mean_loss(model, objective, batches, CPU)
    begin_with_frequencies(backbone, data, num_steps=STEPS)
    after = mean_loss(model, objective, batches, CPU)
    assert before == pytest.approx(guessing, rel=0.15)
    assert after - entropy < 0.2 * (guessing - entropy) + (before - guessing)

    plain = small_model(architecture, output_bias=False)
    weights = {name: weight.clone() for name, weight in plain.state_dict().items()}
    begin_with_frequencies(plain, data, num_steps=STEPS)
    assert all(torch.equal(weights[name], weight) for name, weight in plain.state_dict().items())


def test_target_frequencies_count_until_there_are_enough() -> None:
    objective = objective_of({"name": "causal"})
    data = data_of(objective)
    labels = torch.cat([data.micro_batches(step)[0].labels.flatten() for step in range(3)])  # type: ignore[union-attr]
    counts = 1 + torch.bincount(labels[labels != IGNORE_INDEX], minlength=VOCAB_SIZE)
    frequencies = target_frequencies(data, VOCAB_SIZE, num_steps=3)
    torch.testing.assert_close(frequencies, counts / counts.sum())
    most = target_frequencies(data, VOCAB_SIZE, num_steps=10**9)  # ends early
    assert most.min() > 0 and float(most.sum()) == pytest.approx(1)


def test_begin_with_frequencies_keeps_a_bias_that_was_learnt() -> None:
    """Continued pretraining begins with the parent's bias."""
    backbone = small_model("decoder")
    with torch.no_grad():
        backbone.output_bias[7] = 1.5
    learnt = backbone.output_bias.detach().clone()
    begin_with_frequencies(backbone, data_of(objective_of({"name": "causal"})), num_steps=2)
    assert torch.equal(backbone.output_bias, learnt)


@pytest.mark.slow
def test_begin_with_frequencies_keeps_states_of_tokens_apart() -> None:
    """A decoder without the bias makes all states alike to learn frequencies. This holds for three
    seeds, and for 180 steps; at a rate of 3e-3 states can be alike with the bias, too."""
    objective = objective_of({"name": "span_corruption"})
    data = data_of(objective)
    schedule = small_schedule(rows=ROWS, max_tokens=LENGTH, num_steps=60, lr=1e-3)
    cosines = {}
    for output_bias in (False, True):
        backbone = small_model("encoder_decoder", output_bias=output_bias)
        begin_with_frequencies(backbone, data, num_steps=schedule.num_steps)
        steps = train(
            headed(objective, backbone),
            objective,
            data,
            schedule.at(1e-3),
            num_steps=schedule.num_steps,
            seed=1,
            device=CPU,
        )
        assert len(list(steps)) == schedule.num_steps
        with torch.no_grad():
            batch = data.micro_batches(0)[0]
            states = F.normalize(backbone.eval()(batch)[batch.document_ids > 0], dim=-1)
            cosines[output_bias] = float((states @ states.T).mean())
    assert cosines[True] < 0.5 < 0.9 < cosines[False]
