"""The tokens that each architecture sees, its sizes and its initial weights."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from stages.matching.budget import outline
from stages.text.batch import PADDING, Batch
from tests.small import ARCHITECTURES, DIMENSIONS, TRANSFORMERS, VOCAB_SIZE, small_model

POSITIONS = ("rotary", "learned", "sinusoidal", "none")


def batch_of(ids: torch.Tensor, document_ids: torch.Tensor | None = None) -> Batch:
    documents = torch.ones_like(ids) if document_ids is None else document_ids
    return Batch(input_ids=ids, document_ids=documents, num_targets={})


def random_ids(rows: int, length: int) -> torch.Tensor:
    return torch.randint(5, VOCAB_SIZE, (rows, length), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_later_token_changes_no_earlier_state_of_a_decoder(positions) -> None:
    model = small_model("decoder", positions=positions).eval()
    ids = random_ids(2, 12)
    changed = ids.clone()
    changed[:, 7] = (changed[:, 7] + 1) % VOCAB_SIZE
    before, after = model(batch_of(ids)), model(batch_of(changed))
    assert torch.equal(before[:, :7], after[:, :7])
    assert not torch.allclose(before[:, 7:], after[:, 7:])


def states_of_a_prefix(positions: str, *, changed: int | None) -> torch.Tensor:
    """Returns a decoder's states of documents of 6 and 8 tokens, with 3 and 4 in their prefixes."""
    ids = random_ids(1, 14)
    if changed is not None:
        ids[:, changed] = (ids[:, changed] + 1) % VOCAB_SIZE
    visible = torch.tensor([[True] * 3 + [False] * 3 + [True] * 4 + [False] * 4])
    batch = replace(batch_of(ids, torch.tensor([[1] * 6 + [2] * 8])), visible=visible)
    return small_model("decoder", positions=positions).eval()(batch)[0]


@pytest.mark.parametrize("positions", [*POSITIONS, "relative"])
@pytest.mark.parametrize("changed", range(14))
def test_a_prefix_is_seen_in_both_directions_and_nothing_behind_it_is(positions, changed) -> None:
    """A token of a prefix changes all states of its document, any other only its own and later."""
    before, after = (states_of_a_prefix(positions, changed=at) for at in (None, changed))
    differs = ((before - after).abs().amax(dim=-1) > 0).tolist()
    end = 6 if changed < 6 else 14
    prefix, begin = (range(3), 0) if changed < 6 else (range(6, 10), 6)
    first = begin if changed in prefix else changed
    assert differs == [first <= at < end for at in range(14)]


def test_every_token_changes_every_state_of_an_encoder() -> None:
    model = small_model("encoder").eval()
    ids = random_ids(1, 12)
    changed = ids.clone()
    changed[:, 7] = (changed[:, 7] + 1) % VOCAB_SIZE
    difference = (model(batch_of(ids)) - model(batch_of(changed))).abs().amax(dim=-1)
    assert (difference > 0).all()


