"""AdamW and Muon, which updates as torch's own does, and the weights that each updates."""

from typing import Any

import pytest
import torch
from torch import nn

from stages.models._heads import ModelWithHead
from stages.optimizers.adamw import AdamW
from stages.optimizers.muon import Muon, hidden_matrices
from tests.small import VOCAB_SIZE, small_model

LR, DECAY, STEPS = 0.01, 0.1, 5


class Backbone(nn.Module):
    """A stub of a backbone: an embedding and blocks."""

    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.token_embedding, self.layers = nn.Embedding(9, 8), nn.ModuleList(blocks)


def model_of(*blocks: nn.Module) -> Any:
    torch.manual_seed(0)
    model: Any = ModelWithHead(small_model("modernbert"), nn.Linear(8, 2))
    model.backbone = Backbone(*blocks)
    return model


def with_gradients(model: nn.Module, *, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        weight.grad = torch.randn(weight.shape, generator=generator)


def test_muon_steps_like_torch_with_each_part_of_a_fused_layer_as_a_matrix() -> None:
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
        expected = torch.cat([*copies[name]])
        torch.testing.assert_close(weight, expected, atol=STEPS * LR * 0.02, rtol=0)


def test_muon_leaves_other_weights_to_adamw_which_is_torch_s_without_decay_of_vectors() -> None:
    models = [model_of(nn.Linear(8, 8)) for _ in range(3)]
    for model in models:
        model.load_state_dict(models[0].state_dict())
        with_gradients(model, seed=1)
    Muon(models[0], DECAY, torch.float32).step(lr=LR)
    AdamW(models[1], DECAY, torch.float32).step(lr=LR)
    for weight in models[2].parameters():
        torch.optim.AdamW([weight], lr=LR, weight_decay=DECAY * (weight.dim() > 1)).step()
    muon, adamw, theirs = (dict(model.named_parameters()) for model in models)
    differ = {name for name, weight in muon.items() if not torch.equal(weight, adamw[name])}
    assert differ == {"backbone.layers.0.weight"}
    for name, weight in adamw.items():
        torch.testing.assert_close(weight, theirs[name])


@pytest.mark.parametrize("optimizer", [AdamW, Muon])
def test_step_leaves_weights_without_gradient(optimizer: Any) -> None:
    model = model_of(nn.Linear(8, 8))
    made = optimizer(model, DECAY, torch.float32)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    model.head.weight.grad = torch.ones(2, 8)
    made.step(lr=LR)
    changed = {n for n, w in model.named_parameters() if not torch.equal(w, before[n])}
    assert changed == {"head.weight"} and model.head.weight.grad is None


def test_hidden_matrices_are_those_of_linear_layers_in_blocks() -> None:
    stacks = {
        "modernbert": {"attn.Wqkv": (3, 0), "attn.Wo": (1, 0), "mlp.Wi": (2, 0)},
        "gpt2": {"attn.c_attn": (3, 1), "attn.c_proj": (1, 1), "mlp.c_fc": (1, 1)},
        "bilstm": {"weight_ih_l0": (4, 0), "weight_hh_l0": (4, 0)},
    }
    for family, of_layers in stacks.items():
        backbone = small_model(family)
        matrices = hidden_matrices(backbone, VOCAB_SIZE)
        assert backbone.token_embedding.weight not in matrices
        for layer, stack in of_layers.items():
            weights = [w for n, w in backbone.named_parameters() if layer in n and w.dim() == 2]
            assert weights and all(matrices[weight] == stack for weight in weights)
