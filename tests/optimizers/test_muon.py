"""Muon, which updates as torch's own does, and the weights that it updates."""

import pytest
import torch
from torch import nn

from stages.models._heads import ModelWithHead
from stages.optimizers._optimizer import OPTIMIZERS
from stages.optimizers.muon import Muon, orthogonalised
from tests.small import headless, small_model

LR, DECAY, STEPS = 0.01, 0.1, 5


def with_gradients(model: ModelWithHead, *, seed: int) -> ModelWithHead:
    generator = torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        weight.grad = torch.randn(weight.shape, generator=generator)
    return model


def parts_of(name: str, weight: torch.Tensor) -> list[torch.Tensor]:
    return list(weight.chunk(2 if "key_value" in name or "up" in name else 1))


@pytest.mark.parametrize("architecture", ["encoder", "encoder_decoder"])
def test_muon_steps_like_torch(architecture: str) -> None:
    """Keys and values are two matrices of one layer, and so are the values and gates of swiglu."""
    ours = headless(small_model(architecture, activation="swiglu"))
    hidden = {
        name: weight
        for name, weight in ours.named_parameters()
        if "blocks" in name and weight.dim() == 2
    }
    copies = {
        name: [nn.Parameter(part.clone()) for part in parts_of(name, weight)]
        for name, weight in hidden.items()
    }
    parts = [part for several in copies.values() for part in several]
    reference = torch.optim.Muon(
        parts, lr=LR, weight_decay=DECAY, adjust_lr_fn="match_rms_adamw", momentum=0.95
    )
    optimizer = Muon(ours, DECAY, torch.bfloat16)
    for step in range(STEPS):
        with_gradients(ours, seed=step)
        for name, weight in hidden.items():
            assert weight.grad is not None
            for part, gradient in zip(copies[name], parts_of(name, weight.grad), strict=True):
                part.grad = gradient.clone()
        optimizer.step(lr=LR)
        reference.step()
        assert all(weight.grad is None for weight in ours.parameters())
    for name, weight in hidden.items():
        # Both multiply in bfloat16, in different orders: updates differ by about 1 %.
        torch.testing.assert_close(
            weight, torch.cat([*copies[name]]), atol=STEPS * LR * 0.02, rtol=0
        )
    assert len(hidden) == len(optimizer.model.backbone.hidden_matrices())


def test_muon_leaves_other_weights_to_adamw() -> None:
    model, alike = headless(small_model("decoder")), headless(small_model("decoder"))
    optimizer = Muon(model, DECAY, torch.float32)
    reference = OPTIMIZERS.build({"name": "adamw"}, alike, DECAY, torch.float32, where="optimizer")
    with_gradients(model, seed=1), with_gradients(alike, seed=1)
    optimizer.step(lr=LR)
    reference.step(lr=LR)
    others = dict(alike.named_parameters())
    for name, weight in model.named_parameters():
        is_hidden = set(optimizer.state[name]) == {"momentum"}
        assert is_hidden == ("blocks" in name and weight.dim() == 2)
        assert torch.equal(weight, others[name]) != is_hidden


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 8, 32)])
def test_orthogonalised_keeps_directions_and_equalises_their_sizes(shape) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    u, _, vh = torch.linalg.svd(matrices, full_matrices=False)
    sizes = u.mT @ orthogonalised(matrices) @ vh.mT  # diagonal if the directions are kept
    diagonal = sizes.diagonal(dim1=1, dim2=2)
    assert diagonal.min() > 0.5 and diagonal.max() < 1.3
    torch.testing.assert_close(sizes, torch.diag_embed(diagonal), atol=1e-3, rtol=0)


def test_muon_updates_have_the_stated_root_mean_square() -> None:
    model = headless(small_model("encoder"))
    weight = next(iter(model.backbone.hidden_matrices()))
    before = weight.detach().clone()
    Muon(with_gradients(model, seed=1), 0.0, torch.float32, update_rms=0.4).step(lr=LR)
    rms = (weight - before).square().mean().sqrt().item()
    assert rms == pytest.approx(0.4 * LR, rel=0.2)


def test_muon_trains_the_gates_of_a_bilstm_one_by_one() -> None:
    backbone = small_model("bilstm")
    parts = backbone.hidden_matrices()
    names = {name for name, weight in backbone.named_parameters() if parts.get(weight) == 4}
    assert names and all("weight_ih" in name or "weight_hh" in name for name in names)


def test_muon_leaves_weights_without_gradient() -> None:
    model = headless(small_model("encoder"))
    optimizer = Muon(model, DECAY, torch.float32)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer.step(lr=LR)
    assert all(torch.equal(w, before[name]) for name, w in model.named_parameters())


@pytest.mark.parametrize(("settings", "word"), [({"update_rms": 0.0}, "0"), ({}, "adamw")])
def test_muon_refuses_what_it_cannot_do(settings: dict[str, float], word: str) -> None:
    model = headless(small_model("encoder"))
    if not settings:
        for weight in model.backbone.hidden_matrices():
            weight.requires_grad_(False)
    with pytest.raises(ValueError, match=word):
        Muon(model, DECAY, torch.float32, **settings)
