"""The start of pretraining: the output bias begins with the frequencies of targets."""

from typing import Any

import pytest
import torch

from stages.core.seeding import torch_stream
from stages.models._heads import ModelWithHead, initialise_head
from stages.objectives._objective import OBJECTIVES
from stages.text.batch import IGNORE_INDEX
from stages.text.packing import Packing
from stages.training.loop import mean_loss
from stages.training.pretraining import PretrainingData, begin_with_frequencies
from tests.small import VOCAB_SIZE, small_corpus, small_model, small_tokenizer
from tests.training.test_loop import CPU

LENGTH, ROWS, STEPS = 64, 8, 40
PAIRS = [
    ("modernbert", {"name": "mlm"}),
    ("modernbert", {"name": "span_mlm", "boundary_objective": False}),
    ("phi", {"name": "causal"}),
    ("phi", {"name": "prefix_lm"}),
    ("bart", {"name": "denoising"}),
    ("bilstm", {"name": "bidirectional_lm"}),
]


def objective_of(settings: dict[str, Any]) -> Any:
    return OBJECTIVES.build(settings, small_tokenizer(), LENGTH, where="objective")


def data_of(objective: Any) -> PretrainingData:
    packing = Packing(small_corpus(), LENGTH, seed=1)
    return PretrainingData(packing, objective, batch_rows=ROWS, micro_batch_rows=ROWS, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "settings"), PAIRS)
def test_begin_with_frequencies_gives_the_entropy_of_targets_as_first_loss(
    architecture, settings
) -> None:
    """Before the bias is set the loss is that of guessing."""
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
    model = ModelWithHead(backbone, objective.head(backbone))
    initialise_head(model.head, generator=torch_stream(1, "head"))
    before = mean_loss(model, objective, batches, CPU)
    begin_with_frequencies(backbone, data, num_steps=STEPS)
    after = mean_loss(model, objective, batches, CPU)
    assert before == pytest.approx(guessing, rel=0.15)
    assert after - entropy < 0.2 * (guessing - entropy) + (before - guessing)


def test_begin_with_frequencies_keeps_a_bias_that_was_learnt_and_needs_one() -> None:
    """Continued pretraining begins with the parent's bias."""
    data, learnt = data_of(objective_of({"name": "causal"})), small_model("phi")
    with torch.no_grad():
        learnt.logit_bias[7] = 1.5
    for backbone in (learnt, small_model("gpt2"), small_model("t5")):
        weights = {name: weight.clone() for name, weight in backbone.state_dict().items()}
        begin_with_frequencies(backbone, data, num_steps=2)
        for name, weight in backbone.state_dict().items():
            assert torch.equal(weights[name], weight)
