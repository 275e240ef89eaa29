"""The LSTMs of a bidirectional language model."""

from pathlib import Path

import pytest
import torch
from torch import nn

from stages.text.batch import PADDING, Batch
from tests.small import D_CELL, DIMENSIONS, VOCAB_SIZE, small_model

# Two rows of packed documents, the second padded; each document's row, first and last token.
DOCUMENTS = torch.tensor([[1] * 5 + [2] * 1 + [3] * 6, [1] * 3 + [2] * 6 + [PADDING] * 3])
PLACES = [(0, 0, 4), (0, 5, 5), (0, 6, 11), (1, 0, 2), (1, 3, 8)]
WIDTH = DIMENSIONS["d_model"] // 2


def packed_batch(*, changed: tuple[int, int] | None = None) -> Batch:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, VOCAB_SIZE, DOCUMENTS.shape, generator=generator)
    if changed is not None:
        ids[changed] = (ids[changed] + 1) % VOCAB_SIZE
    return Batch(input_ids=ids, document_ids=DOCUMENTS, num_targets={})


def read_alone(x: torch.Tensor, lstms: nn.ModuleList) -> list[torch.Tensor]:
    """The states of each layer for the embedded tokens of one document, by torch's LSTM."""
    layers: list[torch.Tensor] = []
    for lstm in lstms:
        change, _ = lstm(x)
        x = x + change if layers else change
        layers.append(x)
    return layers


@pytest.mark.parametrize("d_cell", [WIDTH, 48])  # without a projection and with one
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_each_document_is_read_from_both_ends_by_torch_s_lstm(d_cell) -> None:
    model = small_model("bilstm", d_cell=d_cell, num_layers=3).eval()
    batch = packed_batch()
    layers = model.layers(batch)
    for row, first, last in PLACES:
        x = model.embedding(batch.input_ids[row, first : last + 1])
        forward = [x, *read_alone(x, model.forward_lm)]
        backward = [x, *(h.flip(0) for h in read_alone(x.flip(0), model.backward_lm))]
        expected = torch.stack([torch.cat(h, dim=-1) for h in zip(forward, backward, strict=True)])
        torch.testing.assert_close(layers[:, row, first : last + 1], expected)


@pytest.mark.parametrize("place", [(0, 8), (1, 1)])
def test_no_state_sees_what_its_direction_has_not_read(place) -> None:
    """A token changes the forward states from its position to its document's end, the backward
    states from the document's start to its position, and no others."""
    model = small_model("bilstm").eval()
    before, after = model.layers(packed_batch()), model.layers(packed_batch(changed=place))
    row, position = place
    document = DOCUMENTS[place] == DOCUMENTS
    document &= torch.arange(2)[:, None] == row
    columns = torch.arange(DOCUMENTS.shape[1])
    seen = [document & (columns >= position), document & (columns <= position)]
    changed = (before != after)[1:].unflatten(-1, (2, WIDTH)).any(dim=-1)  # [layers, B, T, 2]
    for layer in changed:
        assert torch.equal(layer, torch.stack(seen, dim=-1))


def test_a_state_is_the_weighted_sum_of_the_layers() -> None:
    """softmax([0, ln 2, ln 3]) is 1/6, 2/6 and 3/6."""
    model = small_model("bilstm").eval()
    batch = packed_batch()
    h = model.layers(batch)
    torch.testing.assert_close(model(batch), h.mean(dim=0))
    with torch.no_grad():
        model.mix.s.copy_(torch.tensor([1.0, 2.0, 3.0]).log())
        model.mix.gamma.fill_(4.0)
    torch.testing.assert_close(model(batch), 4 * (h[0] + 2 * h[1] + 3 * h[2]) / 6)
    embedded = model.embedding(batch.input_ids)
    assert torch.equal(h[0], torch.cat([embedded, embedded], dim=-1))


def test_a_task_trains_every_weight() -> None:
    model = small_model("bilstm")
    real = (DOCUMENTS != PADDING).unsqueeze(-1)
    (model(packed_batch()) * real).square().sum().backward()
    for name, weight in model.named_parameters():
        if name == "output_bias":  # used by the language model alone
            continue
        assert weight.grad is not None and weight.grad.abs().sum() > 0, name


def test_forget_gates_begin_open() -> None:
    """The two biases of the gates input, forget, cell and output add up to 0, 1, 0 and 0."""
    lstm = small_model("bilstm").backward_lm[1]
    gates = (lstm.bias_ih_l0 + lstm.bias_hh_l0).unflatten(0, (4, D_CELL))
    assert gates.mean(dim=1).tolist() == [0, 1, 0, 0]


def test_a_saved_model_is_loaded(tmp_path: Path) -> None:
    model, batch = small_model("bilstm").eval(), packed_batch()
    model.save(tmp_path)
    again = small_model("bilstm", seed=2)
    again.load(tmp_path)
    assert torch.equal(again.eval()(batch), model(batch))
    with pytest.raises(ValueError, match="model.safetensors"):
        small_model("bilstm", d_cell=20).load(tmp_path)


def test_logits_are_products_with_the_embedding() -> None:
    model, states = small_model("bilstm"), torch.ones(3, WIDTH)
    assert torch.equal(model.unembed(states), states @ model.embedding.weight.T)


@pytest.mark.parametrize("settings", [{"d_model": 33}, {"d_cell": 15}, {"num_layers": 0}], ids=str)
def test_impossible_sizes_are_refused(settings: dict) -> None:
    with pytest.raises(ValueError, match=f"^architecture: .*{next(iter(settings))} "):
        small_model("bilstm", **settings)
