"""Generated text is the same with and without a cache and in transformers; beams find the best."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

from stages.core.seeding import torch_stream
from stages.exporting.counterpart import counterpart
from stages.models._attention import Cache
from stages.models._backbone import MODELS
from stages.models._generation import (
    CachedReader,
    Decoding,
    Reader,
    beam_search,
    drawn,
    one_by_one,
    prompts,
)
from stages.text.batch import IGNORE_INDEX, PADDING, Batch, pad
from stages.text.tokenizer import BOS_ID, EOS_ID
from tests.models.test_hub import published
from tests.small import DIMENSIONS, headless, small_model, without_output_layers
from tests.small_hub import checkpoint

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

WRITERS = ("decoder", "encoder_decoder")
POSITIONS = ("rotary", "learned", "sinusoidal", "relative", "none")
LENGTHS = (9, 4, 1, 7)


VOCAB_SIZE = 16  # so few tokens that <eos> is not rare


def model_of(
    architecture: str, *, vocab_size: int = VOCAB_SIZE, seed: int = 3, **settings: Any
) -> Any:
    """Returns a model with weights so large that its text depends on the whole input."""
    entry = {"name": architecture, **DIMENSIONS, **settings}
    model: Any = MODELS.build(entry, vocab_size, where="model")
    generator = torch_stream(seed, "weights")
    model.initialise(generator=generator)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.4 * torch.randn(weight.shape, generator=generator)
    return model.eval()


def inputs(*, padding: str = "right", lengths: tuple[int, ...] = LENGTHS) -> Batch:
    generator = torch.Generator().manual_seed(1)
    width = max(lengths)
    ids = torch.randint(4, VOCAB_SIZE, (len(lengths), width), generator=generator)
    real = torch.arange(width) < torch.tensor(lengths)[:, None]
    if padding == "left":
        real = real.flip(1)
    return Batch(input_ids=ids.masked_fill(~real, 0), document_ids=real.long(), num_targets={})


def row_of(batch: Batch, row: int) -> Batch:
    """One row alone, without its padding."""
    real = batch.document_ids[row] != PADDING
    ids = batch.input_ids[row][real][None]
    return Batch(input_ids=ids, document_ids=torch.ones_like(ids), num_targets={})


def decoding(max_new_tokens: int = 8, **settings: Any) -> Decoding:
    return Decoding(max_new_tokens=max_new_tokens, start_id=BOS_ID, eos_id=EOS_ID, **settings)


def ending(model: Any, batch: Batch, how: Decoding) -> Decoding:
    """Returns ``how`` with the first row's fourth greedy token as an early <eos>."""
    unending = replace(how, num_beams=1, eos_id=-1)
    return replace(how, eos_id=model.generate(batch, unending)[0][3])


def followed_by(batch: Batch, target: Tensor) -> Batch:
    """Returns each input with the same target, as in training."""
    ids = torch.cat([torch.tensor([BOS_ID]), target]).expand(len(batch.input_ids), -1)
    return replace(batch, decoder_input_ids=ids, decoder_document_ids=torch.ones_like(ids))


def reader_of(model: Any, batch: Batch, capacity: int) -> tuple[Reader, Tensor]:
    """Returns a reader and its first logits, as in ``generate``."""
    if model.architecture == "decoder":
        prompt = prompts(batch)
        cache = Cache(model.num_layers, capacity=prompt.input_ids.shape[1] + capacity)
        reader = CachedReader(model.embedding, model.stack, model.unembed, cache)
        return reader, reader.begin(prompt.input_ids, prompt.document_ids, visible=prompt.visible)
    length = batch.input_ids.shape[1]
    cache = Cache(model.num_layers, capacity=capacity, memory_length=length)
    documents = batch.document_ids
    reader = CachedReader(
        model.embedding, model.decoder, model.unembed, cache, memory_document_ids=documents
    )
    start = torch.full((len(documents), 1), BOS_ID)
    return reader, reader.begin(start, torch.ones_like(start), memory=model(batch))


# The cache


