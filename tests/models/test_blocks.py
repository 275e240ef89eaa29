"""Attention, positions and Transformer blocks."""

import math
from dataclasses import replace

import pytest
import torch

from stages.models import _attention
from stages.models._attention import (
    WRITTEN_OUT,
    Attention,
    _square_buckets,
    attend,
    attention_mask,
    known_buckets,
    relative_buckets,
    rotate,
    rotation,
)
from stages.models._blocks import Block
from stages.models._dimensions import Dimensions
from stages.models._embedding import positions_in_document
from tests.small import small_model
from tests.training.trained_by_ranks import built, cases


def test_attention_by_hand() -> None:
    """A head of width 2 with identity projections computes softmax(q k / 2^.5) v."""
    dims = Dimensions(d_model=2, num_layers=1, num_heads=1, d_ff=2, positions="none")
    attention = Attention(dims)
    with torch.no_grad():
        attention.query.weight.copy_(torch.eye(2))
        attention.key_value.weight.copy_(torch.cat([torch.eye(2), torch.eye(2)]))
        attention.output.weight.copy_(torch.eye(2))
        for layer in (attention.query, attention.key_value, attention.output):
            layer.bias.zero_()
    x = torch.tensor([[[1.0, 0.0], [1.0, 1.0]]])
    ids = torch.ones(1, 2, dtype=torch.long)
    out = attention(x, x, attention_mask(ids, ids, causal=True))
    weight = 1 / (1 + math.exp((2 - 1) / math.sqrt(2)))  # of the first token: scores 1 and 2
    expected = weight * x[0, 0] + (1 - weight) * x[0, 1]
    torch.testing.assert_close(out[0, 1], expected)
    torch.testing.assert_close(out[0, 0], x[0, 0])


ROWS = {"short": 5, "too long to write out": WRITTEN_OUT + 1}


