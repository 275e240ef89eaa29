"""Public checkpoints: the states of transformers, the tokenizer as it was published."""

import json
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import huggingface_hub.constants
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2Model

from stages.models._backbone import MODELS, Backbone
from stages.models._heads import ModelWithHead, initialise_head
from stages.models._likelihood import log_likelihoods
from stages.models.hub import Hub, num_tokens_of
from stages.tasks.classification import Classification
from stages.tasks.tagging import Tagging
from stages.text.batch import IGNORE_INDEX, Batch, label_places, pad
from stages.text.tokenizer import TaskTokenizer
from stages.training.checkpoint import load_weights, save_weights
from tests import small_hub
from tests.small import documents, without_output_layers
from tests.small_hub import FAMILIES, MAX_POSITIONS, checkpoint, revision_of

pytestmark = pytest.mark.slow

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LINES = [line for document in documents()[:4] for line in document if line.isascii()][:40]
OWN_MARKS = ("bert", "roberta", "distilbert", "bart", "t5")  # GPT-2's tokenizer adds none


def tokenizer_of(folder: Path) -> TaskTokenizer:
    return Hub.tokenizer_of({"path": str(folder), "revision": ""}, folder)


def published(folder: Path) -> Hub:
    settings = {"name": "hub", "path": str(folder), "revision": revision_of(folder)}
    model = MODELS.build(settings, tokenizer_of(folder).vocab_size, where="model")
    model.initialise(generator=torch.Generator())
    return cast(Hub, model.eval())


def reference(folder: Path):
    """The model of transformers that gives the states of an input."""
    model = AutoModel.from_pretrained(folder).eval()
    return model.get_encoder() if model.config.is_encoder_decoder else model


def batch_of(*rows: list[int], pad_id: int = 0) -> Batch:
    arrays = [torch.tensor(row).numpy() for row in rows]
    ones = [torch.ones(len(row)).numpy() for row in rows]
    return Batch(input_ids=pad(arrays, pad_id), document_ids=pad(ones, 0), num_targets={})


