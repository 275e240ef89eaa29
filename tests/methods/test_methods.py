"""Methods: which weights train, and that nothing else changes."""

import copy
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from stages.core.seeding import torch_stream
from stages.methods._method import METHODS, SolvedMethod, TrainedMethod
from stages.models._backbone import MODELS
from stages.models._heads import ModelWithHead, initialise_head
from stages.models.hub import Hub
from stages.tasks._pooled import Reading
from stages.tasks.classification import Classification
from stages.text.batch import Batch
from stages.training.checkpoint import save_weights
from stages.training.device import Device
from stages.training.finetuning import FinetuningData
from stages.training.loop import mean_loss, train
from stages.training.solver import Solution, solve
from tests.small import (
    ARCHITECTURES,
    TRANSFORMERS,
    small_model,
    small_tokenizer,
    without_output_layers,
)
from tests.small_hub import checkpoint, revision_of
from tests.training.test_loop import SCHEDULE

pytestmark = pytest.mark.slow

CPU = Device("cpu", "float32", compile=False, threads=1)
ROWS = [
    {"id": str(i), "text": text, "label": label, "words": text.split(), "tags": tags.split()}
    for i, (text, label, tags) in enumerate(
        [
            ("the class statement", "a", "O B O"),
            ("a function call", "b", "O O B"),
            ("this class has a method", "a", "O B O O O"),
            ("call the function", "b", "B O O"),
            ("classes have classes", "a", "O O O"),
            ("functions call functions", "b", "O B O"),
        ]
    )
]
TRAINING = [
    name
    for name in METHODS.names()
    if issubclass(METHODS.find(name, where=""), TrainedMethod | SolvedMethod)
]
PUBLIC = ("bert", "gpt2", "t5")
SMALL: dict[str, dict[str, Any]] = {
    "adapter": {"bottleneck": 4},
    "lora": {"rank": 2, "alpha": 2.0, "targets": "all"},
    "prompt": {"num_prompt_tokens": 3},
    "prefix": {"num_prefix_tokens": 3},
}
ADDING = ("adapter", "lora", "prompt", "prefix")
PREDICTED = 0.3  # share of the first loss at which nearly all classes are right
# What is incompatible, and why.
REFUSED = {
    **{
        (method, architecture): f"supports transformers only, not {architecture}"
        for method in ADDING
        for architecture in sorted({*ARCHITECTURES} - {*TRANSFORMERS})
    },
    **{("prefix", name): "supports our own transformers only" for name in PUBLIC},
    ("bitfit", "t5"): "trains biases only; this model has none",
}
FITTING = [
    (architecture, method)
    for architecture in (*ARCHITECTURES, *PUBLIC)
    for method in TRAINING
    if (method, architecture) not in REFUSED
]


def backbone_of(architecture: str, **settings: Any) -> tuple[Any, Any]:
    """A small model, ours or a public checkpoint, and its tokenizer.

    A transformer's matrices are enlarged, as they are in a trained model: otherwise its states
    would depend on little but the token, and a method could hardly fit a frozen model.
    """
    if architecture in PUBLIC:
        return copy.deepcopy(published(architecture))
    model = without_output_layers(small_model(architecture, **settings))
    return (grown(model) if model.is_transformer else model), small_tokenizer()


@cache
def published(family: str) -> tuple[Any, Any]:
    folder = checkpoint(family)
    tokenizer = Hub.tokenizer_of({"path": str(folder), "revision": ""}, folder)
    entry = {"name": "hub", "path": str(folder), "revision": revision_of(folder)}
    model = MODELS.build(entry, tokenizer.vocab_size, where="model")
    model.initialise(generator=torch.Generator())
    return grown(without_output_layers(model)), tokenizer


@torch.no_grad()
def grown(model: torch.nn.Module) -> torch.nn.Module:
    for weight in model.parameters():
        if weight.dim() >= 2:
            weight.mul_(6)
    return model


