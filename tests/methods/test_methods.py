"""Methods: which weights train, and that nothing else changes."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from stages.core.seeding import stream, torch_stream
from stages.methods._method import METHODS, TrainedMethod
from stages.methods.in_context import draw_shots
from stages.methods.setfit import draw_pairs
from stages.models._backbone import MODELS
from stages.models._heads import LinearHead, ModelWithHead, initialise_head
from stages.tasks._text_form import NO_LABEL, label_words
from stages.tasks.classification import Classification
from stages.text.batch import PADDING, Batch
from stages.text.tokenizer import BOS_ID
from tests.small import (
    DIMENSIONS,
    FAMILIES,
    VOCAB_SIZE,
    headless,
    small_entry,
    small_model,
    small_tokenizer,
    with_head,
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
    "in_context": {"template": "{text} type: {label}"},
}
ADDITIONS = ("adapter", "lora", "prompt", "prefix")
VIRTUAL = ("prompt", "prefix")
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


def batch_without_padding(ids: torch.Tensor) -> Batch:
    return Batch(input_ids=ids, document_ids=torch.ones_like(ids), num_targets={})


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
def states_of(model: Any, batch: Batch) -> torch.Tensor:
    return getattr(model, "backbone", model)(batch)[batch.document_ids != PADDING]


# Every method with every family ------------------------------------------------------------------


@pytest.mark.parametrize(("name", "family"), FITTING)
def test_weights_that_train_get_a_gradient_and_no_others(name: str, family: str) -> None:
    """Adapters and LoRA leave the pretrained model as it is at the start."""
    model, batch = applied(family, method_of(name)), batch_of()
    if name in ("adapter", "lora"):
        assert torch.equal(states_of(model, batch), states_of(stack(family).eval(), batch))
    logits = moved(model).head(model.backbone(batch))
    (logits * torch.randn(logits.shape, generator=torch_stream(5))).sum().backward()
    unused = {"pooler", "decoder", "wpe", "position"}  # of the base models without a use here
    for key, weight in model.named_parameters():
        if not weight.requires_grad:
            assert weight.grad is None, key
        elif not any(part in key for part in unused):
            assert weight.grad is not None and weight.grad.abs().max() > 0, key


@pytest.mark.parametrize(("name", "family"), [c for c in FITTING if c[0] in VIRTUAL])
def test_virtual_tokens_change_states_of_all_tokens_and_no_padding_does(name, family) -> None:
    model, batch = moved(applied(family, method_of(name))), batch_of()
    states, plain = states_of(model, batch), states_of(stack(family).eval(), batch)
    assert ((states - plain).abs().amax(dim=-1) > 1e-4).all()
    alone = states_of(model, batch_without_padding(batch.input_ids[1:, :5]))
    torch.testing.assert_close(alone, states[-5:], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ADDITIONS)
def test_new_weights_are_drawn_from_the_generator_alone(name: str) -> None:
    torch.manual_seed(1)
    models = [applied("bert", method_of(name), seed=seed) for seed in (2, 2, 3)]
    one, same, other = (trained_weights(model) for model in models)
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("family", CONFIGS)
def test_merged_lora_computes_the_same_with_the_weights_of_the_pretrained_class(family) -> None:
    method = method_of("lora")
    model = moved(applied(family, method))
    expected = states_of(model, batch_of())
    method.merge(model)
    assert model.backbone.state_dict().keys() == stack(family).state_dict().keys()
    torch.testing.assert_close(states_of(model, batch_of()), expected, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(expected, states_of(applied(family, method), batch_of()), atol=1e-3)


PARTS = D_MODEL * 2 + 2  # the head
ATTENTION = 2 * 4 * 2 * (D_MODEL + D_MODEL)
NUM_TRAINED = [  # in BERT of d_model 32, 2 blocks and d_ff 64
    ("lora", {}, ATTENTION + 2 * 2 * 2 * (D_MODEL + 64)),
    ("lora", {"targets": "attention"}, ATTENTION),
    ("adapter", {}, 4 * (2 * D_MODEL * 4 + 4 + D_MODEL) + 5 * 2 * D_MODEL),
    ("adapter", {"train_norms": False}, 4 * (2 * D_MODEL * 4 + 4 + D_MODEL)),
    ("prompt", {}, 3 * D_MODEL),
    ("prefix", {}, 2 * 3 * 2 * D_MODEL),
    ("prefix", {"reparametrisation_width": 5}, 3 * 32 + 32 * 5 + 5 + 2 * (5 * 64 + 64)),
    ("bitfit", {}, 2 * (8 * D_MODEL - 2 * D_MODEL + 64 + D_MODEL) + D_MODEL),
    ("linear_probe", {}, 0),
]


@pytest.mark.parametrize(("name", "settings", "number"), NUM_TRAINED)
def test_method_trains_as_many_weights_as_in_its_paper(name, settings, number) -> None:
    model = applied("bert", method_of(name, **settings))
    assert sum(weight.numel() for weight in trained_weights(model).values()) == number + PARTS


@pytest.mark.parametrize(
    ("name", "family"),
    sorted(REFUSED | {(name, LSTM) for name in ADDITIONS} | {("in_context", "bert")}),
)
def test_incompatibility_says_why(name: str, family: str) -> None:
    backbone = MODELS.build(small_entry(family), VOCAB_SIZE, where="architecture")
    assert method_of(name).incompatibility(backbone)


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        *(("adapter", "bottleneck", 0), ("lora", "rank", 0), ("prompt", "num_prompt_tokens", 0)),
        *(("prefix", "num_prefix_tokens", 0), ("gradual_unfreezing", "blocks_per_epoch", 0)),
        *(
            ("linear_probe", "C", [1.0, 0.0]),
            ("setfit", "num_pairs", 3),
            ("setfit", "max_pairs", 0),
        ),
    ],
)
def test_method_refuses_values_that_make_no_sense(name: str, setting: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^method.*{setting}"):
        method_of(name, **{setting: value})


# Single methods ----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "bart"])
def test_prompt_is_at_the_start_the_tokens_it_was_drawn_from(family: str) -> None:
    batch, model = batch_of((9,)), applied(family, method_of("prompt"))
    table: Any = model.backbone.token_embedding
    vectors = trained_weights(model)["backbone.model.learnt.embedding.weight"].detach()
    scaled = table.weight * getattr(table, "embed_scale", 1.0)
    drawn = torch.cdist(vectors, scaled).argmin(dim=1)
    after = batch_without_padding(torch.cat([drawn[None], batch.input_ids], dim=1))
    expected = stack(family).eval()(after)[:, 3:]
    torch.testing.assert_close(model.backbone(batch), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", VIRTUAL)
def test_virtual_tokens_do_not_let_a_decoder_look_ahead(name: str) -> None:
    batch = batch_without_padding(torch.tensor([[7, 8, 9, 10], [7, 8, 9, 11]]))
    one, other = moved(applied("llama", method_of(name))).backbone(batch)
    torch.testing.assert_close(one[:3], other[:3])
    assert not torch.allclose(one[3], other[3])


def test_gradual_unfreezing_goes_from_the_head_down() -> None:
    method, model = method_of("gradual_unfreezing"), applied("bert", method_of("full"))
    lower, upper = ({id(weight) for weight in b.parameters()} for b in model.backbone.blocks)
    every, head = ({id(weight) for weight in m.parameters()} for m in (model, model.head))
    first, second, third = ({id(w) for w in method.frozen(model, epoch)} for epoch in range(3))
    assert first == every - head and second == first - upper
    assert lower <= second and not third
    headless = ModelWithHead(model.backbone, nn.Identity())
    assert {id(w) for w in method.frozen(headless, 0)} == second  # begins with the upper block


def test_draw_pairs_gives_each_row_as_many_pairs_of_its_class_as_of_others() -> None:
    classes = np.array([0, 1, 0, 1, 1, 2])  # the last row is alone
    one, same, other = (draw_pairs(classes, 6, rng=stream(seed, "pairs")) for seed in (1, 1, 2))
    assert np.array_equal(one, same) and not np.array_equal(one, other)
    assert (one[:, 0] != one[:, 1]).all()
    alike = classes[one[:, 0]] == classes[one[:, 1]]
    for row in range(6):
        of_row = alike[one[:, 0] == row]
        assert (of_row.sum(), (~of_row).sum()) == (0 if row == 5 else 3, 3)


def test_setfit_learns_cosines_of_pairs_which_are_1_within_a_class() -> None:
    task = Classification(["a", "b"], small_tokenizer(), 32)
    texts = [("a class", "a"), ("the list of names", "b"), ("classes", "a")]
    rows = [{"id": str(i), "text": text, "label": label} for i, (text, label) in enumerate(texts)]
    method, examples = method_of("setfit", num_pairs=2, max_pairs=4), task.encode(rows)
    lesson, pairs = method.lesson(task, examples, rng=stream(1, "lesson"))
    assert len(pairs) == method.epoch_size(3)[0] == 4  # of five: the second row is alone
    model = with_head(task, small_model("encoder"))
    states = [model.backbone(task.collate([each], rngs=[]))[0].mean(dim=0) for each in examples]
    expected = 0.0
    for pair in pairs:
        one, other = (int(i) for i in pair.id.split())
        cosine = F.cosine_similarity(states[one], states[other], dim=0)
        expected += (float(cosine) - (rows[one]["label"] == rows[other]["label"])) ** 2
    ((weight, loss),) = lesson.loss(model, lesson.collate(pairs, rngs=[])).values()
    assert weight * float(loss) == pytest.approx(expected, rel=1e-4)
    with pytest.raises(ValueError, match="label_budgets: .*single"):
        method.lesson(task, examples[:1], rng=stream(1, "lesson"))


# The probe ---------------------------------------------------------------------------------------


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
def test_probe_is_the_minimum_of_loss_and_penalty(kind: str, num_outputs: int) -> None:
    """At the minimum over weights for standardised states the gradient is 0."""
    C, (states, targets) = 0.1, data_of(kind)
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
        given = F.binary_cross_entropy_with_logits
        losses = given(logits, right.double(), reduction="none").sum(dim=1)
    else:
        losses = F.cross_entropy(logits, right, reduction="none")
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


# In-context learning -----------------------------------------------------------------------------

WORDS = {  # what texts with each label are made of
    "list": ["name", "object", "string", "value"],
    "module": ["class", "method", "attribute", "keyword"],
    "the_statement": ["function", "call", "argument", "expression"],
}
LABELS = sorted(WORDS)
SHOWN = [label.replace("_", " ") for label in LABELS]
Rows = list[dict[str, str]]


def rows_of(number: int, *, seed: int) -> Rows:
    """Returns rows with each label equally often."""
    rng, rows = stream(seed, "rows"), Rows()
    for i in range(number):
        label = LABELS[i % len(LABELS)]
        text = " ".join(rng.choice(WORDS[label], 3))
        rows.append({"id": str(i), "text": text, "label": label})
    return rows


def predictor(rows: Rows | None = None, *, max_tokens: int = 200, **settings: Any) -> Any:
    return method_of("in_context", **settings).predictor(
        label_words(LABELS, ()),
        small_tokenizer(),
        max_tokens,
        rows or rows_of(30, seed=7),
        rng=stream(1, "shots"),
    )


def text_of(example: Any) -> str:
    return small_tokenizer().decode(example.tokens)


@pytest.mark.parametrize("has_prefix", [False, True])
@torch.no_grad()
def test_scores_are_sums_of_log_probabilities_in_each_normalisation(has_prefix: bool) -> None:
    """They are computed for one prompt and label after the other, without padding. A model that was
    pretrained with a prefix reads the prompt in both directions, and no label before its turn."""
    rows = rows_of(5, seed=5)
    backbone = small_model("decoder").eval()
    for weight in backbone.parameters():
        weight *= 3
    model: ModelWithHead = headless(backbone).eval()

    def by_hand(context: str, word: str) -> tuple[float, int]:
        """Returns the log-probability of the word's tokens and their number."""
        before, after = (small_tokenizer().encode([part])[0] for part in (context, word))
        ids = torch.tensor([[BOS_ID, *before, *after]])
        visible = torch.arange(ids.shape[1])[None] <= len(before) if has_prefix else None
        ones = torch.ones_like(ids)
        batch = Batch(input_ids=ids, document_ids=ones, visible=visible, num_targets={})
        log_probs = backbone.unembed(backbone(batch))[0].log_softmax(dim=-1)
        places = range(1 + len(before), ids.shape[1])
        return sum(float(log_probs[i - 1, ids[0, i]]) for i in places), len(after)

    for normalise in ("none", "tokens", "bytes", "unconditional"):
        of = predictor(normalise=normalise)
        of.has_prefix = has_prefix
        examples, scores = of.encode(rows), []
        for part in (examples[:7], examples[7:]):
            scores += of.predict(model, of.collate(part, rngs=[]), part)
        for (row, word), score in zip(((r, w) for r in rows for w in SHOWN), scores, strict=True):
            total, length = by_hand(f"{row['text']} type:", word)
            expected = {
                "none": total,
                "tokens": total / length,
                "bytes": total / len(word.encode()),
                "unconditional": total - by_hand("type:", word)[0],
            }
            assert score == pytest.approx(expected[normalise], abs=1e-3)


