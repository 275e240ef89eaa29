"""Public checkpoints: the states, losses and files of transformers, twins, and what is refused."""

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from stages.core.seeding import stream
from stages.models._backbone import MODELS
from stages.models._heads import ModelWithHead
from stages.models.hub import Hub
from stages.objectives._objective import OBJECTIVES
from stages.tasks.classification import Classification
from stages.text.batch import Batch, pad
from stages.text.corpus import encode
from stages.text.packing import Packing
from stages.text.tokenizer import Tokenizer
from tests import small_hub
from tests.small import documents
from tests.small_families import FAMILIES, MAX_POSITIONS, checkpoint
from tests.small_hub import revision_of

pytestmark = pytest.mark.slow

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ON_HUB = {"path": "google-bert/bert-base-uncased", "revision": COMMIT}
LINES = [line for document in documents()[:4] for line in document if line.isascii()][:40]
WITH_LOGITS = ("gpt2", "opt", "gemma3", "granite", "modernbert", "albert")
CLOSE: dict[str, Any] = {"atol": 1e-4, "rtol": 1e-3}


@cache
def tokenizer_of(folder: Path) -> Tokenizer:
    return Tokenizer(folder)


def built(folder: Path, *, seed: int | None = None, **settings: Any) -> Hub:
    """Returns the model of a folder; with a ``seed`` it has weights and the layers that compute
    logits."""
    entry = {"name": "hub", "path": str(folder), "revision": revision_of(folder), **settings}
    model: Any = MODELS.build(entry, tokenizer_of(folder).vocab_size, where="architecture")
    if seed is not None:
        model.add_output_layers()
        model.initialise(generator=torch.Generator().manual_seed(seed))
    return cast(Hub, model)


def published(folder: Path) -> Hub:
    model = built(folder)
    model.initialise(generator=torch.Generator().manual_seed(0))
    return cast(Hub, model.eval())


def reference(folder: Path) -> Any:
    """The model of transformers that gives the states of an input."""
    model: Any = AutoModel.from_pretrained(folder).eval()
    return model.get_encoder() if model.config.is_encoder_decoder else model


def batch_of(*rows: list[int], pad_id: int = 0) -> Batch:
    ones = [np.ones(len(row)) for row in rows]
    ids = pad([np.array(row) for row in rows], pad_id)
    return Batch(input_ids=ids, document_ids=pad(ones, 0), num_targets={})


# States, likelihoods, losses ---------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_states_are_those_of_transformers_whatever_is_padded_or_packed(family: str) -> None:
    folder = checkpoint(family)
    tokenizer, model, alone = tokenizer_of(folder), published(folder), reference(folder)
    assert model.check(path=str(folder), revision=revision_of(folder)) == tokenizer.vocab_size
    assert model.architecture == FAMILIES[family].architecture
    assert (model.d_model, model.num_layers) == (32, 2)
    rows = [tokenizer.wrap(i)[:48] for i in tokenizer.encode(["a class", " ".join(LINES[:3])])]
    expected = [alone(input_ids=torch.tensor([row])).last_hidden_state[0] for row in rows]
    padded = model(batch_of(*rows, pad_id=tokenizer.pad_id))
    ids = torch.tensor([rows[0] + rows[1]])[:, :MAX_POSITIONS]
    numbers = torch.tensor([[1] * len(rows[0]) + [2] * len(rows[1])])[:, :MAX_POSITIONS]
    packed = model(Batch(input_ids=ids, document_ids=numbers, num_targets={}))
    for number, (row, states) in enumerate(zip(rows, expected, strict=True)):
        torch.testing.assert_close(padded[number, : len(row)], states, **CLOSE)
    torch.testing.assert_close(packed[numbers == 1], expected[0], **CLOSE)
    if model.is_causal:  # the second document is cut, which changes none of its states
        second = packed[numbers == 2]
        torch.testing.assert_close(second, expected[1][: len(second)], **CLOSE)


@pytest.mark.parametrize("family", WITH_LOGITS)
@torch.no_grad()
def test_logits_are_those_of_transformers(family: str) -> None:
    folder, batch = checkpoint(family), batch_of([5, 6, 7, 8])
    model = published(folder)
    head = "CausalLM" if model.is_causal else "MaskedLM"
    whole = getattr(transformers, f"AutoModelFor{head}").from_pretrained(folder).eval()
    logits = model.unembed(model(batch))
    torch.testing.assert_close(logits, whole(batch.input_ids).logits, **CLOSE)