def method_of(name: str, **settings: Any) -> Any:
    return METHODS.build({"name": name, **(SMALL.get(name, {}) | settings)}, where="method")


def applied(architecture: str, method: Any, **settings: Any):
    backbone, tokenizer = backbone_of(architecture, **settings)
    assert method.incompatibility(backbone) is None, "add the pair to REFUSED"
    task = Classification(["a", "b"], tokenizer, 32, Reading(dropout=0.0))
    head = task.head(backbone)
    initialise_head(head, generator=torch_stream(1, "head"))
    model = ModelWithHead(backbone, head)
    method.apply(model, generator=torch_stream(2, "method"))
    examples = task.encode(ROWS)
    if isinstance(method, SolvedMethod):
        method.remember(model, [task.collate(examples, rngs=[])])
    return task, model, examples


def trained_names(model: torch.nn.Module) -> set[str]:
    return {name for name, weight in model.named_parameters() if weight.requires_grad}


def check_fit(
    task: Any,
    model: ModelWithHead,
    examples: list[Any],
    method: Any,
    *,
    num_steps: int = 40,
    lr: float = 1.5e-2,
    enough: float = 0.6,
) -> None:
    """Checks that the loss falls and that exactly the weights that train change. Training ends
    early if all of them have trained and the loss is less than ``enough`` of the first."""
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    trained = trained_names(model)
    data = FinetuningData(examples, task, batch_examples=len(examples), seed=1)
    batches = data.micro_batches(0)
    first = mean_loss(model, task, batches, CPU)
    if isinstance(method, SolvedMethod):
        solved(task, model, batches)
    else:
        frozen = [*method.frozen(model, 0)]
        for step in train(
            model,
            task,
            data,
            SCHEDULE.model_copy(update={"lr": lr}),
            num_steps=num_steps,
            seed=1,
            device=CPU,
            frozen=frozen,
        ):
            is_low = not frozen and step.loss < enough * first  # before its update
            if is_low and mean_loss(model, task, batches, CPU) < enough * first:
                break
            frozen[:] = method.frozen(model, step.step // 10)
    assert mean_loss(model, task, batches, CPU) < 0.8 * first
    for name, weight in model.named_parameters():
        assert torch.equal(weight, before[name]) != (name in trained), name


def solved(task: Any, model: ModelWithHead, batches: list[Batch]) -> Solution:
    """Solves a probe with a weak penalty."""
    solution = solve(
        model, task, batches, batches, inverse_strengths=[10.0], merit=lambda: 0.0, device=CPU
    )
    assert solution.converged
    return solution


def check_predictions(task: Any, model: ModelWithHead, examples: list[Any]) -> None:
    """Checks that at most one of ROWS gets the wrong class."""
    predicted = task.predict(model.eval(), task.collate(examples, rngs=[]), examples)
    right = sum(one == row["label"] for one, row in zip(predicted, ROWS, strict=True))
    assert right >= len(ROWS) - 1


@pytest.mark.parametrize(("architecture", "name"), [c for c in FITTING if c[0] in PUBLIC])
def test_method_fits_a_small_set_on_a_public_checkpoint(architecture, name) -> None:
    """tests/test_matrix.py tests our own architectures."""
    method = method_of(name)
    task, model, examples = applied(architecture, method)
    assert method.incompatibility(backbone_of(architecture)[0]) is None
    slow: dict[str, Any] = {"num_steps": 60, "lr": 3e-2} if name == "prompt" else {}
    check_fit(task, model, examples, method, **slow, enough=PREDICTED)
    check_predictions(task, model, examples)


@pytest.mark.parametrize(("name", "architecture"), REFUSED)
def test_incompatibility_says_why(name, architecture) -> None:
    reason = method_of(name).incompatibility(backbone_of(architecture)[0])
    assert reason is not None and REFUSED[name, architecture] in reason
    without_biases = small_model("encoder", bias=False)
    assert "model.bias" in method_of("bitfit").incompatibility(without_biases)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("adapter", {"bottleneck": 0}, "method: bottleneck must be at least 1, not 0"),
        ("lora", {"rank": 0}, "method: rank must be at least 1, not 0"),
        ("lora", {"alpha": 0.0}, "method: alpha must be more than 0"),
        ("lora", {"targets": "ffn"}, "method.targets: input should be 'attention' or 'all'"),
        ("prompt", {"num_prompt_tokens": 0}, "method: num_prompt_tokens must be at least 1"),
        ("prefix", {"num_prefix_tokens": 0}, "method: num_prefix_tokens must be at least 1"),
        ("prefix", {"reparametrisation_width": -1}, "reparametrisation_width must be at least 0"),
        ("gradual_unfreezing", {"blocks_per_epoch": 0}, "blocks_per_epoch must be at least 1"),
        ("linear_probe", {"layers": "first"}, "method.layers: input should be 'last' or 'mix'"),
        ("linear_probe", {"C": []}, "method: C must be one or more different numbers above 0"),
        ("linear_probe", {"C": [1.0, 0.0]}, "method: C must be one or more different numbers"),
    ],
)
def test_method_refuses_values_that_make_no_sense(name, settings, message) -> None:
    with pytest.raises(ValueError, match=message):
        method_of(name, **settings)


