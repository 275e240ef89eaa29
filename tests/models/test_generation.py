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
from stages.models._transformer import seeded
from stages.text.batch import IGNORE_INDEX, PADDING, Batch, pad
from stages.text.tokenizer import BOS_ID, EOS_ID
from tests.small import small_entry

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

CAUSAL = ("gpt2", "llama", "phi")
WRITERS = (*CAUSAL, "t5", "bart")
LENGTHS = (9, 4, 1, 7)
VOCAB_SIZE = 16  # so few tokens that <eos> is not rare
TINY = 6  # tokens, so few that every text can be tried
IDS = {"start_id": BOS_ID, "eos_id": EOS_ID}


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
    ids = batch.input_ids[row][batch.document_ids[row] != PADDING][None]
    seen = None if batch.visible is None else torch.ones_like(ids, dtype=torch.bool)
    return Batch(input_ids=ids, document_ids=torch.ones_like(ids), num_targets={}, visible=seen)


def followed_by(batch: Batch, target: Tensor) -> Batch:
    """Returns each input with the same target, as in training."""
    ids = torch.cat([torch.tensor([BOS_ID]), target]).expand(len(batch.input_ids), -1)
    return replace(batch, decoder_input_ids=ids, decoder_document_ids=torch.ones_like(ids))


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "visible"), [*((n, False) for n in WRITERS), *((n, True) for n in CAUSAL)]
)
def test_greedy_takes_the_likeliest_token_each_time(name: str, visible: bool) -> None:
    """In a batch as alone, with the input read in both directions as without."""
    model, batch = model_of(name), inputs(visible=visible)
    for row, text in enumerate(model.generate(batch, max_new_tokens=6, **IDS)):
        expected: list[int] = []
        while len(expected) < 6:
            taught = followed_by(row_of(batch, row), torch.tensor(expected, dtype=torch.long))
            token = int(model.unembed(model.decode(taught))[0, -1].argmax())
            if token == EOS_ID:
                break
            expected.append(token)
        assert text == expected


@torch.no_grad()
@pytest.mark.parametrize("name", CAUSAL)
def test_a_prefix_changes_what_is_written(name: str) -> None:
    model, target = model_of(name), torch.tensor([7, 8, 9])
    batches = [followed_by(inputs(visible=visible), target) for visible in (False, True)]
    one, other = (model.unembed(model.decode(batch)) for batch in batches)
    assert (one - other)[0].abs().max() > 0.01
    assert torch.allclose(one[2], other[2], atol=1e-5)  # a prefix of one token


@pytest.mark.parametrize("name", WRITERS)
def test_beams_of_a_row_in_a_batch_write_what_they_write_alone(name: str) -> None:
    model, batch = model_of(name), inputs()
    how = {"max_new_tokens": 6, "num_beams": 3, "length_penalty": 0.0, **IDS}
    texts = model.generate(batch, **how)
    assert texts == [model.generate(row_of(batch, i), **how)[0] for i in range(len(LENGTHS))]
    assert all(EOS_ID not in text for text in texts)


@pytest.mark.parametrize("name", ["llama", "t5"])
@torch.no_grad()
def test_tokens_are_drawn_as_often_as_they_are_likely_and_by_the_seed(name: str) -> None:
    model, row, number = model_of(name), row_of(inputs(), 0), 2000
    batch = replace(
        row,
        input_ids=row.input_ids.expand(number, -1),
        document_ids=row.document_ids.expand(number, -1),
    )
    texts = []
    for seed in (1, 1, 2):
        with seeded(torch_stream(seed)):
            texts.append(model.generate(batch, max_new_tokens=1, draws=True, **IDS))
    assert texts[0] == texts[1] != texts[2]
    assert not model.model.generation_config.do_sample  # a checkpoint writes greedily
    logits = model.unembed(model.decode(followed_by(row, torch.tensor([], dtype=torch.long))))
    drawn = torch.tensor([text[0] if text else EOS_ID for text in texts[0]])
    frequencies = torch.bincount(drawn, minlength=VOCAB_SIZE) / number
    torch.testing.assert_close(frequencies, logits[0, -1].softmax(dim=-1), atol=0.05, rtol=0)


def scores(
    model: Any, batch: Batch, texts: list[list[int]], longest: int, length_penalty: float
) -> list[float]:
    """Returns the beam scores of texts for one input; <eos> counts unless a text is cut."""
    ended = [text if len(text) == longest else [*text, EOS_ID] for text in texts]
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
    lengths = torch.tensor([len(text) for text in ended])
    return (-losses.view(len(texts), -1).sum(dim=1) / lengths**length_penalty).tolist()


@torch.no_grad()
@pytest.mark.parametrize(("name", "length_penalty"), [("llama", 0.0), ("llama", 2.0), ("t5", 1.0)])
def test_with_beams_enough_the_best_of_all_texts_is_found(name: str, length_penalty: float) -> None:
    batch = row_of(inputs(), 1)
    batch = replace(batch, input_ids=batch.input_ids % TINY)
    others = [token for token in range(TINY) if token != EOS_ID]
    texts = [list(t) for n in range(4) for t in itertools.product(others, repeat=n)]
    model = model_of(name, vocab_size=TINY, seed=1)
    every = scores(model, batch, texts, 3, length_penalty)
    how = {"max_new_tokens": 3, "num_beams": TINY**2, "length_penalty": length_penalty, **IDS}
    (best,) = model.generate(batch, **how)
    assert every[texts.index(best)] == pytest.approx(max(every), abs=1e-4)
