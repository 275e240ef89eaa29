"""AdamW as torch's own, and its schedule."""

import copy

import pytest
import torch
from torch import nn

from stages.training.optimizer import AdamW, lr_factor


def test_adamw_steps_like_torch() -> None:
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2))
    theirs = copy.deepcopy(ours)
    matrices = [p for p in theirs.parameters() if p.dim() >= 2]
    vectors = [p for p in theirs.parameters() if p.dim() < 2]
    reference = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=1e-2,
    )
    optimizer = AdamW(ours, weight_decay=0.1)
    for step in range(20):
        x = torch.randn(16, 4, generator=torch.Generator().manual_seed(step))
        for model in (ours, theirs):
            model(x).pow(2).sum().backward()
        optimizer.step(lr=1e-2)
        reference.step()
        reference.zero_grad()
        assert all(p.grad is None for p in ours.parameters())
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other)


def test_adamw_leaves_weights_without_gradient() -> None:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    model = nn.Sequential(first.requires_grad_(False), second)
    before = copy.deepcopy(model.state_dict())
    optimizer = AdamW(model, weight_decay=0.5)
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step(lr=0.1)
    assert torch.equal(first.weight, before["0.weight"])
    assert not torch.equal(second.weight, before["1.weight"])


@pytest.mark.parametrize("decay", ["linear", "cosine"])
def test_schedule_rises_to_1_and_falls_to_0(decay) -> None:
    factors = [lr_factor(s, 100, warmup_fraction=0.1, decay=decay) for s in range(101)]
    assert factors[0] == pytest.approx(1 / 11)
    assert max(factors) == factors[10] == pytest.approx(1.0)
    assert factors[:11] == sorted(factors[:11])
    assert factors[10:] == sorted(factors[10:], reverse=True)
    assert factors[100] == pytest.approx(0.0)


def test_constant_schedule_stays_after_warm_up() -> None:
    assert {lr_factor(s, 10, warmup_fraction=0.0, decay="constant") for s in range(10)} == {1.0}