@pytest.mark.parametrize("name", ["adapter", "lora", "bitfit", "gradual_unfreezing", "full"])
@pytest.mark.parametrize("architecture", [*TRANSFORMERS, *PUBLIC])
def test_method_leaves_the_pretrained_model_as_it_is_at_the_start(architecture, name) -> None:
    backbone, _ = backbone_of(architecture)
    if method_of(name).incompatibility(backbone):
        return
    task, model, examples = applied(architecture, method_of(name))
    batch = task.collate(examples, rngs=[])
    with torch.no_grad():
        assert torch.equal(model.backbone.eval()(batch), backbone.eval()(batch))


HEAD = 32 * 2 + 2
NUM_TRAINED = [  # of an encoder of d_model 32, 2 blocks and d_ff 64
    ("lora", {"targets": "attention"}, 2 * 2 * ((32 + 32) + (32 + 64) + (32 + 32))),
    ("lora", {}, 2 * 2 * ((32 + 32) + (32 + 64) + (32 + 32) + (32 + 64) + (64 + 32))),
    ("adapter", {"train_norms": False}, 4 * (2 * 32 * 4 + 4 + 32)),
    ("adapter", {}, 4 * (2 * 32 * 4 + 4 + 32) + 5 * 2 * 32),
    ("prompt", {}, 3 * 32),
    ("prefix", {}, 2 * 3 * 2 * 32),
    ("prefix", {"reparametrisation_width": 5}, 3 * 32 + 32 * 5 + 5 + 2 * (5 * 64 + 64)),
    ("bitfit", {}, 2 * (32 + 64 + 32 + 64 + 32 + 2 * 32) + 32),
    ("linear_probe", {}, 0),
    ("linear_probe", {"layers": "mix"}, 3),
]


@pytest.mark.parametrize(("name", "settings", "number"), NUM_TRAINED)
def test_method_trains_as_many_weights_as_in_its_paper(name, settings, number) -> None:
    _, model, _ = applied("encoder", method_of(name, **settings))
    assert sum(w.numel() for w in model.parameters() if w.requires_grad) == number + HEAD


def test_full_trains_all_weights_and_a_probe_of_elmo_the_mix_of_layers() -> None:
    _, full, _ = applied("encoder", method_of("full"))
    assert all(weight.requires_grad for weight in full.parameters())
    _, probe, _ = applied("bilstm", method_of("linear_probe"))
    mix = "backbone.backbone.mix.s"  # the head has a scale of its own
    assert trained_names(probe) == {"head.linear.weight", "head.linear.bias", mix}


def test_prefix_leaves_dropout_on() -> None:
    _, model, _ = applied("encoder", method_of("prefix"))
    assert all(part.training for part in model.backbone.modules())


