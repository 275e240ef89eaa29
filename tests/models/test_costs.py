"""Sizes and memory computed from the configuration are those of built models."""

from typing import Any, get_args

import pytest
import torch
import torch.nn.functional as F

from stages.models._backbone import MODELS
from stages.models._costs import (
    Architecture,
    activation_bytes_per_token,
    num_params,
)
from stages.models._dimensions import Dimensions
from stages.text.batch import Batch

VOCAB_SIZE, ROWS, LENGTH = 300, 4, 48
BASE: dict[str, Any] = {"d_model": 64, "num_layers": 2, "num_heads": 4, "d_ff": 128}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"activation": "swiglu"},
    {"activation": "relu", "norm": "rmsnorm", "bias": False, "positions": "relative"},
    {
        "norm_position": "post",
        "positions": "learned",
        "embedding_norm": True,
        "num_segments": 2,
        "output_transform": True,
    },
    {"tied": False},
    {"output_bias": False},
]


def model_of(architecture: str, options: dict[str, Any]) -> Any:
    entry = {"name": architecture, **BASE, **options}
    return MODELS.build(entry, VOCAB_SIZE, where="model")


def loss_of(model: Any) -> torch.Tensor:
    ids = torch.randint(5, VOCAB_SIZE, (ROWS, LENGTH), generator=torch.Generator().manual_seed(0))
    batch = Batch(input_ids=ids, document_ids=torch.ones_like(ids), num_targets={})
    logits = model.unembed(model(batch)).flatten(0, 1)
    return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long), reduction="sum")


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("architecture", get_args(Architecture))
def test_parameters_are_those_of_the_built_model(architecture: Any, options: Any) -> None:
    model = model_of(architecture, options)
    account = num_params(architecture, VOCAB_SIZE, Dimensions(**BASE, **options))
    assert account.total == sum(p.numel() for p in model.parameters())
    assert account.embedding == sum(p.numel() for p in model.embedding.parameters())
    stacks = [getattr(model, name, None) for name in ("stack", "encoder", "decoder")]
    assert account.body == sum(p.numel() for s in stacks if s is not None for p in s.parameters())


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("architecture", ["encoder", "decoder"])
def test_memory_is_what_autograd_keeps(architecture: Any, options: Any) -> None:
    model = model_of(architecture, options)
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[tuple[int, int], torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        own = tensor.untyped_storage().data_ptr() in weights
        if tensor.is_floating_point() and not own:
            kept[tensor.data_ptr(), tensor.numel()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss_of(model)
    measured = sum(tensor.nbytes for tensor in kept.values()) / (ROWS * LENGTH)
    dims = Dimensions(**BASE, **options)
    account = activation_bytes_per_token(architecture, VOCAB_SIZE, dims, length=LENGTH)
    assert account == pytest.approx(measured, rel=0.02)


def test_the_formula_of_a_model_whose_d_ff_is_d_model() -> None:
    """Without biases and norms, an encoder with d_ff = d has V d + 6 N d^2 parameters."""
    d, layers = 64, 3
    dims = Dimensions(
        d_model=d, num_layers=layers, num_heads=4, d_ff=d, bias=False, output_bias=False
    )
    account = num_params("encoder", VOCAB_SIZE, dims)
    assert account.total - (2 * layers + 1) * d == VOCAB_SIZE * d + 6 * layers * d * d