@torch.no_grad()
def test_the_likelihood_of_text_is_that_of_transformers() -> None:
    folder = checkpoint("gpt2")
    model = published(folder)
    rows = tokenizer_of(folder).encode(["a class statement", " ".join(LINES[:2])[:100]])
    batch = batch_of(*(row[:-1] for row in rows))
    labels = pad([torch.tensor(row[1:]).numpy() for row in rows], IGNORE_INDEX)
    batch = replace(batch, labels=labels, label_places=label_places(labels))
    likelihoods = log_likelihoods(model, batch)
    alone = AutoModelForCausalLM.from_pretrained(folder).eval()
    for row, value in zip(rows, likelihoods.tolist(), strict=True):
        ids = torch.tensor([row])
        assert value == pytest.approx(
            -float(alone(ids, labels=ids).loss) * (len(row) - 1), rel=1e-4
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_states_are_those_of_transformers_whatever_is_padded(family) -> None:
    """States in a batch are those of a row alone, before and after drop_output_layers."""
    folder = checkpoint(family)
    tokenizer, model, alone = tokenizer_of(folder), published(folder), reference(folder)
    rows = [tokenizer.wrap(ids) for ids in tokenizer.encode(["a class", " ".join(LINES[:3])])]
    batch = batch_of(*(row[:MAX_POSITIONS] for row in rows), pad_id=tokenizer.pad_id)
    whole = model(batch)
    model.drop_output_layers()
    for states in (whole, model(batch)):
        for state, row in zip(states, rows, strict=True):
            row = row[:MAX_POSITIONS]
            expected = alone(input_ids=torch.tensor([row])).last_hidden_state[0]
            torch.testing.assert_close(state[: len(row)], expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_decoder_is_what_sees_no_later_token(family) -> None:
    model = published(checkpoint(family))
    assert model.architecture == FAMILIES[family]
    states = model(batch_of([9, 10, 11, 12], [9, 10, 11, 13]))
    is_decoder = model.architecture == "decoder"
    assert torch.allclose(states[0, :3], states[1, :3], atol=1e-6) == is_decoder
    assert model.is_causal == is_decoder


@pytest.mark.parametrize("family", FAMILIES)
def test_the_longest_row_is_read_and_a_longer_one_is_not(family) -> None:
    model = without_output_layers(published(checkpoint(family)))
    assert model.max_positions == (None if family == "t5" else MAX_POSITIONS)
    assert torch.isfinite(model(batch_of([5] * MAX_POSITIONS))).all()
    if model.max_positions:
        with pytest.raises((IndexError, RuntimeError)):
            model(batch_of([5] * (MAX_POSITIONS + 1)))


@pytest.mark.parametrize("family", FAMILIES)
def test_sizes_are_those_of_transformers_without_a_pooler(family) -> None:
    whole, model = AutoModel.from_pretrained(checkpoint(family)), published(checkpoint(family))
    counted = {n: p.numel() for n, p in whole.named_parameters() if not n.startswith("pooler")}
    assert sum(p.numel() for p in model.parameters()) == sum(counted.values())
    tables = sum(p.numel() for p in model.lookup_tables.parameters())
    assert tables >= whole.get_input_embeddings().weight.numel()
    assert (model.d_model, model.num_layers) == (32, 2)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_run_stores_is_read_by_transformers_and_by_fine_tuning(family, tmp_path) -> None:
    """The artifact of a run is itself a checkpoint in the layout of the hub."""
    folder = checkpoint(family)
    model, tokenizer = published(folder), tokenizer_of(folder)
    for file in tokenizer.files:
        shutil.copyfile(file, tmp_path / file.name)
    save_weights(model, tmp_path / "model.safetensors")

    settings = {"name": "hub", "path": str(tmp_path), "revision": COMMIT}
    again: Backbone = MODELS.build(settings, tokenizer.vocab_size, where="model")
    load_weights(again, tmp_path / "model.safetensors")
    batch = batch_of(*(tokenizer.wrap(ids)[:40] for ids in tokenizer.encode(LINES[:3])))
    assert torch.equal(again.eval()(batch), model(batch))
    assert tokenizer_of(tmp_path).encode(LINES) == tokenizer.encode(LINES)
    row = batch.input_ids[:1, : int(batch.document_ids[0].sum())]
    expected = reference(tmp_path)(input_ids=row).last_hidden_state
    torch.testing.assert_close(model(batch)[:1, : row.shape[1]], expected, atol=1e-5, rtol=1e-4)


def test_a_model_that_came_without_its_output_layer_gives_states_and_writes_nothing(
    tmp_path,
) -> None:
    shutil.copytree(checkpoint("gpt2"), tmp_path, dirs_exist_ok=True)
    whole = GPT2Config.from_pretrained(tmp_path, tie_word_embeddings=False)
    GPT2Model(whole).save_pretrained(tmp_path)
    model, batch = published(tmp_path), batch_of([5, 6, 7])
    torch.testing.assert_close(model(batch), reference(tmp_path)(batch.input_ids)[0])
    assert not model.can_generate and published(checkpoint("gpt2")).can_generate
    assert not published(checkpoint("bert")).can_generate


def test_bert_is_told_the_texts_of_a_pair_apart_and_gpt2_is_not() -> None:
    rows = [{"id": "1", "text": "a class", "text_pair": "a function", "label": "a"}]
    for family in ("bert", "gpt2"):
        folder = checkpoint(family)
        task = Classification(["a", "b"], tokenizer_of(folder), 32)
        batch = task.collate(task.encode(rows), rngs=[])
        theirs = AutoTokenizer.from_pretrained(folder)("a class", "a function", return_tensors="pt")
        states = published(folder)(batch)
        if family == "bert":
            assert batch.input_ids.tolist() == theirs["input_ids"].tolist()
            expected = reference(folder)(**theirs).last_hidden_state
        else:
            expected = reference(folder)(input_ids=batch.input_ids).last_hidden_state
        torch.testing.assert_close(states, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_small_set_is_learnt(family) -> None:
    """The loss falls, and every weight gets a gradient."""
    folder = checkpoint(family)
    task = Tagging(["B", "O"], tokenizer_of(folder), 32, dropout=0.0)
    rows = [
        {"id": str(i), "words": words, "tags": ["B" if len(w) > 3 else "O" for w in words]}
        for i, words in enumerate(line.split()[:8] for line in LINES[:6])
    ]
    backbone = without_output_layers(published(folder))
    model = ModelWithHead(backbone, task.head(backbone))
    initialise_head(model.head, generator=torch.Generator().manual_seed(0))
    batch = task.collate(task.encode(rows), rngs=[])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9)
    losses = []
    for _ in range(25):
        loss = task.loss(model, batch)["tagging"][1]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    unused = [name for name, p in model.named_parameters() if p.grad is None]
    assert unused == []


# Tokenizers


@pytest.mark.parametrize("family", OWN_MARKS)
def test_texts_and_pairs_are_wrapped_as_published(family) -> None:
    ours = tokenizer_of(checkpoint(family))
    theirs = AutoTokenizer.from_pretrained(checkpoint(family))
    ids = ours.encode(LINES)
    for (one, other), (a, b) in zip(pairwise(LINES), pairwise(ids), strict=True):
        assert ours.wrap(a) == theirs(one)["input_ids"]
        assert ours.wrap(a, b) == theirs(one, other)["input_ids"]


def test_gpt2_ends_a_text_with_its_end_of_text() -> None:
    tokenizer = tokenizer_of(checkpoint("gpt2"))
    end = AutoTokenizer.from_pretrained(checkpoint("gpt2")).eos_token_id
    assert tokenizer.wrap([7, 8]) == [7, 8, end]
    assert tokenizer.wrap([7, 8], [9]) == [7, 8, end, 9, end]


@pytest.mark.parametrize("family", FAMILIES)
def test_words_are_the_subwords_of_running_text(family) -> None:
    """Every word, the first included, is encoded as after a blank."""
    tokenizer = tokenizer_of(checkpoint(family))
    rows = [line.split() for line in LINES]
    running = tokenizer.encode([" " + " ".join(words) for words in rows])
    for words, ids, expected in zip(rows, tokenizer.encode_words(rows), running, strict=True):
        assert len(ids) == len(words) and all(ids)
        assert [i for word in ids for i in word] == expected


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("subwords", ["first", "all"])
def test_a_tag_stands_at_the_first_subword_of_its_word(family, subwords) -> None:
    """Words without tokens and a cut row move no tag."""
    tokenizer = tokenizer_of(checkpoint(family))
    task = Tagging(["B", "O"], tokenizer, 24, label_subwords=subwords)
    words = ["Classes", "", "\u200b", "are", *["objects", "of", "their", "own"] * 3]
    tags = ["B", "O", "B", "O", *["B"] * 12]
    (example,) = task.encode([{"id": "1", "words": words, "tags": tags}])
    assert example.word_positions is not None
    assert len(example.tokens) <= 24 and example.tokens[-1] == tokenizer.after[-1]
    ids = [i or [tokenizer.unk_id] for i in tokenizer.encode_words([words])[0]]
    for start, word, tag in zip(example.word_positions, ids, tags, strict=False):
        kept = example.tokens[start : len(example.tokens) - len(tokenizer.after)][: len(word)]
        assert kept.tolist() == word[: len(kept)]
        assert example.labels[start] == ["B", "O"].index(tag)
    last = Tagging(["B", "O"], tokenizer, 24, label_subwords="last")
    (example,) = last.encode([{"id": "1", "words": words, "tags": tags}])
    assert example.word_positions is not None
    assert [example.tokens[at] for at in example.word_positions] == [
        word[-1] for word, _ in zip(ids, example.word_positions, strict=False)
    ]
    (whole,) = Tagging(["B", "O"], tokenizer, 99).encode([{"id": "1", "words": words}])
    assert whole.word_positions is not None and len(whole.word_positions) == len(words)


def test_a_mark_in_a_text_is_text() -> None:
    tokenizer = tokenizer_of(checkpoint("bert"))
    (ids,) = tokenizer.encode(["a [SEP] b"])
    assert not set(ids) & {*tokenizer.before, *tokenizer.after}


# What is refused


def copied(family: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint(family), tmp_path / family))


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_folder_is_pinned_by_its_content(tmp_path) -> None:
    folder = copied("bert", tmp_path)
    revision = revision_of(folder)
    assert Hub.check(path=str(folder), revision=revision) == tokenizer_of(folder).vocab_size
    (folder / "README.md").write_text("is not read")
    assert revision_of(folder) == revision
    edit(folder / "config.json", hidden_dropout_prob=0.0)
    with pytest.raises(ValueError, match=f"^revision: the folder's content is .* not '{revision}'"):
        Hub.check(path=str(folder), revision=revision)


@pytest.mark.parametrize("revision", ["main", "v1.0", "86b5e09", COMMIT[:39], COMMIT.upper()])
def test_on_the_hub_only_the_hash_of_a_commit_pins(revision) -> None:
    with pytest.raises(ValueError, match="^revision: must be the hash of a commit"):
        Hub.check(path="google-bert/bert-base-uncased", revision=revision)
    assert Hub.check(path="google-bert/bert-base-uncased", revision=COMMIT) is None


def test_what_is_neither_a_folder_nor_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="^path: no such folder, nor can it be a name on the hub"):
        Hub.check(path="checkpoints/of/mine", revision=COMMIT)


