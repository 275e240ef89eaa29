"""Normalisation of states."""

from torch import nn

from stages.models._dimensions import Dimensions

NORM_EPS = {"layernorm": 1e-5, "rmsnorm": 1e-6}  # torch's and T5's


def make_norm(dims: Dimensions) -> nn.Module:
    eps = NORM_EPS[dims.norm]
    if dims.norm == "layernorm":
        return nn.LayerNorm(dims.d_model, eps=eps, bias=dims.bias)
    return nn.RMSNorm(dims.d_model, eps=eps)
