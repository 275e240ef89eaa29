"""Writing text: what is written is what the model's own logits say, one token at a time."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from stages.core.seeding import torch_stream
from stages.models._backbone import MODELS
from stages.models._generation import Decoding, drawn
from stages.text.batch import IGNORE_INDEX, PADDING, Batch, pad
from stages.text.tokenizer import BOS_ID, EOS_ID
from tests.small import small_entry

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

WRITERS = ("gpt2", "llama", "phi", "t5", "bart")
LENGTHS = (9, 4, 1, 7)
VOCAB_SIZE = 16  # so few tokens that <eos> is not rare
TINY = 6  # tokens, so few that every text can be tried


def model_of(name: str, *, vocab_size: int = VOCAB_SIZE, seed: int = 3) -> Any:
    """Returns a model with weights so large that its text depends on the whole input."""
    model: Any = MODELS.build(small_entry(name), vocab_size, where="a")
    generator = torch_stream(seed, "weights")
    model.initialise(generator=generator)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.4 * torch.randn(weight.shape, generator=generator)
    return model.eval()


def inputs(*, visible: bool = False) -> Batch:
    generator = torch.Generator().manual_seed(1)
    width = max(LENGTHS)
    ids = torch.randint(4, VOCAB_SIZE, (len(LENGTHS), width), generator=generator)
    real = torch.arange(width) < torch.tensor(LENGTHS)[:, None]
    batch = Batch(input_ids=ids.masked_fill(~real, 0), document_ids=real.long(), num_targets={})
    return replace(batch, visible=real) if visible else batch


def row_of(batch: Batch, row: int) -> Batch:
    """One row alone, without its padding."""
    real = batch.document_ids[row] != PADDING
    ids = batch.input_ids[row][real][None]
    seen = None if batch.visible is None else torch.ones_like(ids, dtype=torch.bool)
    return Batch(input_ids=ids, document_ids=torch.ones_like(ids), num_targets={}, visible=seen)


def decoding(max_new_tokens: int = 6, **settings: Any) -> Decoding:
    return Decoding(max_new_tokens=max_new_tokens, start_id=BOS_ID, eos_id=EOS_ID, **settings)


def followed_by(batch: Batch, target: Tensor) -> Batch:
    """Returns each input with the same target, as in training."""
    ids = torch.cat([torch.tensor([BOS_ID]), target]).expand(len(batch.input_ids), -1)
    return replace(batch, decoder_input_ids=ids, decoder_document_ids=torch.ones_like(ids))


@torch.no_grad()
@pytest.mark.parametrize("visible", [False, True], ids=["", "prefix"])
@pytest.mark.parametrize("name", WRITERS)
def test_greedy_takes_the_likeliest_token_each_time(name: str, visible: bool) -> None:
    """In a batch as alone, with the input read in both directions as without."""
    model, batch, how = model_of(name), inputs(visible=visible), decoding()
    if visible and not model.is_causal:
        return
    for row, text in enumerate(model.generate(batch, how)):
        expected: list[int] = []
        while len(expected) < how.max_new_tokens:
            taught = followed_by(row_of(batch, row), torch.tensor(expected, dtype=torch.long))
            token = int(model.unembed(model.decode(taught))[0, -1].argmax())
            if token == EOS_ID:
                break
            expected.append(token)
        assert text == expected


@torch.no_grad()
@pytest.mark.parametrize("name", ["gpt2", "llama", "phi"])
def test_a_prefix_changes_what_is_written(name: str) -> None:
    model, seen = model_of(name), [inputs(), inputs(visible=True)]
    target = torch.tensor([7, 8, 9])
    one, other = (model.unembed(model.decode(followed_by(batch, target))) for batch in seen)
    assert (one - other)[0].abs().max() > 0.01
    assert torch.allclose(one[2], other[2], atol=1e-5)  # a prefix of one token


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("name", WRITERS)
def test_a_row_in_a_batch_gets_what_it_gets_alone(name: str, num_beams: int) -> None:
    model, batch = model_of(name), inputs()
    how = decoding(num_beams=num_beams, length_penalty=0.0)
    texts = model.generate(batch, how)
    assert texts == [model.generate(row_of(batch, i), how)[0] for i in range(len(LENGTHS))]
    assert all(EOS_ID not in text for text in texts)


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_what_is_drawn_of_a_row_depends_on_its_own_draws_alone(name: str) -> None:
    model, batch = model_of(name), inputs()
    draws = torch.rand(len(LENGTHS), 8, generator=torch.Generator().manual_seed(4))
    how = decoding(8, draws=draws)
    alone = [
        model.generate(row_of(batch, i), replace(how, draws=draws[i : i + 1]))[0]
        for i in range(len(LENGTHS))
    ]
    assert model.generate(batch, how) == alone and alone[0] != alone[3]
    lowest = replace(how, draws=torch.zeros_like(draws))  # the first token of the vocabulary
    assert model.generate(batch, lowest) == [[0] * 8] * len(LENGTHS)


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    logits = torch.tensor([0.5, 0.0, 0.3, 0.2]).log()  # the second never
    tokens = drawn(logits.expand(1000, -1), torch.arange(1000) / 1000)
    assert torch.bincount(tokens).tolist() == pytest.approx([500, 0, 300, 200], abs=1)
    assert drawn(logits[None], torch.tensor([1.0])).tolist() == [3]  # a draw beyond the rounded sum


def scores(model: Any, batch: Batch, texts: list[list[int]], how: Decoding) -> list[float]:
    """Returns the beam scores of texts for one input; <eos> counts unless a text is cut."""
    ended = [text if len(text) == how.max_new_tokens else [*text, how.eos_id] for text in texts]
    labels = pad([np.array(text) for text in ended], IGNORE_INDEX)
    ids = torch.cat([torch.full((len(texts), 1), BOS_ID), labels[:, :-1].clamp(min=0)], dim=1)
    rows = torch.zeros(len(texts), dtype=torch.long)
    taught = replace(
        batch,
        input_ids=batch.input_ids[rows],
        document_ids=batch.document_ids[rows],
        decoder_input_ids=ids,
        decoder_document_ids=(labels != IGNORE_INDEX).long(),
    )
    logits = model.unembed(model.decode(taught)).flatten(0, 1)
    losses = F.cross_entropy(logits, labels.flatten(), ignore_index=IGNORE_INDEX, reduction="none")
    totals = -losses.view(len(texts), -1).sum(dim=1)
    lengths = torch.tensor([len(text) for text in ended])
    return (totals / lengths**how.length_penalty).tolist()


@torch.no_grad()
@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("name", ["llama", "t5"])
def test_with_beams_enough_the_best_of_all_texts_is_found(name: str, length_penalty: float) -> None:
    ids = torch.tensor([[2, 4, 5, 3]])
    batch = Batch(input_ids=ids, document_ids=torch.ones_like(ids), num_targets={})
    how = decoding(3, num_beams=TINY**2, length_penalty=length_penalty)
    others = [token for token in range(TINY) if token != EOS_ID]
    texts = [list(t) for n in range(4) for t in itertools.product(others, repeat=n)]
    model = model_of(name, vocab_size=TINY, seed=1)
    every = scores(model, batch, texts, how)
    (best,) = model.generate(batch, how)
    assert every[texts.index(best)] == pytest.approx(max(every), abs=1e-4)