def test_combine_gives_the_likeliest_label_or_none_for_a_tie() -> None:
    assert predictor().combine({}, [-3.0, -1.0, -2.0]) == LABELS[1]
    assert predictor().combine({}, [-1.0, -1.0, -2.0]) == NO_LABEL


# Prompts -----------------------------------------------------------------------------------------


def test_prompt_is_shots_of_the_label_budget_and_the_row() -> None:
    train_rows, test_rows = rows_of(30, seed=7)[:12], rows_of(6, seed=13)
    of = predictor(train_rows, num_shots=4, separator=" ; ")
    possible = {f"{row['text']} type: {row['label'].replace('_', ' ')}" for row in train_rows}
    texts = [text_of(example) for example in of.encode(test_rows)]
    for i, row in enumerate(test_rows):
        for text, label in zip(texts[3 * i : 3 * i + 3], SHOWN, strict=True):
            *shots, last = text.split(" ; ")
            assert len(shots) == 4 and set(shots) <= possible
            assert last == f"{row['text']} type: {label}"


@pytest.mark.parametrize("num_shots", [1, 4, 30])
def test_shots_are_balanced_and_drawn_by_the_seed(num_shots: int) -> None:
    rows = rows_of(30, seed=7)
    drawn = [draw_shots(rows, num_shots, rng=stream(seed, "shots")) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    for shots in drawn:
        counts = [sum(row["label"] == label for row in shots) for label in LABELS]
        assert sum(counts) == num_shots == len({row["id"] for row in shots})
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize(
    ("rows", "max_tokens", "some_shots"),
    [
        (rows_of(8, seed=17), 60, True),
        ([{"id": "1", "text": "class method " * 40}], 16, False),
    ],
)
def test_a_long_prompt_loses_shots_and_then_the_beginning_of_the_text(
    rows: Rows, max_tokens: int, some_shots: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = predictor(num_shots=8, separator=" ; ", max_tokens=999).encode(rows)
    capsys.readouterr()
    cut = predictor(num_shots=8, separator=" ; ", max_tokens=max_tokens).encode(rows)
    assert "warning: in_context: of 8 shots " in capsys.readouterr().err
    for long, short, label in zip(whole, cut, SHOWN * len(rows), strict=True):
        assert text_of(long).endswith(text_of(short)) and text_of(short).endswith(f": {label}")
        assert (0 < text_of(short).count(" ; ") < 8) == some_shots
        assert len(short.tokens) - short.first == len(long.tokens) - long.first
        assert short.num_cut == len(long.tokens) - len(short.tokens) > 0 == long.num_cut
    assert max_tokens - 20 < max(len(example.tokens) for example in cut) <= max_tokens
    with pytest.raises(ValueError, match="max_tokens"):
        predictor(max_tokens=2).encode(rows)


@pytest.mark.parametrize("template", ["{text} {label}.", "It is {label}", "{txt} {label}"])
def test_template_must_have_a_text_and_the_label_at_its_end(template: str) -> None:
    with pytest.raises(ValueError, match="^method.*template"):
        method_of("in_context", template=template)


@pytest.mark.parametrize("pair", [{}, {"text_pair": "and b"}])
def test_template_by_default_has_all_texts_of_a_row(pair: dict[str, str]) -> None:
    rows = [{"id": str(i), "text": "a", "label": label} | pair for i, label in enumerate(LABELS)]
    (shot,) = predictor(rows, template="auto", num_shots=1).shots
    assert shot.startswith("\n".join(["a", *pair.values(), "label: "]))
    with pytest.raises(ValueError, match="template: .* {text_pair}"):
        predictor(rows, template="{text} {label}" if pair else "{text} {text_pair} {label}")