def remove_weights(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def cut_weights(folder: Path) -> None:
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:-100])


def lose_a_shard(folder: Path) -> None:
    index = {
        "weight_map": {"embeddings.word_embeddings.weight": "model-00002-of-00002.safetensors"}
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def remove_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def make_slow(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps({"a</w>": 0, "<unk>": 1}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    edit(folder / "tokenizer_config.json", tokenizer_class="CTRLTokenizer")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (remove_weights, "has only pytorch_model.bin, a pickle; it needs model.safetensors"),
        (lambda f: (f / "model.safetensors").unlink(), "has no weights"),
        (cut_weights, "model.safetensors is damaged"),
        (lose_a_shard, "lacks model-00002-of-00002.safetensors"),
        (remove_tokenizer, "has no tokenizer"),
        (make_slow, "has no fast form"),
        (lambda f: edit(f / "config.json", model_type="brt"), "is no model of transformers: .*brt"),
        (lambda f: edit(f / "config.json", model_type="vit"), "a 'vit' .* is not a language model"),
        (lambda f: (f / "config.json").unlink(), "is no model of transformers"),
        (
            lambda f: edit(
                f / "config.json", model_type="mine", auto_map={"AutoConfig": "code.Mine"}
            ),
            "has code of its own, config.json .auto_map.",
        ),
        (
            lambda f: edit(f / "tokenizer_config.json", auto_map={"AutoTokenizer": ["code.Mine"]}),
            "has code of its own, tokenizer_config.json",
        ),
        (lambda f: (f / "modeling_mine.py").write_text("1 / 0"), "code of its own, modeling_mine"),
    ],
    ids=[
        *("pickle", "no weights", "cut weights", "lost shard", "no tokenizer", "slow", "unknown"),
        *("images", "no config", "code", "code of the tokenizer", "code beside"),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused(change, message, tmp_path) -> None:
    folder = copied("bert", tmp_path)
    change(folder)
    with pytest.raises(ValueError, match=f"^path: .*{message}"):
        Hub.check(path=str(folder), revision=COMMIT)


SMALL: dict[str, Any] = {
    "vocab_size": 504,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
}
XLNET = {"vocab_size": 504, "d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 48}


@pytest.mark.parametrize(
    ("family", "settings", "message"),
    [
        ("FNet", {k: v for k, v in SMALL.items() if "heads" not in k}, "does not mask padding"),
        ("ConvBert", SMALL, "does not mask padding"),
        ("XLNet", XLNET, "its states depend on later tokens"),
        ("Longformer", SMALL | {"attention_window": 16}, None),
        ("Mamba", {k: SMALL[k] for k in [*SMALL][:3]}, None),
    ],
)
def test_num_tokens_of_refuses_states_that_depend_on_what_follows(
    family: str, settings: dict[str, Any], message: str | None, tmp_path: Path
) -> None:
    head = {"XLNet": "LMHeadModel", "Mamba": "ForCausalLM"}.get(family, "ForMaskedLM")
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**settings)
    getattr(transformers, f"{family}{head}")(config).save_pretrained(tmp_path)
    small_hub.tokenizer_of("Bert").save_pretrained(tmp_path)
    if message is None:
        assert num_tokens_of(tmp_path) == 500
        return
    with pytest.raises(ValueError, match=f"^path: a '{family.lower()}' .*{message}"):
        num_tokens_of(tmp_path)


def test_weights_that_are_not_all_there_are_refused(tmp_path) -> None:
    folder = copied("bert", tmp_path)
    weights = load_file(folder / "model.safetensors")
    lacking = {key: w for key, w in weights.items() if "layer.1.output.dense.weight" not in key}
    save_file(lacking, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="lack encoder.layer.1.output.dense.weight"):
        Hub.check(path=str(folder), revision=COMMIT)
    (folder / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(ValueError, match="^path: .*model.safetensors is damaged"):
        Hub.check(path=str(folder), revision=COMMIT)


def test_the_old_names_of_berts_weights_are_known(tmp_path) -> None:
    """google-bert/bert-base-uncased has LayerNorm.gamma and .beta."""
    folder = copied("bert", tmp_path)
    weights = {
        key.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): weight
        for key, weight in load_file(folder / "model.safetensors").items()
    }
    assert any("gamma" in key for key in weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    batch = batch_of([5, 6, 7])
    assert torch.equal(published(folder)(batch), published(checkpoint("bert"))(batch))


def test_the_cache_of_the_hub_is_used_without_a_network(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    snapshots = tmp_path / "models--someone--small-bert" / "snapshots"
    shutil.copytree(checkpoint("bert"), snapshots / COMMIT)
    settings = {"name": "hub", "path": "someone/small-bert", "revision": COMMIT}
    tokenizer = Hub.tokenizer_of(settings, tmp_path)
    model = MODELS.build(settings, tokenizer.vocab_size, where="model")
    model.initialise(generator=torch.Generator())
    batch = batch_of([5, 6, 7])
    assert torch.equal(model.eval()(batch), published(checkpoint("bert"))(batch))

    other = {**settings, "revision": COMMIT[::-1]}
    with pytest.raises(ValueError, match=f"^path: someone/small-bert at revision {COMMIT[::-1]}"):
        Hub.tokenizer_of(other, tmp_path)


@pytest.mark.parametrize("family", FAMILIES)
def test_offsets_of_tokens_count_in_the_text_as_it_was_given(family) -> None:
    tokenizer = tokenizer_of(checkpoint(family))
    texts = [*LINES, "  The caf\u00e9, ﬁne ", ""]
    encodings = tokenizer.encode_with_offsets(texts)
    assert [ids for ids, _ in encodings] == tokenizer.encode(texts)
    for text, (ids, offsets) in zip(texts, encodings, strict=True):
        assert len(ids) == len(offsets)
        parts = [text[begin:end] for begin, end in offsets]
        assert parts == [part.strip() for part in parts]
        covered = {place for begin, end in offsets for place in range(begin, end)}
        assert covered == {i for i, letter in enumerate(text) if not letter.isspace()}