@pytest.mark.parametrize(("architecture", "name"), FITTING)
def test_method_with_stored_weights_gives_the_trial(architecture, name, tmp_path) -> None:
    task, model, examples = applied(architecture, method_of(name))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.normal_(0, 0.1, generator=torch_stream(3))
    save_weights(model, tmp_path / "trial.safetensors", trained_only=True)

    _, again, _ = applied(architecture, method_of(name))
    stored = load_file(tmp_path / "trial.safetensors")
    assert stored.keys() == trained_names(again)
    again.load_state_dict(stored, strict=False)
    batch = task.collate(examples, rngs=[])
    one, other = (task.loss(each.eval(), batch)["classification"][1] for each in (model, again))
    assert torch.equal(one, other)


@pytest.mark.parametrize("name", ["adapter", "lora", "prompt", "prefix", "bitfit"])
def test_method_learns_with_a_frozen_head(name) -> None:
    """The head keeps its random weights."""
    method = method_of(name)
    task, model, examples = applied("encoder", method)
    with torch.no_grad():
        model.head.linear.weight.normal_(0, 0.5, generator=torch_stream(1))
    model.head.requires_grad_(False)
    check_fit(task, model, examples, method, num_steps=60, lr=3e-2)


# Prompt and prefix --------------------------------------------------------------------------------


def after_tokens(batch: Batch, ids: torch.Tensor) -> Batch:
    """Returns the batch with the tokens [3] in front of each row."""
    return replace(
        batch,
        input_ids=torch.cat([ids.expand(len(batch.input_ids), 3), batch.input_ids], dim=1),
        document_ids=torch.nn.functional.pad(batch.document_ids, (3, 0), value=1),
    )


