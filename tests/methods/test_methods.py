"""Methods: which weights train, and that nothing else changes."""

from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from stages.core.seeding import stream, torch_stream
from stages.methods._method import METHODS, TrainedMethod
from stages.methods.setfit import draw_pairs
from stages.models._backbone import MODELS
from stages.models._heads import LinearHead, ModelWithHead, initialise_head
from stages.text.batch import PADDING, Batch
from tests.small import (
    DIMENSIONS,
    FAMILIES,
    VOCAB_SIZE,
    small_entry,
    small_model,
    without_output_layers,
)

pytestmark = pytest.mark.slow

D_MODEL = DIMENSIONS["d_model"]
TRAINING = [n for n in METHODS.names() if issubclass(METHODS.find(n, where=""), TrainedMethod)]
SMALL: dict[str, dict[str, Any]] = {
    "adapter": {"bottleneck": 4},
    "lora": {"rank": 2, "alpha": 2.0, "targets": "all"},
    "prompt": {"num_prompt_tokens": 3},
    "prefix": {"num_prefix_tokens": 3},
}
REFUSED = {("prefix", "modernbert"), ("prefix", "t5"), ("bitfit", "t5")}
LSTM = "bilstm"
CONFIGS = tuple(family for family in FAMILIES if family != LSTM)
FITTING = [(m, f) for m in TRAINING for f in CONFIGS if (m, f) not in REFUSED]


def stack(family: str) -> Any:
    """Returns a small model with large weights, so that its states depend on other tokens."""
    torch.manual_seed(1)
    model = without_output_layers(small_model(family))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() >= 2:
                weight.mul_(4)
    return model


def batch_of(lengths: tuple[int, ...] = (9, 5)) -> Batch:
    ids = torch.randint(3, VOCAB_SIZE, (len(lengths), max(lengths)), generator=torch_stream(7))
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return Batch(input_ids=ids * real, document_ids=real.long(), num_targets={})


def method_of(name: str, **settings: Any) -> Any:
    return METHODS.build({"name": name, **(SMALL.get(name, {}) | settings)}, where="method")


def applied(family: str, method: Any, *, seed: int = 2) -> ModelWithHead:
    backbone = stack(family)
    assert method.incompatibility(backbone) is None, "add the pair to REFUSED"
    head = LinearHead(D_MODEL, 2, dropout=0.0)
    initialise_head(head, generator=torch_stream(1, "head"))
    model = ModelWithHead(backbone, head).eval()
    method.apply(model, generator=torch_stream(seed, "method"))
    return model.eval()


def trained_weights(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


@torch.no_grad()
def moved(model: ModelWithHead) -> ModelWithHead:
    for weight in trained_weights(model).values():
        weight.add_(torch.randn(weight.shape, generator=torch_stream(3)) * 0.3)
    return model


@torch.no_grad()
def states_of(model: ModelWithHead, batch: Batch) -> torch.Tensor:
    return model.backbone(batch)[batch.document_ids != PADDING]


@pytest.mark.parametrize(("name", "family"), FITTING)
def test_every_weight_that_trains_gets_a_gradient_and_no_other(name, family) -> None:
    model = moved(applied(family, method_of(name)))
    logits = model.head(model.backbone(batch_of()))
    (logits * torch.randn(logits.shape, generator=torch_stream(5))).sum().backward()
    unused = {"pooler", "decoder", "wpe", "position"}  # of the base models without a use here
    for key, weight in model.named_parameters():
        if not weight.requires_grad:
            assert weight.grad is None, key
        elif not any(part in key for part in unused):
            assert weight.grad is not None and weight.grad.abs().max() > 0, key


@pytest.mark.parametrize(("name", "family"), [c for c in FITTING if c[0] in ("adapter", "lora")])
def test_method_leaves_the_pretrained_model_as_it_is_at_the_start(name, family) -> None:
    plain = ModelWithHead(stack(family).eval(), nn.Identity())
    model = applied(family, method_of(name))
    assert torch.equal(states_of(model, batch_of()), states_of(plain, batch_of()))


@pytest.mark.parametrize(("name", "family"), FITTING)
def test_method_with_stored_weights_gives_the_trial(name, family, tmp_path) -> None:
    model, again = moved(applied(family, method_of(name))), applied(family, method_of(name))
    save_file({**trained_weights(model)}, tmp_path / "trial.safetensors")
    stored = load_file(tmp_path / "trial.safetensors")
    assert stored.keys() == trained_weights(again).keys()
    again.load_state_dict(stored, strict=False)
    assert torch.equal(states_of(again, batch_of()), states_of(model, batch_of()))


@pytest.mark.parametrize("name", SMALL)
def test_new_weights_are_drawn_from_the_generator_alone(name) -> None:
    torch.manual_seed(1)
    models = [applied("bert", method_of(name), seed=seed) for seed in (2, 2, 3)]
    one, same, other = (trained_weights(model) for model in models)
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)


