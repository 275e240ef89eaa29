"""Models of transformers, built from random weights: what each token sees, weights and files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel

from stages.core.seeding import stream
from stages.models._backbone import MODELS
from stages.models._heads import ModelWithHead
from stages.models._transformer import LOCALITY, Transformer
from stages.objectives._objective import OBJECTIVES
from stages.text.batch import PADDING, Batch
from stages.text.packing import Packing
from tests.small import (
    FAMILIES,
    VOCAB_SIZE,
    small_corpus,
    small_entry,
    small_model,
    small_tokenizer,
)

NAMES = [name for name in FAMILIES if name != "bilstm"]
LOCAL = ("modernbert", "llama", "phi")  # rotary, with biases of queries and keys
LEARNT = {"encoder": "mlm", "decoder": "causal", "encoder_decoder": "denoising"}


class Qwen3(Transformer):
    family = "qwen3"
    defaults = {"head_dim": 16, "tie_word_embeddings": True}


class Electra(Transformer):
    """The generator, whose embeddings are narrower than its states."""

    family = "electra"
    defaults = {"embedding_size": 16, "hidden_dropout_prob": 0.0}


FURTHER = {"qwen3": Qwen3, "electra": Electra}
EVERY = [*NAMES, *FURTHER]


def model_of(name: str, *, seed: int = 1, **settings: Any) -> Any:
    if name not in FURTHER:
        return small_model(name, seed=seed, **settings)
    sizes = {key: value for key, value in small_entry("bert").items() if key != "name"}
    model: Any = FURTHER[name](VOCAB_SIZE, **sizes, **settings)
    model.initialise(generator=torch.Generator().manual_seed(seed))
    return model


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


# What a token sees ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
@torch.no_grad()
def test_two_packed_documents_before_padding_have_the_states_of_two_rows(name: str) -> None:
    model = model_of(name).eval()
    ids, targets = random_ids(1, 17), random_ids(1, 9, seed=1)
    documents = torch.tensor([[1] * 6 + [2] * 8 + [PADDING] * 3])
    of_targets = torch.tensor([[1] * 3 + [2] * 4 + [PADDING] * 2])
    written = {"decoder_input_ids": targets, "decoder_document_ids": of_targets}
    packed = batch_of(ids, documents, **written)
    assert model(packed).isfinite().all()
    for document in (1, 2):
        here, decoded = documents == document, of_targets == document
        row = targets[decoded][None]
        written = {"decoder_input_ids": row, "decoder_document_ids": torch.ones_like(row)}
        alone = batch_of(ids[here][None], **written)
        torch.testing.assert_close(model(packed)[here], model(alone)[0], atol=1e-5, rtol=1e-4)
        if model.architecture == "encoder_decoder":
            states, expected = model.decode(packed)[decoded], model.decode(alone)[0]
            torch.testing.assert_close(states, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", EVERY)
@torch.no_grad()
def test_a_decoder_sees_no_later_token_and_an_encoder_sees_all(name: str) -> None:
    model, ids = model_of(name).eval(), random_ids(1, 12)
    difference = (model(batch_of(ids)) - model(batch_of(changed_at(ids, 7)))).abs().amax(-1)[0]
    assert ((difference > 0) == (torch.arange(12) >= 7 * model.is_causal)).all()


@pytest.mark.parametrize("name", [n for n in EVERY if model_of(n).architecture == "decoder"])
@pytest.mark.parametrize("place", [1, 12])
@torch.no_grad()
def test_a_prefix_is_read_in_both_directions(name: str, place: int) -> None:
    """A token of a prefix changes all states of its document, any other its own and later ones."""
    model, ids = model_of(name).eval(), random_ids(1, 14)
    documents = torch.tensor([[1] * 6 + [2] * 8])
    visible = torch.tensor([[True] * 3 + [False] * 3 + [True] * 4 + [False] * 4])
    before, after = (
        model(replace(batch_of(each, documents), visible=visible))
        for each in (ids, changed_at(ids, place))
    )
    end, begin = (6, 0) if place < 6 else (14, 6)
    first = begin if visible[0, place] else place
    differs = ((before - after).abs().amax(dim=-1) > 0)[0].tolist()
    assert differs == [first <= at < end for at in range(14)]


@pytest.mark.parametrize("name", ["t5", "bart"])
@torch.no_grad()
def test_a_decoder_beside_an_encoder_sees_all_of_the_input_and_its_own_past(name: str) -> None:
    model, ids, targets = model_of(name).eval(), random_ids(1, 10), random_ids(1, 6, seed=1)
    ones = torch.ones_like(targets)
    before, later, other = (
        model.decode(batch_of(x, decoder_input_ids=y, decoder_document_ids=ones))
        for x, y in ((ids, targets), (ids, changed_at(targets, 4)), (changed_at(ids, 9), targets))
    )
    assert torch.equal(before[:, :4], later[:, :4])
    assert ((before - other).abs().amax(dim=-1) > 0).all()


@pytest.mark.parametrize("name", EVERY)
@torch.no_grad()
def test_short_rows_in_bfloat16_agree_with_float32(name: str) -> None:
    """The explicit products of short rows in bfloat16 are the attention of torch's kernel."""
    model, ids = model_of(name).eval(), random_ids(2, 12)
    batch = batch_of(ids, torch.tensor([[1] * 5 + [2] * 7, [1] * 10 + [PADDING] * 2]))
    exact = model(batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(batch)
    real = batch.document_ids != PADDING
    assert (exact - rough)[real].abs().max() < 0.1 * exact[real].abs().max()


@pytest.mark.parametrize("name", EVERY)
@torch.no_grad()
def test_states_before_and_after_drop_output_layers_are_equal(name: str) -> None:
    model, batch = model_of(name).eval(), batch_of(random_ids(2, 9))
    before, architecture = model(batch), model.architecture
    model.drop_output_layers()
    assert torch.equal(model(batch), before)
    assert not model.can_generate or model.is_causal
    assert model.architecture == architecture.removesuffix("_decoder")
    assert len(model.blocks) == model.num_layers


# Weights -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
def test_weights_are_a_function_of_the_seed(name: str) -> None:
    one, same, other = (dict(model_of(name, seed=s).named_parameters()) for s in (1, 1, 2))
    assert all(torch.equal(one[key], same[key]) for key in one)
    matrices = [key for key in one if one[key].dim() == 2]
    assert not any(torch.equal(one[key], other[key]) for key in matrices)


@pytest.mark.parametrize("name", NAMES)
def test_a_local_start_is_equal_biases_of_queries_and_keys(name: str) -> None:
    if name not in LOCAL:
        with pytest.raises(ValueError, match="start: local needs rotary positions and biases"):
            model_of(name, start="local")
        return
    usual, local = model_of(name), model_of(name, start="local")
    pairs = [*local.query_key_biases()]
    assert len(pairs) == local.num_layers
    assert all(torch.equal(query, key) for query, key in pairs)
    drawn = torch.cat([query for query, _ in pairs])
    expected = (LOCALITY / (local.d_model // 2) ** 0.5) ** 0.5
    assert float(drawn.detach().std()) == pytest.approx(expected, rel=0.3)
    differing = [
        key
        for key, weight in usual.named_parameters()
        if not torch.equal(weight, local.get_parameter(key))
    ]
    assert all("bias" in key for key in differing)


@pytest.mark.parametrize("name", EVERY)
@torch.no_grad()
def test_a_saved_model_is_loaded_and_read_by_transformers(name: str, tmp_path: Path) -> None:
    model, batch = model_of(name).eval(), batch_of(random_ids(2, 9))
    model.save(tmp_path)
    again = model_of(name, seed=2)
    again.load(tmp_path)
    assert torch.equal(again.eval()(batch), model(batch))
    assert torch.equal(again.unembed(again(batch)), model.unembed(model(batch)))
    theirs: Any = AutoModel.from_pretrained(tmp_path).eval()
    theirs = theirs.get_encoder() if model.architecture == "encoder_decoder" else theirs
    states = theirs(input_ids=batch.input_ids).last_hidden_state
    torch.testing.assert_close(states, model(batch), atol=1e-5, rtol=1e-4)


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    model_of("bert").save(tmp_path)
    with pytest.raises(ValueError, match="^path: the weights of "):
        model_of("bert", d_ff=96).load(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_a_batch_is_learnt_by_heart(name: str) -> None:
    """Every weight gets a gradient."""
    model, tokenizer = model_of(name), small_tokenizer()
    objective = OBJECTIVES.build({"name": LEARNT[model.architecture]}, tokenizer, 32, where="o")
    packing = Packing(small_corpus(), 32, seed=1)
    rngs = [stream(1, "corruption", i) for i in range(4)]
    batch = objective.collate([packing.row(i) for i in range(4)], rngs=rngs)
    headed, losses = ModelWithHead(model, objective.head(model)), list[float]()
    optimizer = torch.optim.Adam(headed.parameters(), lr=3e-3)
    for _ in range(25):
        ((_, loss),) = objective.loss(headed, batch).values()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]
    unused = [key for key, weight in headed.named_parameters() if weight.grad is None]
    assert not [key for key in unused if "token_type" not in key]
    assert model.can_generate == (model.architecture != "encoder")


# Settings ------------------------------------------------------------------------------------


def test_omitted_sizes_follow_from_the_width() -> None:
    """Widths of BERT give tiny, mini, medium and base (Turc et al. 2019)."""
    for d_model, num_layers in ((128, 2), (256, 4), (512, 8), (768, 12)):
        with torch.device("meta"):
            model: Any = MODELS.build({"name": "bert", "d_model": d_model}, 100, where="a")
        assert (model.num_layers, model.num_heads) == (num_layers, d_model // 64)
        assert model.config.intermediate_size == 4 * d_model


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_heads": 3}, "num_heads"),
        ({"num_layers": -1}, "num_layers"),
        ({"d_modle": 8}, "unknown 'd_modle'; did you mean 'd_model'"),
        ({"config": {"hidden_akt": "relu"}}, "config: unknown 'hidden_akt'; did you mean 'hidden"),
        ({"config": {"hidden_size": 8}}, "config: unknown 'hidden_size'"),
        ({"config": {"hidden_act": 3}}, "config: .*hidden_act"),
    ],
)
def test_settings_that_a_family_lacks_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"^architecture.*{message}"):
        small_model("bert", **settings)


def test_design_is_equal_if_only_weights_differ() -> None:
    assert model_of("bert", seed=1).design == model_of("bert", seed=2).design
    others: list[dict[str, Any]] = [{"num_layers": 1}, {"config": {"hidden_act": "relu"}}]
    for settings in others:
        assert model_of("bert").design != model_of("bert", **settings).design
    assert model_of("phi").design != model_of("llama").design
