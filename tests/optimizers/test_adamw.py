"""AdamW, which updates weights as torch's own does."""

import copy

import torch
from torch import nn

from stages.optimizers._adamw_update import AdamWUpdate


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
    optimizer = AdamWUpdate(dict(ours.named_parameters()), 0.1)
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
    optimizer = AdamWUpdate({f"1.{n}": p for n, p in second.named_parameters()}, 0.5)
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step(lr=0.1)
    assert torch.equal(first.weight, before["0.weight"])
    assert not torch.equal(second.weight, before["1.weight"])