PARTS = D_MODEL * 2 + 2  # the head
ATTENTION = 2 * 4 * 2 * (D_MODEL + D_MODEL)
NUM_TRAINED = [  # in BERT of d_model 32, 2 blocks and d_ff 64
    ("lora", {}, ATTENTION + 2 * 2 * 2 * (D_MODEL + 64)),
    ("adapter", {}, 4 * (2 * D_MODEL * 4 + 4 + D_MODEL) + 5 * 2 * D_MODEL),
    ("prompt", {}, 3 * D_MODEL),
    ("prefix", {}, 2 * 3 * 2 * D_MODEL),
    ("prefix", {"reparametrisation_width": 5}, 3 * 32 + 32 * 5 + 5 + 2 * (5 * 64 + 64)),
    ("linear_probe", {}, 0),
]


@pytest.mark.parametrize(("name", "settings", "number"), NUM_TRAINED)
def test_method_trains_as_many_weights_as_in_its_paper(name, settings, number) -> None:
    model = applied("bert", method_of(name, **settings))
    assert sum(weight.numel() for weight in trained_weights(model).values()) == number + PARTS


def test_bitfit_trains_the_biases_and_full_everything() -> None:
    names = trained_weights(applied("bert", method_of("bitfit"))).keys()
    assert all(name.endswith("bias") or name.startswith("head.") for name in names)
    assert len(names) > 2 * 6
    assert all(w.requires_grad for w in applied("bert", method_of("full")).parameters())


@pytest.mark.parametrize(
    ("name", "family"),
    sorted(REFUSED | {(name, LSTM) for name in ("adapter", "lora", "prompt", "prefix")}),
)
def test_incompatibility_says_why(name, family) -> None:
    backbone = MODELS.build(small_entry(family), VOCAB_SIZE, where="architecture")
    assert method_of(name).incompatibility(backbone)