@torch.no_grad()
@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("architecture", WRITERS)
def test_logits_with_a_cache_are_those_of_the_whole_text(architecture, positions, padding) -> None:
    """Logits of every token agree, in a padded batch and for each row alone."""
    model, batch = model_of(architecture, positions=positions), inputs(padding=padding)
    target = torch.randint(4, VOCAB_SIZE, (6,), generator=torch.Generator().manual_seed(2))
    whole = model.logits(followed_by(batch, target))
    reader, logits = reader_of(model, batch, len(target) + 1)
    read = [logits, *(reader.read(token.expand(len(LENGTHS))) for token in target)]
    torch.testing.assert_close(torch.stack(read, dim=1), whole, atol=1e-5, rtol=1e-5)
    for row in range(len(LENGTHS)):
        alone = model.logits(followed_by(row_of(batch, row), target))
        torch.testing.assert_close(whole[row], alone[0], atol=2e-5, rtol=2e-5)


@torch.no_grad()
def test_a_decoder_sees_all_of_a_visible_input_at_once() -> None:
    """Visible inputs change the logits, equally with a cache and without."""
    model, batch = model_of("decoder"), inputs(lengths=(6, 6))
    batch.input_ids[1] = batch.input_ids[0]
    batch.input_ids[1, 4] += 1
    target = torch.tensor([7, 8, 9])
    causal = model.logits(followed_by(batch, target))
    batch = replace(batch, visible=torch.ones_like(batch.input_ids, dtype=torch.bool))
    whole = model.logits(followed_by(batch, target))
    assert (whole - causal).abs().max() > 0.01
    reader, logits = reader_of(model, batch, len(target))
    read = [logits, *(reader.read(token.expand(2)) for token in target)]
    torch.testing.assert_close(torch.stack(read, dim=1), whole, atol=1e-5, rtol=1e-5)
    # Rows of pretraining: the prefix is visible, the rest of the row is not.
    ids = torch.cat([batch.input_ids, target.expand(2, -1)], dim=1)
    visible = torch.arange(ids.shape[1]).expand_as(ids) < batch.input_ids.shape[1]
    row = Batch(input_ids=ids, document_ids=torch.ones_like(ids), num_targets={}, visible=visible)
    torch.testing.assert_close(whole, model.unembed(model(row))[:, 5:])


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("architecture", WRITERS)
def test_a_row_in_a_batch_gets_what_it_gets_alone(architecture, positions, num_beams) -> None:
    """The text does not depend on when other rows end."""
    model, batch = model_of(architecture, positions=positions), inputs()
    how = ending(model, batch, decoding(10, num_beams=num_beams, length_penalty=0.0))
    texts = model.generate(batch, how)
    assert texts == [model.generate(row_of(batch, i), how)[0] for i in range(len(LENGTHS))]
    assert min(map(len, texts)) < 10 and all(how.eos_id not in text for text in texts)


def test_what_cannot_write_says_so() -> None:
    assert not small_model("encoder").can_generate
    assert not small_model("bilstm").can_generate
    assert all(small_model(name).can_generate for name in WRITERS)
    assert not without_output_layers(small_model("encoder_decoder")).can_generate


# Greedy and beam search, compared with simple searches


class Whole(Reader):
    """Computes everything anew for each token."""

    def __init__(self, model: Any, batch: Batch) -> None:
        self.model, self.batch = model, batch
        self.written = torch.empty(len(batch.input_ids), 0, dtype=torch.long)
        self.num_beams = 1

    def logits(self) -> Tensor:
        start = torch.full((len(self.written), 1), BOS_ID)
        ids = torch.cat([start, self.written], dim=1)
        rows = torch.arange(len(ids)) // self.num_beams
        batch = replace(
            self.batch,
            input_ids=self.batch.input_ids[rows],
            document_ids=self.batch.document_ids[rows],
            decoder_input_ids=ids,
            decoder_document_ids=torch.ones_like(ids),
        )
        return self.model.logits(batch)[:, -1]

    def read(self, tokens: Tensor) -> Tensor:
        self.written = torch.cat([self.written, tokens[:, None]], dim=1)
        return self.logits()

    def keep(self, rows: Tensor, beams: Tensor) -> None:
        self.written = self.written[(rows[:, None] * self.num_beams + beams).flatten()]
        self.num_beams = beams.shape[1]
        self.batch = replace(
            self.batch,
            input_ids=self.batch.input_ids[rows],
            document_ids=self.batch.document_ids[rows],
        )


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
    logits = model.logits(taught).flatten(0, 1)
    losses = F.cross_entropy(logits, labels.flatten(), ignore_index=IGNORE_INDEX, reduction="none")
    totals = -losses.view(len(texts), -1).sum(dim=1)
    lengths = torch.tensor([len(text) for text in ended])
    return (totals / lengths**how.length_penalty).tolist()