@pytest.mark.parametrize(
    ("architecture", "settings"),
    [
        *((name, {"positions": positions}) for name in TRANSFORMERS for positions in POSITIONS),
        ("bilstm", {}),
    ],
)
def test_packed_documents_do_not_see_each_other(architecture, settings) -> None:
    """Two documents in one row have the states that each has alone."""
    model = small_model(architecture, **settings).eval()
    ids = random_ids(1, 14)
    documents = torch.tensor([[1] * 6 + [2] * 8])
    packed = model(batch_of(ids, documents))
    first, second = model(batch_of(ids[:, :6])), model(batch_of(ids[:, 6:]))
    torch.testing.assert_close(packed, torch.cat([first, second], dim=1), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_padding_changes_no_state(architecture) -> None:
    model = small_model(architecture).eval()
    ids = random_ids(1, 9)
    padded = torch.cat([ids, torch.zeros(1, 4, dtype=torch.long)], dim=1)
    documents = torch.tensor([[1] * 9 + [PADDING] * 4])
    states = model(batch_of(padded, documents))
    torch.testing.assert_close(states[:, :9], model(batch_of(ids)), atol=1e-5, rtol=1e-4)
    assert torch.isfinite(states).all()


def decoding(ids: torch.Tensor, targets: torch.Tensor) -> Batch:
    return replace(
        batch_of(ids), decoder_input_ids=targets, decoder_document_ids=torch.ones_like(targets)
    )


def test_decoding_sees_all_of_the_input_and_the_past_of_the_output() -> None:
    model = small_model("encoder_decoder").eval()
    ids, targets = random_ids(1, 10), random_ids(1, 6)
    before = model.decode(decoding(ids, targets))
    later = targets.clone()
    later[:, 4] = 7
    assert torch.equal(before[:, :4], model.decode(decoding(ids, later))[:, :4])
    source = ids.clone()
    source[:, 9] = 7
    changed = (before - model.decode(decoding(source, targets))).abs().amax(dim=-1)
    assert (changed > 0).all()


def test_parameters_of_an_encoder_are_those_of_the_formula() -> None:
    """The weight matrices have V d + 6 N d^2 parameters if d_ff = d."""
    model = small_model("encoder", d_ff=DIMENSIONS["d_model"])
    d, layers = DIMENSIONS["d_model"], DIMENSIONS["num_layers"]
    matrices = sum(p.numel() for p in model.parameters() if p.dim() >= 2)
    assert matrices == VOCAB_SIZE * d + 6 * layers * d * d


def test_untied_output_has_its_own_weights() -> None:
    tied, untied = small_model("decoder"), small_model("decoder", tied=False)
    count = lambda model: sum(p.numel() for p in model.parameters())  # noqa: E731
    assert count(untied) - count(tied) == VOCAB_SIZE * DIMENSIONS["d_model"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_weights_are_a_function_of_the_seed(architecture) -> None:
    states = [small_model(architecture, seed=seed).state_dict() for seed in (1, 1, 2)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    embedding = next(name for name in states[0] if name.startswith("embedding."))
    assert not torch.equal(states[0][embedding], states[2][embedding])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_heads": 3}, "num_heads 3 must divide d_model 32"),
        ({"locality": -1.0}, "locality must be at least 0, not -1.0"),
        ({"d_model": 6}, "rotary positions need an even"),
        ({"num_layers": 0}, "num_layers must be at least 1"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\)"),
        ({"d_modle": 8}, "unknown 'd_modle'; did you mean 'd_model'"),
        ({"aspect_ratio": 16}, "num_layers and aspect_ratio say the same; leave one of them out"),
    ],
)
def test_impossible_dimensions_are_refused(settings, message) -> None:
    with pytest.raises(ValueError, match=message):
        small_model("encoder", **settings)


@pytest.mark.parametrize(
    ("d_model", "num_layers"), [(128, 2), (256, 4), (512, 8), (768, 12)], ids=str
)
def test_the_width_gives_the_shapes_of_bert(d_model, num_layers) -> None:
    """Widths give tiny, mini, medium and base of Turc et al. 2019; students, half the layers."""
    entry = {"name": "encoder", "d_model": d_model}
    sizes = {"num_layers": num_layers, "num_heads": d_model // 64, "d_ff": 4 * d_model}
    assert outline(entry, VOCAB_SIZE, where="model").sizes == sizes
    student = outline(entry | {"aspect_ratio": 128}, VOCAB_SIZE, where="model")
    assert student.sizes == sizes | {"num_layers": num_layers // 2}


def test_a_size_that_is_given_is_kept() -> None:
    entry = {"name": "decoder", "d_model": 96, "num_layers": 5, "num_heads": 3, "d_ff": 100}
    assert outline(entry, VOCAB_SIZE, where="model").sizes.items() <= entry.items()
    del entry["d_ff"]
    assert outline(entry, VOCAB_SIZE, where="model").sizes["d_ff"] == 384


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_layers": 2}, "num_heads is d_model / 64 if it is left out, and 100 is no multiple"),
        ({"num_heads": 2}, "num_layers is d_model / 64 if it is left out, and 100 is no multiple"),
        ({"d_model": 192, "aspect_ratio": 128}, "num_layers is d_model / 128 if it is left out"),
        ({"d_model": 64, "aspect_ratio": 0}, "aspect_ratio must be at least 1, not 0"),
        ({"d_model": 0}, "d_model must be at least 1, not 0"),
    ],
)
def test_a_width_that_gives_no_size_is_refused(settings, message) -> None:
    with pytest.raises(ValueError, match=f"pretrain.bert.model: {message}"):
        outline({"name": "encoder", "d_model": 100} | settings, 100, where="pretrain.bert.model")


def test_only_the_encoder_half_is_fine_tuned() -> None:
    model = small_model("encoder_decoder")
    model.drop_output_layers()
    names = [name for name, _ in model.named_parameters()]
    assert names and not any(name.startswith("decoder.") for name in names)


def used_with_head(architecture: str, **settings: Any) -> Any:
    model = small_model(architecture, **settings)
    model.drop_output_layers()
    return model.eval()


def test_models_of_one_design_compute_the_same_from_the_same_weights() -> None:
    """An encoder-decoder without its output layers is an encoder, and the design says so."""
    encoder = used_with_head("encoder")
    half = used_with_head("encoder_decoder", seed=2, output_bias=False)
    assert encoder.design == half.design is not None
    assert (half.architecture, half.used_architecture) == ("encoder_decoder", "encoder")
    with torch.no_grad():
        for ours, theirs in zip(encoder.parameters(), half.parameters(), strict=True):
            ours.copy_(theirs)
    ids = torch.randint(20, VOCAB_SIZE, (2, 9), generator=torch.Generator().manual_seed(0))
    batch = Batch(input_ids=ids, document_ids=torch.ones_like(ids), num_targets={})
    assert torch.equal(encoder(batch), half(batch))


@pytest.mark.parametrize(
    "settings",
    [{"num_layers": 1}, {"num_heads": 1}, {"activation": "relu"}, {"dropout": 0.1}],
)
def test_other_dimensions_are_another_design(settings: dict[str, Any]) -> None:
    assert used_with_head("encoder").design != used_with_head("encoder", **settings).design


def test_a_decoder_is_designed_unlike_an_encoder_of_its_dimensions() -> None:
    assert used_with_head("encoder").design != used_with_head("decoder").design
    assert used_with_head("bilstm").design is None  # unknown, so never compared as equal


def test_the_encoder_of_an_encoder_decoder_is_drawn_as_an_encoder_is() -> None:
    """A seed gives both the same matrices. A decoder's are smaller where they write into the
    residual stream, because three layers of its block do, not two."""
    encoder, whole = small_model("encoder"), small_model("encoder_decoder")
    drawn = {name: weight.std() for name, weight in whole.decoder.state_dict().items()}
    for model in (encoder, whole):
        model.drop_output_layers()
    one, other = encoder.reader.state_dict(), whole.reader.state_dict()
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one if one[name].dim() >= 2)
    name = "blocks.0.feed_forward.down.weight"
    assert float(one[name].std() / drawn[name]) == pytest.approx(1.5**0.5, rel=0.1)