@pytest.mark.parametrize("family", CONFIGS)
def test_merged_lora_computes_the_same_with_the_weights_of_the_pretrained_class(family) -> None:
    method = method_of("lora")
    model = moved(applied(family, method))
    expected = states_of(model, batch_of())
    method.merge(model)
    assert model.backbone.state_dict().keys() == stack(family).state_dict().keys()
    torch.testing.assert_close(states_of(model, batch_of()), expected, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(expected, states_of(applied(family, method), batch_of()), atol=1e-3)


# Prompt and prefix --------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "family"), [c for c in FITTING if c[0] in ("prompt", "prefix")])
def test_virtual_tokens_change_states_of_all_tokens_and_no_padding_does(name, family) -> None:
    model, batch = moved(applied(family, method_of(name))), batch_of()
    plain = ModelWithHead(stack(family).eval(), nn.Identity())
    states = model.backbone(batch)
    assert states.shape == (*batch.input_ids.shape, D_MODEL)
    assert ((states_of(model, batch) - states_of(plain, batch)).abs().amax(dim=-1) > 1e-4).all()
    alone = Batch(
        input_ids=batch.input_ids[1:, :5], document_ids=batch.document_ids[1:, :5], num_targets={}
    )
    torch.testing.assert_close(model.backbone(alone)[0], states[1, :5], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ["llama", "bart"])
def test_prompt_is_at_the_start_the_tokens_it_was_drawn_from(family) -> None:
    batch, model = batch_of((9,)), applied(family, method_of("prompt"))
    table: Any = model.backbone.token_embedding.weight
    vectors = trained_weights(model)["backbone.model.learnt.embedding.weight"]
    scale: Any = getattr(model.backbone.token_embedding, "embed_scale", 1.0)
    drawn = torch.tensor(
        [int((table * scale - v).abs().sum(dim=1).argmin()) for v in vectors.detach()]
    )
    after = Batch(
        input_ids=torch.cat([drawn[None], batch.input_ids], dim=1),
        document_ids=torch.ones(1, 12, dtype=torch.long),
        num_targets={},
    )
    expected = stack(family).eval()(after)[:, 3:]
    torch.testing.assert_close(model.backbone(batch), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["prompt", "prefix"])
def test_virtual_tokens_do_not_let_a_decoder_look_ahead(name) -> None:
    ids = torch.tensor([[7, 8, 9, 10], [7, 8, 9, 11]])
    batch = Batch(input_ids=ids, document_ids=torch.ones_like(ids), num_targets={})
    one, other = moved(applied("llama", method_of(name))).backbone(batch)
    torch.testing.assert_close(one[:3], other[:3])
    assert not torch.allclose(one[3], other[3])


# Gradual unfreezing -------------------------------------------------------------------------------


def test_gradual_unfreezing_goes_from_the_head_down() -> None:
    method, model = method_of("gradual_unfreezing"), applied("bert", method_of("full"))
    lower, upper = ({id(weight) for weight in b.parameters()} for b in model.backbone.blocks)
    every, head = ({id(weight) for weight in m.parameters()} for m in (model, model.head))
    first, second, third = ({id(w) for w in method.frozen(model, epoch)} for epoch in range(3))
    assert first == every - head and second == first - upper
    assert lower <= second and not third
    headless = ModelWithHead(model.backbone, nn.Identity())
    assert {id(w) for w in method.frozen(headless, 0)} == second  # begins with the upper block


# SetFit -------------------------------------------------------------------------------------------


def test_draw_pairs_gives_each_row_as_many_pairs_of_its_class_as_of_others() -> None:
    classes = np.array([0, 1, 0, 1, 1, 2])  # the last row is alone
    one, same, other = (draw_pairs(classes, 6, rng=stream(seed, "pairs")) for seed in (1, 1, 2))
    assert np.array_equal(one, same) and not np.array_equal(one, other)
    assert (one[:, 0] != one[:, 1]).all()
    alike = classes[one[:, 0]] == classes[one[:, 1]]
    for row in range(6):
        of_row = alike[one[:, 0] == row]
        assert (of_row.sum(), (~of_row).sum()) == (0 if row == 5 else 3, 3)


# The probe ----------------------------------------------------------------------------------------


def data_of(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns states [N D] of unequal scale and means, with targets that depend on them."""
    rng = np.random.default_rng(4)
    states = rng.normal(size=(80, 5)) * [1, 10, 0.1, 3, 0] + [0, 5, 1, -2, 7]
    signal = (states - states.mean(axis=0))[:, :3] / states.std(axis=0)[:3]
    signal = signal + rng.normal(size=signal.shape)
    targets = {
        "classes": signal.argmax(axis=1),
        "two": (signal[:, 0] > 0).astype(int),
        "labels": (signal > 0).astype(int),
        "numbers": signal.sum(axis=1),
    }
    return states, targets[kind]


@pytest.mark.parametrize(
    ("kind", "num_outputs"), [("classes", 3), ("two", 2), ("labels", 3), ("numbers", 1)]
)
def test_probe_is_the_minimum_of_loss_and_penalty(kind, num_outputs) -> None:
    """At the minimum over weights for standardised states the gradient is 0."""
    C = 0.1
    states, targets = data_of(kind)
    weights = np.linspace(0.5, 2, len(states)) if kind in ("classes", "two") else np.ones(80)
    probe = method_of("linear_probe", C=[C])
    (solution,) = probe.solutions(states, targets, weights, num_outputs=num_outputs)
    assert solution.converged and solution.weight.shape == (num_outputs, 5)
    std = np.where(states.std(axis=0) < 1e-8, 1.0, states.std(axis=0))
    weight = torch.tensor(solution.weight * std, requires_grad=True)
    bias = torch.tensor(solution.bias + solution.weight @ states.mean(axis=0), requires_grad=True)
    logits = torch.from_numpy((states - states.mean(axis=0)) / std) @ weight.T + bias
    right = torch.from_numpy(targets)
    if kind == "numbers":
        losses = (logits[:, 0] - right).square()
    elif kind == "labels":
        given = nn.functional.binary_cross_entropy_with_logits
        losses = given(logits, right.double(), reduction="none").sum(dim=1)
    else:
        losses = nn.functional.cross_entropy(logits, right, reduction="none")
    loss = (losses * torch.from_numpy(weights)).sum() + weight.square().sum() / (2 * C)
    for gradient in torch.autograd.grad(loss, [weight, bias]):
        assert gradient.abs().max() < 1e-2


def test_probe_never_predicts_a_class_that_no_row_has() -> None:
    states, targets = data_of("two")
    probe = method_of("linear_probe", C=[1.0])
    for present in ([1, 3], [3, 3]):
        classes = np.array(present)[targets]
        (solution,) = probe.solutions(states, classes, np.ones(80), num_outputs=5)
        predicted = (states @ solution.weight.T + solution.bias).argmax(axis=1)
        assert {*predicted.tolist()} <= {*present}
        assert (predicted == classes).mean() > 0.7


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("adapter", "bottleneck", 0),
        ("lora", "rank", 0),
        ("prompt", "num_prompt_tokens", 0),
        ("linear_probe", "C", [1.0, 0.0]),
        ("setfit", "num_pairs", 3),
        ("setfit", "max_pairs", 0),
    ],
)
def test_method_refuses_values_that_make_no_sense(name, setting, value) -> None:
    with pytest.raises(ValueError, match=f"^method.*{setting}"):
        method_of(name, **{setting: value})
