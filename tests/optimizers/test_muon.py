"""Muon, which updates as torch's own does, and the weights that it updates."""

from typing import Any

import pytest
import torch
from torch import nn

from stages.models._heads import ModelWithHead
from stages.optimizers.adamw import AdamW
from stages.optimizers.muon import Muon, hidden_matrices, orthogonalised
from tests.small import VOCAB_SIZE, small_model

LR, DECAY, STEPS = 0.01, 0.1, 5


class Backbone(nn.Module):
    """A stub of a backbone: an embedding and blocks."""

    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.token_embedding, self.layers = nn.Embedding(9, 8), nn.ModuleList(blocks)


def model_of(*blocks: nn.Module) -> Any:
    model: Any = ModelWithHead(small_model("modernbert"), nn.Linear(8, 2))
    model.backbone = Backbone(*blocks)
    return model


def with_gradients(model: nn.Module, *, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        weight.grad = torch.randn(weight.shape, generator=generator)


def test_muon_steps_like_torch_with_each_part_of_a_fused_layer_as_a_matrix() -> None:
    torch.manual_seed(0)
    block = nn.ModuleDict({"Wqkv": nn.Linear(8, 24), "Wo": nn.Linear(8, 8), "up": nn.Linear(8, 32)})
    model = model_of(block)
    hidden: dict[str, Any] = {name: layer.weight for name, layer in block.items()}
    numbers = {"Wqkv": 3, "Wo": 1, "up": 1}
    copies = {
        name: [nn.Parameter(part.detach().clone()) for part in weight.chunk(numbers[name])]
        for name, weight in hidden.items()
    }
    reference = torch.optim.Muon(
        [part for parts in copies.values() for part in parts],
        lr=LR,
        weight_decay=DECAY,
        adjust_lr_fn="match_rms_adamw",
        momentum=0.95,
    )
    optimizer = Muon(model, DECAY, torch.bfloat16)
    for step in range(STEPS):
        with_gradients(model, seed=step)
        for name, weight in hidden.items():
            for part, of_part in zip(copies[name], weight.grad.chunk(numbers[name]), strict=True):
                part.grad = of_part.clone()
        optimizer.step(lr=LR)
        reference.step()
    for name, weight in hidden.items():
        # Both multiply in bfloat16, in different orders: updates differ by about 1 %.
        torch.testing.assert_close(
            weight, torch.cat([*copies[name]]), atol=STEPS * LR * 0.02, rtol=0
        )


def test_muon_leaves_other_weights_to_adamw() -> None:
    torch.manual_seed(0)
    model = model_of(nn.Linear(8, 8))
    alike = model_of(nn.Linear(8, 8))
    alike.load_state_dict(model.state_dict())
    with_gradients(model, seed=1), with_gradients(alike, seed=1)
    Muon(model, DECAY, torch.float32).step(lr=LR)
    AdamW(alike, DECAY, torch.float32).step(lr=LR)
    others = dict(alike.named_parameters())
    differ = {n for n, w in model.named_parameters() if not torch.equal(w, others[n])}
    assert differ == {"backbone.layers.0.weight"}


def test_muon_updates_have_the_stated_root_mean_square() -> None:
    layer = nn.Linear(64, 64)
    model = model_of(layer)
    before = layer.weight.detach().clone()
    with_gradients(model, seed=1)
    Muon(model, 0.0, torch.float32, update_rms=0.4).step(lr=LR)
    rms = (layer.weight - before).square().mean().sqrt().item()
    assert rms == pytest.approx(0.4 * LR, rel=0.2)


@pytest.mark.parametrize("optimizer", [AdamW, Muon])
def test_step_leaves_weights_without_gradient(optimizer: Any) -> None:
    model = model_of(nn.Linear(8, 8))
    made = optimizer(model, DECAY, torch.float32)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    model.head.weight.grad = torch.ones(2, 8)
    made.step(lr=LR)
    changed = {n for n, w in model.named_parameters() if not torch.equal(w, before[n])}
    assert changed == {"head.weight"} and model.head.weight.grad is None


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 8, 32)])
def test_orthogonalised_keeps_directions_and_equalises_their_sizes(shape) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    u, _, vh = torch.linalg.svd(matrices, full_matrices=False)
    sizes = u.mT @ orthogonalised(matrices) @ vh.mT  # diagonal if the directions are kept
    diagonal = sizes.diagonal(dim1=1, dim2=2)
    assert diagonal.min() > 0.5 and diagonal.max() < 1.3
    torch.testing.assert_close(sizes, torch.diag_embed(diagonal), atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    ("family", "stacks"),
    [
        ("modernbert", {"attn.Wqkv": (3, 0), "attn.Wo": (1, 0), "mlp.Wi": (2, 0)}),
        ("gpt2", {"attn.c_attn": (3, 1), "attn.c_proj": (1, 1), "mlp.c_fc": (1, 1)}),
        ("bilstm", {"weight_ih_l0": (4, 0), "weight_hh_l0": (4, 0)}),
    ],
)
def test_hidden_matrices_are_those_of_linear_layers_in_blocks(family: str, stacks: Any) -> None:
    backbone = small_model(family)
    matrices = hidden_matrices(backbone, VOCAB_SIZE)
    names = dict(backbone.named_parameters())
    assert backbone.token_embedding.weight not in matrices
    for layer, stack in stacks.items():
        weights = [weight for name, weight in names.items() if layer in name and weight.dim() == 2]
        assert weights and all(matrices[weight] == stack for weight in weights)