@torch.no_grad()
def test_bert_is_told_the_texts_of_a_pair_apart() -> None:
    folder = small_hub.checkpoint("bert")
    task = Classification(["a", "b"], tokenizer_of(folder), 32)
    row = {"id": "1", "text": "a class", "text_pair": "a function", "label": "a"}
    batch = task.collate(task.encode([row]), rngs=[])
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = theirs("a class", "a function", return_tensors="pt")
    assert batch.input_ids.tolist() == inputs["input_ids"].tolist()
    expected = reference(folder)(**inputs).last_hidden_state
    torch.testing.assert_close(published(folder)(batch), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("family", "learnt"),
    [("electra", "mlm"), ("deberta_v3", "mlm"), ("llama3", "causal"), ("t5", "span_corruption")],
)
def test_pretraining_goes_on_and_is_stored_as_a_checkpoint(
    family: str, learnt: str, tmp_path: Path
) -> None:
    folder = checkpoint(family)
    tokenizer, model = tokenizer_of(folder), built(folder, seed=0)
    objective = OBJECTIVES.build({"name": learnt}, tokenizer, 48, where="objective")
    texts = [lines[i : i + 1] for lines in documents()[:8] for i in range(4) if len(lines) > 4]
    packing = Packing(encode(texts, tokenizer), 48, seed=1)
    rngs = [stream(1, "corruption", i) for i in range(4)]
    batch = objective.collate([packing.row(i) for i in range(4)], rngs=rngs)
    headed = ModelWithHead(model, objective.head(model))
    ((_, loss),) = objective.loss(headed, batch).values()
    loss.backward()
    assert all(weight.grad is not None for weight in headed.parameters())
    model.save(tmp_path)
    tokenizer.save_to(tmp_path)
    again = built(tmp_path)
    again.load(tmp_path)
    with torch.no_grad():
        assert torch.equal(again.eval()(batch), model.eval()(batch))


@pytest.mark.parametrize("family", ["modernbert", "t5"])
def test_a_twin_has_the_published_shapes_and_random_weights(family: str) -> None:
    folder = checkpoint(family)
    model, *twins = published(folder), *(built(folder, seed=s, weights="random") for s in (1, 2))
    assert model.design == twins[0].design
    for weights in (model, twins[1]):
        one, other = dict(weights.named_parameters()), dict(twins[0].named_parameters())
        assert {k: w.shape for k, w in one.items()} == {k: w.shape for k, w in other.items()}
        assert not any(torch.equal(one[k], other[k]) for k in one if one[k].dim() == 2)


def test_an_encoder_without_its_head_gets_that_of_its_family() -> None:
    """Logits are products with the token embeddings; the rest of the head depends on the seed."""
    folder = small_hub.checkpoint("sentence_bert")
    assert published(folder).model.get_output_embeddings() is None
    heads = [built(folder, seed=seed) for seed in (1, 2)]
    one, other = (dict(head.named_parameters()) for head in heads)
    differing = {key for key in one if not torch.equal(one[key], other[key])}
    assert differing and all("cls." in key for key in differing)
    assert heads[0].logit_bias is not None


# What is refused ---------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint that a test may change."""
    return Path(shutil.copytree(small_hub.checkpoint("bert"), tmp_path / "bert"))


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_checkpoint_is_pinned_by_its_content_or_the_hash_of_a_commit(folder: Path) -> None:
    revision = revision_of(folder)
    assert Hub.check(path=str(folder), revision=revision) == tokenizer_of(folder).vocab_size
    (folder / "README.md").write_text("is not read")
    assert revision_of(folder) == revision
    model = built(folder)
    edit(folder / "config.json", hidden_dropout_prob=0.0)
    with pytest.raises(ValueError, match=f"^revision: .*{revision_of(folder)}"):
        Hub.check(path=str(folder), revision=revision)
    with pytest.raises(ValueError, match="^revision: the folder's content"):
        model.initialise(generator=torch.Generator())
    assert Hub.check(**ON_HUB) is None
    for name, wrong in (("revision", "main"), ("path", "checkpoints/of/mine")):
        with pytest.raises(ValueError, match=f"^{name}: "):
            Hub.check(**ON_HUB | {name: wrong})
    # A folder that a stage makes, which checks its content.
    assert Hub.check(path="data/checkpoints/none", revision="0" * 12) is None


def lose_a_layer(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    kept = {key: w for key, w in weights.items() if "layer.1.output.dense.weight" not in key}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    "change",
    [
        lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"),
        lambda f: (f / "model.safetensors").write_bytes(b"damaged"),
        lose_a_layer,
        lambda f: edit(f / "config.json", model_type="vit"),
    ],
    ids=["pickle", "damaged", "lost layer", "images"],
)
def test_a_folder_that_cannot_be_used_is_refused(change: Any, folder: Path) -> None:
    change(folder)
    with pytest.raises(ValueError, match="^path: "):
        Hub.check(path=str(folder), revision=revision_of(folder))


@pytest.mark.parametrize(
    ("family", "head", "sizes"),
    [
        ("FNet", "ForMaskedLM", {"hidden_size": 32, "num_hidden_layers": 2}),  # reads padding
        ("XLNet", "LMHeadModel", {"d_model": 32, "n_layer": 2, "n_head": 2}),  # reads both ways
    ],
)
def test_states_that_depend_on_what_follows_are_refused(
    family: str, head: str, sizes: dict, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(vocab_size=504, **sizes)
    getattr(transformers, f"{family}{head}")(config).save_pretrained(tmp_path)
    small_hub.tokenizer_of("Bert").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=f"^path: the states of this '{family.lower()}'"):
        Hub.check(path=str(tmp_path), revision=revision_of(tmp_path))