@torch.no_grad()
@pytest.mark.parametrize("num_beams", [1, 4])
@pytest.mark.parametrize("architecture", WRITERS)
def test_what_is_written_with_a_cache_is_what_is_written_without(architecture, num_beams) -> None:
    model, batch, how = model_of(architecture), inputs(), decoding(num_beams=num_beams)
    reader = Whole(model, batch)
    search = one_by_one if num_beams == 1 else beam_search
    assert model.generate(batch, how) == search(reader, reader.logits(), how)


@pytest.mark.parametrize("architecture", WRITERS)
def test_what_is_drawn_of_a_row_depends_on_its_own_draws_alone(architecture) -> None:
    """A row's text does not depend on the other rows, or on when they end."""
    model, batch = model_of(architecture), inputs()
    draws = torch.rand(len(LENGTHS), 8, generator=torch.Generator().manual_seed(4))
    how = ending(model, batch, decoding(draws=draws))
    texts = model.generate(batch, how)
    alone = [
        model.generate(row_of(batch, i), replace(how, draws=draws[i : i + 1]))[0]
        for i in range(len(LENGTHS))
    ]
    assert texts == alone and len({len(text) for text in texts}) > 1
    lowest = replace(how, draws=torch.zeros_like(draws))  # the first token of the vocabulary
    assert model.generate(batch, lowest) == [[0] * 8] * len(LENGTHS)


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    logits = torch.tensor([0.5, 0.0, 0.3, 0.2]).log()  # the second never
    draws = torch.arange(1000) / 1000
    tokens = drawn(logits.expand(1000, -1), draws)
    assert torch.bincount(tokens).tolist() == pytest.approx([500, 0, 300, 200], abs=1)
    assert drawn(logits[None], torch.tensor([1.0])).tolist() == [3]  # a draw beyond the rounded sum


@torch.no_grad()
@pytest.mark.parametrize("architecture", WRITERS)
def test_greedy_takes_the_likeliest_token_each_time(architecture) -> None:
    model, batch, how = model_of(architecture), inputs(), decoding(6)
    for row, text in enumerate(model.generate(batch, how)):
        expected: list[int] = []
        while len(expected) < 6:
            taught = followed_by(row_of(batch, row), torch.tensor(expected, dtype=torch.long))
            token = int(model.logits(taught)[0, -1].argmax())
            if token == EOS_ID:
                break
            expected.append(token)
        assert text == expected


TINY = 6  # tokens, so few that every text can be tried


TINY_INPUT = Batch(
    input_ids=torch.tensor([[2, 4, 5, 3]]),
    document_ids=torch.ones(1, 4, dtype=torch.long),
    num_targets={},
)


@torch.no_grad()
@pytest.mark.parametrize("length_penalty", [-0.5, 0.0, 1.0, 2.0])
@pytest.mark.parametrize("architecture", WRITERS)
def test_with_beams_enough_the_best_of_all_texts_is_found(architecture, length_penalty) -> None:
    longest = 3
    how = decoding(longest, num_beams=TINY**longest, length_penalty=length_penalty)
    others = [token for token in range(TINY) if token != EOS_ID]
    texts = [
        list(text)
        for length in range(longest + 1)
        for text in itertools.product(others, repeat=length)
    ]
    for seed in range(3):
        model = model_of(architecture, vocab_size=TINY, seed=seed)
        every = scores(model, TINY_INPUT, texts, how)
        (best,) = model.generate(TINY_INPUT, how)
        assert best == texts[every.index(max(every))]