@pytest.mark.parametrize("length", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("kind", ["mask", "bias"])
def test_attention_in_bfloat16_is_that_of_double_precision_but_for_rounding(
    kind: str, length: int
) -> None:
    """Values and gradients agree to within 2^-7."""
    generator = torch.Generator().manual_seed(0)
    shape = (2, 3, length, 4)
    inputs = [torch.randn(shape, generator=generator).bfloat16().double() for _ in range(3)]
    weights = torch.randn(shape, generator=generator).bfloat16()
    mask = torch.ones(2, 1, length, length, dtype=torch.bool).tril()
    if kind == "bias":
        mask = torch.randn(2, 3, length, length, generator=generator).masked_fill(~mask, -math.inf)
    rounded, expected = [], []
    for dtype, results in ((torch.float64, expected), (torch.bfloat16, rounded)):
        q, k, v = (each.to(dtype).requires_grad_() for each in inputs)
        if dtype == torch.float64:
            scores = (q @ k.mT) / math.sqrt(4)
            scores = scores.masked_fill(~mask, -math.inf) if kind == "mask" else scores + mask
            mixed = scores.softmax(dim=-1) @ v
        else:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                mixed = attend(q, k, v, mask)
            assert mixed.dtype == torch.bfloat16
        results += [mixed, *torch.autograd.grad((mixed * weights).sum(), (q, k, v))]
    for some, right in zip(rounded, expected, strict=True):
        error = (some.double() - right).norm() / right.norm()
        assert error < 2**-7  # bfloat16 has 8 binary digits; values are rounded three times


@pytest.mark.parametrize(("name", "architecture"), cases())
def test_attend_leaves_every_query_a_key(
    name: str, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padding has a key, too, even in a decoder whose encoder has no padding."""
    objective, model, data = built(name, architecture)

    def checked(q, k, v, mask):
        assert (mask if mask.dtype == torch.bool else mask > -math.inf).any(dim=-1).all()
        return attend(q, k, v, mask)

    monkeypatch.setattr(_attention, "attend", checked)
    for batch in data.micro_batches(0):
        full = replace(batch, document_ids=batch.document_ids.clamp(min=1))
        objective.loss(model, full if architecture == "encoder_decoder" else batch)


def weights_of_the_middle(locality: float) -> torch.Tensor:
    """Returns the attention weights of 41 tokens for the middle one, by positions alone."""
    dims = Dimensions(d_model=256, num_layers=1, num_heads=1, d_ff=2)
    attention = Attention(dims)
    with torch.no_grad():
        for weight in attention.parameters():
            weight.zero_()
        attention.key_value.weight[dims.d_model :] = torch.eye(dims.d_model)
        attention.output.weight.copy_(torch.eye(dims.d_model))
    attention.initialise_locality(locality, generator=torch.Generator().manual_seed(0))
    ids = torch.ones(1, 41, dtype=torch.long)
    tokens = torch.eye(dims.d_model)[None, :41]
    return attention(tokens, tokens, attention_mask(ids, ids))[0, 20, :41]


def test_attention_begins_local() -> None:
    """Weights fall with the distance over four tokens, equally on both sides."""
    weights = weights_of_the_middle(11.0)
    torch.testing.assert_close(weights, weights.flip(0))
    assert weights[20:25].diff().max() < 0
    assert weights[18:23].sum() > 3 * 5 / 41


def test_without_locality_every_token_weighs_the_same() -> None:
    torch.testing.assert_close(weights_of_the_middle(0.0), torch.full((41,), 1 / 41))


def test_locality_is_the_logit_of_a_token_for_itself() -> None:
    """The locality is the mean over heads of |bias|^2 / sqrt(head width)."""
    attention = Attention(Dimensions(d_model=512, num_layers=1, num_heads=16, d_ff=2))
    attention.initialise_locality(11.0, generator=torch.Generator().manual_seed(0))
    heads = attention.query.bias.unflatten(0, (16, 32))
    torch.testing.assert_close(
        (heads.square().sum(1) / 32**0.5).mean(), torch.tensor(11.0), atol=1.5, rtol=0
    )


def test_mask_of_two_documents_and_padding() -> None:
    ids = torch.tensor([[1, 1, 2, 0]])
    bidirectional = attention_mask(ids, ids)[0, 0]
    assert bidirectional.int().tolist() == [
        [1, 1, 0, 0],
        [1, 1, 0, 0],
        [0, 0, 1, 0],
        [0, 0, 0, 1],
    ]
    causal = attention_mask(ids, ids, causal=True)[0, 0]
    assert causal[0].int().tolist() == [1, 0, 0, 0]


def test_positions_begin_anew_in_each_document() -> None:
    ids = torch.tensor([[1, 1, 1, 2, 2, 0], [1, 2, 3, 3, 3, 3]])
    assert positions_in_document(ids).tolist() == [[0, 1, 2, 0, 1, 0], [0, 0, 0, 1, 2, 3]]


@pytest.mark.parametrize("bidirectional", [True, False])
def test_known_buckets_are_those_of_any_lengths_and_computed_once(
    bidirectional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    _square_buckets.cache_clear()
    calls = list[int]()

    def counted(num_queries: int, num_keys: int, *, bidirectional: bool) -> torch.Tensor:
        calls.append(num_keys)
        return relative_buckets(num_queries, num_keys, bidirectional=bidirectional)

    monkeypatch.setattr(_attention, "relative_buckets", counted)
    for num_queries, num_keys in [(300, 300), (1, 290), (7, 512), (260, 260), (1, 1), (3, 3)] * 2:
        buckets = known_buckets(
            num_queries, num_keys, bidirectional=bidirectional, device=torch.device("cpu")
        )
        right = relative_buckets(num_queries, num_keys, bidirectional=bidirectional)
        assert torch.equal(buckets, right)
    assert calls == [512, 1, 4]


def test_rotation_keeps_lengths_and_depends_on_distance_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, 1, 1, 8, generator=generator).expand(1, 1, 10, 8) for _ in range(2))
    turns = rotation(10, 8, q.device, q.dtype)
    q_turned, k_turned = (rotate(each.transpose(1, 2), *turns).transpose(1, 2) for each in (q, k))
    torch.testing.assert_close(q_turned.norm(dim=-1), q.norm(dim=-1))
    scores = (q_turned @ k_turned.transpose(-1, -2))[0, 0]
    for distance in (-3, 0, 4):
        diagonal = scores.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))


@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_a_block_whose_layers_write_nothing_passes_its_input_on(norm_position) -> None:
    dims = Dimensions(d_model=4, num_layers=1, num_heads=1, d_ff=8, norm_position=norm_position)
    block = Block(dims)
    with torch.no_grad():
        for layer in (block.attention.output, block.feed_forward.down):
            layer.weight.zero_()
            layer.bias.zero_()
    generator = torch.Generator().manual_seed(0)
    x = torch.nn.functional.layer_norm(torch.randn(1, 3, 4, generator=generator), (4,))
    ids = torch.ones(1, 3, dtype=torch.long)
    torch.testing.assert_close(block(x, attention_mask(ids, ids)), x, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("architecture", ["encoder", "decoder", "encoder_decoder"])
def test_drop_locality_leaves_the_weights_of_a_model_without_it(architecture) -> None:
    """Biases of queries and keys become 0; all other weights are the same draw, bit for bit."""
    local, usual = small_model(architecture), small_model(architecture, locality=0.0)
    assert local.starts_local and not usual.starts_local
    before = {name: weight.clone() for name, weight in local.named_parameters()}
    local.drop_locality()
    changed = set()
    for (name, weight), expected in zip(local.named_parameters(), usual.parameters(), strict=True):
        assert torch.equal(weight, expected)
        if not torch.equal(weight, before[name]):
            changed.add(name.split(".")[-2])
    assert changed == {"query", "key_value"}
    for module in local.modules():
        if isinstance(module, Attention):
            width = module.query.bias.numel()
            assert not module.query.bias.any() and not module.key_value.bias[:width].any()