@pytest.mark.parametrize("architecture", [*TRANSFORMERS, *PUBLIC])
def test_prompt_is_at_the_start_the_tokens_it_was_drawn_from(architecture) -> None:
    """The states are those of the text after these tokens, also in padded rows."""
    settings = {"positions": "learned", "max_positions": 16} if architecture == "encoder" else {}
    task, model, examples = applied(architecture, method_of("prompt"), **settings)
    batch = task.collate(examples, rngs=[])
    prompted = model.backbone.eval()(batch)
    assert prompted.shape[:2] == batch.input_ids.shape

    plain, _ = backbone_of(architecture, **settings)
    size = plain.token_embedding.weight.shape[0]
    drawn = torch.randint(size, (3,), generator=torch_stream(2, "method"))
    real = (batch.document_ids > 0).unsqueeze(-1)
    expected = plain.eval()(after_tokens(batch, drawn))[:, 3:]
    torch.testing.assert_close(prompted * real, expected * real, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("architecture", ["encoder", "decoder"])
@pytest.mark.parametrize("positions", ["none", "relative"])
def test_prefix_is_at_the_start_tokens_before_the_text(architecture, positions) -> None:
    """This holds in the first layer, where these tokens have read nothing else, and without
    positions: the biases of relative positions are set to 0."""
    settings = {"positions": positions, "num_layers": 1}
    task, model, examples = applied(architecture, method_of("prefix"), **settings)
    batch = task.collate(examples, rngs=[])
    plain, _ = backbone_of(architecture, **settings)
    if positions == "relative":
        backbones: tuple[Any, ...] = (plain, model.backbone)
        for backbone in backbones:
            torch.nn.init.zeros_(backbone.stack.relative.table.weight)
    ids = torch.randint(plain.vocab_size, (3, 1), generator=torch_stream(2, "method"))
    real = (batch.document_ids > 0).unsqueeze(-1)
    expected = plain.eval()(after_tokens(batch, ids.T))[:, 3:]
    states = model.backbone.eval()(batch)
    torch.testing.assert_close(states * real, expected * real, atol=1e-5, rtol=1e-4)


def test_prefix_does_not_let_a_decoder_look_ahead() -> None:
    _, model, _ = applied("decoder", method_of("prefix"))
    ids = torch.tensor([[7, 8, 9, 10], [7, 8, 9, 11]])
    batch = Batch(input_ids=ids, document_ids=torch.ones_like(ids), num_targets={})
    one, other = model.backbone.eval()(batch)
    torch.testing.assert_close(one[:3], other[:3])
    assert not torch.allclose(one[3], other[3])


# Gradual unfreezing -------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, *PUBLIC])
def test_gradual_unfreezing_goes_from_the_head_down(architecture) -> None:
    """The head trains first, then the upper block too, then all; an epoch has two steps here."""
    method = method_of("gradual_unfreezing")
    task, model, examples = applied(architecture, method)
    if len(model.backbone.blocks) != 2:
        pytest.skip("an architecture without two blocks")
    lower, upper = model.backbone.blocks
    own = list(model.head.parameters())
    own += [] if model.backbone.mix is None else list(model.backbone.mix.parameters())
    expected = [own, [*own, *upper.parameters()], list(model.parameters())]

    seen: list[set[int]] = []
    weights = list(model.parameters())
    before = [weight.detach().clone() for weight in weights]

    frozen = [*method.frozen(model, 0)]
    for step in train(
        model,
        task,
        FinetuningData(examples, task, batch_examples=3, seed=1),
        SCHEDULE,
        num_steps=6,
        seed=1,
        device=CPU,
        frozen=frozen,
    ):
        if step.step % 2 == 0:
            pairs = zip(weights, before, strict=True)
            seen.append({id(weight) for weight, old in pairs if not torch.equal(weight, old)})
            frozen[:] = method.frozen(model, step.step // 2)
    assert seen == [{id(weight) for weight in group} for group in expected]
    assert all(weight.requires_grad for weight in weights)  # only such weights are stored
    assert not {id(weight) for weight in lower.parameters()} & seen[1]


def test_gradual_unfreezing_without_a_head_begins_with_the_upper_block() -> None:
    method, backbone = method_of("gradual_unfreezing"), small_model("decoder")
    model = ModelWithHead(backbone, torch.nn.Identity())
    waiting = {id(weight) for weight in method.frozen(model, 0)}
    upper = {id(weight) for weight in backbone.blocks[-1].parameters()}
    assert waiting | upper == {id(weight) for weight in model.parameters()}
    assert not waiting & upper


# The probe ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "bert"])
@pytest.mark.parametrize("layers", ["last", "mix"])
def test_probe_remembers_the_states_of_the_backbone(architecture, layers) -> None:
    """States are looked up in another order and with other padding, or computed for new examples.
    Both are in float32, also under autocast."""
    method = method_of("linear_probe", layers=layers)
    task, model, examples = applied(architecture, method)
    probed: Any = model.backbone
    mix = probed.mix or probed.backbone.mix
    if mix is not None:
        with torch.no_grad():
            mix.s.normal_(generator=torch_stream(1))
    batch = task.collate([examples[3], examples[0]], rngs=[])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        remembered = model.backbone(batch)
        new = model.backbone(replace(batch, example_ids=["new", "newer"]))
    backbone = probed.backbone.eval()
    if model.backbone.mix is not None:
        h = backbone.layers(batch)
        assert len(h) == backbone.num_layers + 1
        assert torch.equal(h[-1], backbone(batch))
        computed = probed.mix(torch.nn.functional.layer_norm(h, h.shape[-1:]))
    else:
        computed = backbone(batch)
    real = (batch.document_ids > 0).unsqueeze(-1)
    for states in (remembered, new):
        torch.testing.assert_close(states * real, computed * real, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("layers", ["last", "mix"])
def test_probe_calls_its_backbone_once(layers) -> None:
    task, model, examples = applied("encoder", method_of("linear_probe", layers=layers))

    def refuse(batch):
        raise AssertionError("called again")

    probed: Any = model.backbone
    probed.backbone.forward = refuse
    batches = FinetuningData(examples, task, batch_examples=2, seed=1)
    solved(task, model, [batch for step in range(3) for batch in batches.micro_batches(step)])
