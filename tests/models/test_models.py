"""Models of every family, built from random weights: what each token sees, weights, files and
heads."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel

from stages.core.seeding import torch_stream
from stages.models._backbone import MODELS
from stages.models._heads import StartEndHead, gather, initialise_head, pool
from stages.models._transformer import LOCALITY
from stages.tasks.span_qa import span_scores
from stages.text.batch import PADDING, Batch
from stages.text.tokenizer import BOS_ID, EOS_ID
from tests.small import (
    D_CELL,
    DIMENSIONS,
    FAMILIES,
    VOCAB_SIZE,
    small_entry,
    small_model,
)

NAMES = [name for name in FAMILIES if name != "bilstm"]
DECODERS = ["gpt2", "llama", "phi"]
WRITERS = ["t5", "bart"]  # a decoder beside an encoder
LOCAL = ("modernbert", "llama", "phi")  # rotary, with biases of queries and keys


def batch_of(ids: torch.Tensor, documents: torch.Tensor | None = None, **fields: Any) -> Batch:
    documents = torch.ones_like(ids) if documents is None else documents
    return Batch(input_ids=ids, document_ids=documents, num_targets={}, **fields)


def random_ids(rows: int, length: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(5, VOCAB_SIZE, (rows, length), generator=generator)


def changed_at(ids: torch.Tensor, place: int) -> torch.Tensor:
    other = ids.clone()
    other[:, place] = 5 + (other[:, place] - 4) % (VOCAB_SIZE - 5)
    return other


def differs(one: torch.Tensor, other: torch.Tensor) -> list[bool]:
    """Whether the states of each token of the first row differ."""
    return ((one - other).abs().amax(dim=-1) > 0)[0].tolist()


# What a token sees -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_two_packed_documents_before_padding_have_the_states_of_two_rows(name: str) -> None:
    """Also nearly in bfloat16, where short rows use explicit products."""
    model = small_model(name).eval()
    ids, targets = random_ids(1, 17), random_ids(1, 9, seed=1)
    documents = torch.tensor([[1] * 6 + [2] * 8 + [PADDING] * 3])
    of_targets = torch.tensor([[1] * 3 + [2] * 4 + [PADDING] * 2])
    packed = batch_of(ids, documents, decoder_input_ids=targets, decoder_document_ids=of_targets)
    states = model(packed)
    assert states.isfinite().all()
    for document in (1, 2):
        here, decoded = documents == document, of_targets == document
        row = targets[decoded][None]
        written = {"decoder_input_ids": row, "decoder_document_ids": torch.ones_like(row)}
        alone = batch_of(ids[here][None], **written)
        torch.testing.assert_close(states[here], model(alone)[0], atol=1e-5, rtol=1e-4)
        if name in WRITERS:
            taught, expected = model.decode(packed)[decoded], model.decode(alone)[0]
            torch.testing.assert_close(taught, expected, atol=1e-5, rtol=1e-4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(packed)
    real = documents != PADDING
    assert (states - rough)[real].abs().max() < 0.1 * states[real].abs().max()


@pytest.mark.parametrize(
    ("name", "has_prefix"), [*((n, False) for n in FAMILIES), *((n, True) for n in DECODERS)]
)
@pytest.mark.parametrize("place", [1, 4, 12])
@torch.no_grad()
def test_a_token_changes_the_states_that_see_it_and_no_others(name, has_prefix, place) -> None:
    """In a decoder these are its own and later ones of its document, elsewhere and for a token of a
    prefix all of its document."""
    model, ids = small_model(name).eval(), random_ids(1, 14)
    documents = torch.tensor([[1] * 6 + [2] * 8])
    visible = torch.tensor([[True] * 3 + [False] * 3 + [True] * 4 + [False] * 4])
    before, after = (
        model(replace(batch_of(each, documents), visible=visible if has_prefix else None))
        for each in (ids, changed_at(ids, place))
    )
    begin, end = (0, 6) if place < 6 else (6, 14)
    if model.is_causal and not (has_prefix and visible[0, place]):
        begin = place
    assert differs(before, after) == [begin <= at < end for at in range(14)]


@pytest.mark.parametrize("name", WRITERS)
@torch.no_grad()
def test_a_decoder_beside_an_encoder_sees_all_of_the_input_and_its_own_past(name: str) -> None:
    model, ids, targets = small_model(name).eval(), random_ids(1, 10), random_ids(1, 6, seed=1)
    ones = torch.ones_like(targets)
    before, later, other = (
        model.decode(batch_of(x, decoder_input_ids=y, decoder_document_ids=ones))
        for x, y in ((ids, targets), (ids, changed_at(targets, 4)), (changed_at(ids, 9), targets))
    )
    assert differs(before, later) == [False] * 4 + [True] * 2
    assert all(differs(before, other))


# Weights -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_a_saved_model_is_loaded_and_read_by_transformers(name: str, tmp_path: Path) -> None:
    """Weights are a function of the seed. Without output layers a model has the same states."""
    model, same, again = (small_model(name, seed=seed).eval() for seed in (1, 1, 2))
    one, other = dict(model.named_parameters()), dict(again.named_parameters())
    assert all(map(torch.equal, one.values(), same.parameters()))
    assert not any(torch.equal(one[key], other[key]) for key in one if one[key].dim() == 2)
    model.save(tmp_path)
    again.load(tmp_path)
    batch = batch_of(random_ids(2, 9))
    states, architecture = model(batch), model.architecture
    assert torch.equal(again.eval()(batch), states)
    if name == "bilstm":
        assert torch.equal(again.mix.gamma, model.mix.gamma)
    else:
        assert torch.equal(again.unembed(states), model.unembed(states))
        theirs: Any = AutoModel.from_pretrained(tmp_path).eval()
        theirs = theirs.get_encoder() if name in WRITERS else theirs
        expected = theirs(input_ids=batch.input_ids).last_hidden_state
        torch.testing.assert_close(expected, states, atol=1e-5, rtol=1e-4)
    assert model.can_generate == (name in (*DECODERS, *WRITERS))
    model.drop_output_layers()
    assert torch.equal(model(batch), states) and len(model.blocks) == model.num_layers
    assert model.architecture == architecture.removesuffix("_decoder")
    assert not model.can_generate or model.is_causal
    wider = {"d_cell": 20} if name == "bilstm" else {"d_ff": 96}
    with pytest.raises(ValueError, match=str(tmp_path)):
        small_model(name, **wider).load(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_a_local_start_is_equal_biases_of_queries_and_keys(name: str) -> None:
    if name not in LOCAL:
        with pytest.raises(ValueError, match="start: local needs rotary positions and biases"):
            small_model(name, start="local")
        return
    usual, local = small_model(name), small_model(name, start="local")
    pairs = [*local.query_key_biases()]
    assert len(pairs) == local.num_layers
    assert all(torch.equal(query, key) for query, key in pairs)
    drawn = torch.cat([query for query, _ in pairs])
    expected = (LOCALITY / (local.d_model // 2) ** 0.5) ** 0.5
    assert float(drawn.detach().std()) == pytest.approx(expected, rel=0.3)
    for key, weight in usual.named_parameters():
        assert "bias" in key or torch.equal(weight, local.get_parameter(key))


# Settings ----------------------------------------------------------------------------------------


def test_omitted_sizes_follow_from_the_width() -> None:
    """Widths of BERT give tiny, mini, medium and base (Turc et al. 2019)."""
    for d_model, num_layers in ((128, 2), (256, 4), (512, 8), (768, 12)):
        with torch.device("meta"):
            model: Any = MODELS.build({"name": "bert", "d_model": d_model}, 100, where="a")
            lstms: Any = MODELS.build({"name": "bilstm", "d_model": d_model}, 100, where="a")
        assert (model.num_layers, model.num_heads) == (num_layers, d_model // 64)
        assert model.config.intermediate_size == 4 * d_model
        assert (lstms.num_layers, lstms.d_cell) == (2, 4 * d_model)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("bert", {"num_heads": 3}, "num_heads"),
        ("bert", {"num_layers": -1}, "num_layers"),
        ("bert", {"d_model": 96, "num_layers": None, "num_heads": 2}, r"num_layers \(1.5"),
        ("bert", {"d_modle": 8}, "unknown 'd_modle'; did you mean 'd_model'"),
        ("bert", {"config": {"hidden_akt": "relu"}}, "config: unknown 'hidden_akt'; did you mean"),
        ("bert", {"config": {"hidden_size": 8}}, "config: unknown 'hidden_size'"),
        ("bert", {"config": {"hidden_act": 3}}, "config: .*hidden_act"),
        ("bilstm", {"d_model": 33}, "d_model 33"),
        ("bilstm", {"d_cell": 15}, "d_cell 15"),
        ("bilstm", {"num_layers": 0}, "num_layers 0"),
    ],
)
def test_settings_that_a_family_lacks_are_refused(name: str, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"^architecture.*{message}"):
        small_model(name, **settings)


def test_design_is_equal_if_only_weights_differ() -> None:
    designs = [small_model("bert", seed=seed).design for seed in (1, 2)]
    assert designs[0] == designs[1]
    designs += [small_model("bert", num_layers=1).design, small_model("llama").design]
    designs += [small_model("bert", config={"hidden_act": "relu"}).design]
    designs += [small_model("bilstm").design, small_model("bilstm", num_layers=1).design]
    assert len({*designs}) == len(designs) - 1


# The LSTMs of a bidirectional language model -----------------------------------------------------

# Two rows of packed documents, the second padded; each document's row, first and last token.
DOCUMENTS = torch.tensor([[1] * 5 + [2] * 1 + [3] * 6, [1] * 3 + [2] * 6 + [PADDING] * 3])
PLACES = [(0, 0, 4), (0, 5, 5), (0, 6, 11), (1, 0, 2), (1, 3, 8)]
WIDTH = DIMENSIONS["d_model"] // 2


@pytest.mark.parametrize("d_cell", [WIDTH, 48])  # without a projection and with one
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_each_document_is_read_from_both_ends_by_torch_s_lstm(d_cell: int) -> None:
    model = small_model("bilstm", d_cell=d_cell, num_layers=3).eval()
    ids = random_ids(2, 12)
    layers = model.layers(batch_of(ids, DOCUMENTS))

    def read_alone(x: torch.Tensor, lstms: Any) -> list[torch.Tensor]:
        """The states of each layer for the embedded tokens of one document."""
        states = [x]
        for number, lstm in enumerate(lstms):
            change, _ = lstm(states[-1])
            states.append(states[-1] + change if number else change)
        return states

    for row, first, last in PLACES:
        x = model.embedding(ids[row, first : last + 1])
        forward = read_alone(x, model.forward_lm)
        backward = [h.flip(0) for h in read_alone(x.flip(0), model.backward_lm)]
        expected = torch.stack([torch.cat(h, dim=-1) for h in zip(forward, backward, strict=True)])
        torch.testing.assert_close(layers[:, row, first : last + 1], expected)


@torch.no_grad()
def test_a_state_is_the_weighted_sum_of_the_layers_and_forget_gates_begin_open() -> None:
    """softmax([0, ln 2, ln 3]) is 1/6, 2/6 and 3/6. The two biases of the gates input, forget, cell
    and output add up to 0, 1, 0 and 0."""
    model, batch = small_model("bilstm").eval(), batch_of(random_ids(2, 12), DOCUMENTS)
    h = model.layers(batch)
    torch.testing.assert_close(model(batch), h.mean(dim=0))
    model.mix.s.copy_(torch.tensor([1.0, 2.0, 3.0]).log())
    model.mix.gamma.fill_(4.0)
    torch.testing.assert_close(model(batch), 4 * (h[0] + 2 * h[1] + 3 * h[2]) / 6)
    lstm, states = model.backward_lm[1], torch.ones(3, WIDTH)
    gates = (lstm.bias_ih_l0 + lstm.bias_hh_l0).unflatten(0, (4, D_CELL))
    assert gates.mean(dim=1).tolist() == [0, 1, 0, 0]
    assert torch.equal(model.unembed(states), states @ model.embedding.weight.T)


# Heads -------------------------------------------------------------------------------------------

STATES = torch.tensor([[[1.0, 1.0], [3.0, 5.0], [9.0, 9.0]], [[2.0, 0.0], [4.0, 2.0], [6.0, 1.0]]])


def test_pooling_leaves_padding_out_and_gather_takes_states_at_positions() -> None:
    documents = torch.tensor([[1, 1, 0], [1, 1, 1]])
    assert pool(STATES, documents, "mean").tolist() == [[2.0, 3.0], [4.0, 1.0]]
    assert pool(STATES, documents, "last").tolist() == [[3.0, 5.0], [6.0, 1.0]]
    assert pool(STATES, documents, "first").tolist() == [[1.0, 1.0], [2.0, 0.0]]
    picked = gather(STATES, torch.tensor([[2, 0], [1, 1]]))
    assert picked.tolist() == [[[9.0, 9.0], [1.0, 1.0]], [[4.0, 2.0], [4.0, 2.0]]]


@pytest.mark.parametrize(("no_answer", "places"), [("first", [0, 0]), ("last", [2, 3])])
def test_start_end_head_scores_spans_by_their_two_ends(no_answer: Any, places: list[int]) -> None:
    candidates = torch.tensor([[False, True, False, False], [False, True, True, True]])
    head = StartEndHead(3, dropout=0.0, no_answer=no_answer)
    initialise_head(head, generator=torch.Generator().manual_seed(5), std=1.0)
    states = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(1))
    rows = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    first_logits, last_logits = head(states, rows, candidates)
    spans = span_scores(first_logits, last_logits, 2)
    assert spans.shape == (2, 4, 2)
    ends = head.linear(states)
    for row, place in enumerate(places):
        for first, last in ((first, first + more) for first in range(4) for more in (0, 1)):
            score = spans[row, first, last - first]
            if last < 4 and candidates[row, first] and candidates[row, last]:
                expected = ends[row, first, 0] + ends[row, last, 1] - ends[row, place].sum()
                torch.testing.assert_close(score, expected)
            else:
                assert score == -torch.inf


# Writing: what is written is what the model's own logits say, one token at a time ----------------

LENGTHS = (9, 4, 1, 7)
FEW = 16  # so few tokens that <eos> is not rare
TINY = 6  # tokens, so few that every text can be tried
IDS = {"start_id": BOS_ID, "eos_id": EOS_ID}


def model_of(name: str, *, vocab_size: int = FEW, seed: int = 3) -> Any:
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
    ids = torch.randint(4, FEW, (len(LENGTHS), width), generator=generator)
    real = torch.arange(width) < torch.tensor(LENGTHS)[:, None]
    batch = Batch(input_ids=ids.masked_fill(~real, 0), document_ids=real.long(), num_targets={})
    return replace(batch, visible=real) if visible else batch


def row_of(batch: Batch, row: int) -> Batch:
    """One row alone, without its padding."""
    ids = batch.input_ids[row][batch.document_ids[row] != PADDING][None]
    seen = None if batch.visible is None else torch.ones_like(ids, dtype=torch.bool)
    return Batch(input_ids=ids, document_ids=torch.ones_like(ids), num_targets={}, visible=seen)


def next_logits(model: Any, row: Batch, text: list[int]) -> torch.Tensor:
    """The logits of each token of a text that follows the input, and of the token after it, by one
    pass as in training."""
    ids = torch.tensor([[BOS_ID, *text]])
    taught = replace(row, decoder_input_ids=ids, decoder_document_ids=torch.ones_like(ids))
    return model.unembed(model.decode(taught))[0]


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "visible"),
    [*((n, False) for n in (*DECODERS, *WRITERS)), *((n, True) for n in DECODERS)],
)
def test_greedy_takes_the_likeliest_token_each_time(name: str, visible: bool) -> None:
    """In a batch as alone, with the input read in both directions as without. Beams of a row in a
    batch write what they write alone."""
    model, batch = model_of(name), inputs(visible=visible)
    beams: dict[str, Any] = {"max_new_tokens": 6, "num_beams": 3, "length_penalty": 0.0, **IDS}
    by_beams = model.generate(batch, **beams)
    for number, text in enumerate(model.generate(batch, max_new_tokens=6, **IDS)):
        row, expected = row_of(batch, number), list[int]()
        while len(expected) < 6:
            token = int(next_logits(model, row, expected)[-1].argmax())
            if token == EOS_ID:
                break
            expected.append(token)
        assert text == expected
        assert model.generate(row, **beams) == [by_beams[number]]
        assert EOS_ID not in by_beams[number]


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@torch.no_grad()
@pytest.mark.parametrize(("name", "length_penalty"), [("llama", 0.0), ("llama", 2.0), ("t5", 1.0)])
def test_with_beams_enough_the_best_of_all_texts_is_found(name: str, length_penalty: float) -> None:
    model, row = model_of(name, vocab_size=TINY, seed=1), row_of(inputs(), 1)
    row = replace(row, input_ids=row.input_ids % TINY)
    others = [token for token in range(TINY) if token != EOS_ID]
    scores = dict[tuple[int, ...], float]()
    for text in (text for n in range(4) for text in itertools.product(others, repeat=n)):
        ended = [*text] if len(text) == 3 else [*text, EOS_ID]  # unless it is cut
        log_probs = next_logits(model, row, ended[:-1]).log_softmax(dim=-1)
        total = float(log_probs.gather(1, torch.tensor(ended)[:, None]).sum())
        scores[text] = total / len(ended) ** length_penalty
    how = {"max_new_tokens": 3, "num_beams": TINY**2, "length_penalty": length_penalty, **IDS}
    (best,) = model.generate(row, **how)
    assert scores[tuple(best)] == pytest.approx(max(scores.values()), abs=1e-4)