@torch.no_grad()
@pytest.mark.parametrize("architecture", WRITERS)
def test_beams_find_no_worse_texts_than_greedy_on_the_whole(architecture) -> None:
    """Beams may score a little worse for one model, and are clearly better for another."""
    differences = []
    for seed in range(8):
        model = model_of(architecture, vocab_size=TINY, seed=seed)
        how = decoding(6, num_beams=5)
        texts = [model.generate(TINY_INPUT, how)[0], model.generate(TINY_INPUT, decoding(6))[0]]
        by_beams, greedily = scores(model, TINY_INPUT, texts, how)
        differences.append(by_beams - greedily)
    assert min(differences) > -0.05 and max(differences) > 0.05


@pytest.mark.parametrize("architecture", WRITERS)
def test_a_larger_length_penalty_prefers_longer_texts(architecture) -> None:
    model, batch = model_of(architecture), inputs()
    how = ending(model, batch, decoding(10, num_beams=4))
    lengths = [
        sum(map(len, model.generate(batch, replace(how, length_penalty=penalty))))
        for penalty in (0.0, 3.0)
    ]
    assert lengths[0] < lengths[1]


# Comparison with transformers


FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("decoder", {"positions": "learned", "max_positions": 40}),
    "starcoder2": ("decoder", {}),
    "t5": (
        "encoder_decoder",
        {
            "norm": "rmsnorm",
            "bias": False,
            "output_bias": False,
            "positions": "relative",
            "activation": "relu",
            "tied": False,
        },
    ),
}


@pytest.mark.parametrize(
    ("num_beams", "length_penalty"), [(1, 1.0), (4, 1.0), (4, 0.0), (3, 2.0), (3, -1.0)]
)
@pytest.mark.parametrize("family", FAMILIES)
def test_as_generate_of_transformers(family, num_beams, length_penalty) -> None:
    """Equal weights give equal texts, some of which end early."""
    architecture, settings = FAMILIES[family]
    model, batch = model_of(architecture, **settings), inputs()
    _, theirs = counterpart(headless(model), max_tokens=40)
    how = decoding(10, num_beams=num_beams, length_penalty=length_penalty)
    how = ending(model, batch, how)
    texts = model.generate(batch, how)

    prompt = prompts(batch) if architecture == "decoder" else batch
    beams = {"length_penalty": length_penalty, "early_stopping": "never"} if num_beams > 1 else {}
    start = {} if architecture == "decoder" else {"decoder_start_token_id": BOS_ID}
    rows = theirs.generate(
        input_ids=prompt.input_ids,
        attention_mask=(prompt.document_ids != PADDING).long(),
        max_new_tokens=10,
        num_beams=num_beams,
        do_sample=False,
        eos_token_id=how.eos_id,
        pad_token_id=how.eos_id,
        **beams,
        **start,
    )
    prompt_length = prompt.input_ids.shape[1] if architecture == "decoder" else 1
    expected = [
        row[: row.index(how.eos_id)] if how.eos_id in row else row
        for row in rows[:, prompt_length:].tolist()
    ]
    assert texts == expected
    assert (num_beams > 1 and length_penalty > 0) or min(map(len, texts)) < 10


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("family", ["gpt2", "t5", "bart"])
def test_a_public_checkpoint_writes_what_it_writes_in_transformers(family, num_beams) -> None:
    """A row has one text, alone or in a batch; logits of a text are the published model's."""
    model = published(checkpoint(family))
    kind = transformers.AutoModelForCausalLM
    if model.architecture == "encoder_decoder":
        kind = transformers.AutoModelForSeq2SeqLM
    theirs = kind.from_pretrained(checkpoint(family)).eval()
    batch = inputs()
    how = replace(decoding(num_beams=num_beams), start_id=1, eos_id=1)
    texts = model.generate(batch, how)
    assert texts == [model.generate(row_of(batch, i), how)[0] for i in range(len(LENGTHS))]
    target = torch.tensor([9, 10, 11])
    taught = followed_by(batch, target)
    logits = model.logits(taught)
    assert taught.decoder_input_ids is not None
    for row in range(len(LENGTHS)):
        ids = row_of(batch, row).input_ids
        if model.architecture == "decoder":
            whole = theirs(input_ids=torch.cat([ids, target[None]], dim=1)).logits
            expected = whole[:, ids.shape[1] - 1 :]
        else:
            written = taught.decoder_input_ids[:1]
            expected = theirs(input_ids=ids, decoder_input_ids=written).logits
        torch.testing.assert_close(logits[row], expected[0], atol=1e-5, rtol=1e-4)
