"""Checkpoint folders that are hostile or damaged are refused within seconds, with their path, and
none of their code runs."""

import json
import math
import os
import shutil
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Mamba2Config

from stages import train_tokenizer
from stages.core import params
from stages.core.plans import TokenizerPlan
from stages.models.hub import Hub
from stages.text import published, untrusted
from stages.text.published import PublishedTokenizer, config_of
from stages.text.published_files import content_of
from stages.text.untrusted import TOKENS_MAP
from tests.small import small_tokenizer
from tests.small_hub import checkpoint

pytestmark = pytest.mark.slow


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint("bert"), tmp_path / "mine"))


def check(folder: Path) -> int | None:
    return Hub.check(path=str(folder), revision=content_of(folder))


def edit(name: str, **changes: object) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        file = folder / name
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return change


def write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def sharded(shard: str) -> Callable[[Path], object]:
    """Moves the weights to ``shard``, which the index lists."""

    def change(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").rename(folder / shard)
        index = {"metadata": {}, "weight_map": dict.fromkeys(weights, shard)}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    return change


def linked(name: str, target: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(target)

    return change


def in_tokenizer(**changes: object) -> Callable[[Path], object]:
    """Changes rules of the tokenizer, and its class to one that keeps them."""

    def change(folder: Path) -> None:
        edit("tokenizer.json", **changes)(folder)
        edit(ITS_CONFIG, tokenizer_class="TokenizersBackend")(folder)

    return change


def sequence(rules: Sequence[Mapping[str, object]]) -> dict[str, object]:
    return {"type": "Sequence", "normalizers": rules, "decoders": rules}


def replacing(pattern: str | dict[str, str], times: int) -> Callable[[Path], object]:
    """Adds ``times`` rules that replace a pattern by two letters."""
    replaced = {"String": pattern} if isinstance(pattern, str) else pattern
    rule = {"type": "Replace", "pattern": replaced, "content": "qq"}
    return in_tokenizer(normalizer=sequence([rule] * times))


def fifo(folder: Path) -> None:
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")


def with_weights(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Path], object]:
    """Changes the weights of the first layer's first matrix."""

    def apply(folder: Path) -> None:
        file = folder / "model.safetensors"
        weights = load_file(file)
        weights |= {key: change(w) for key, w in weights.items() if key.endswith(QUERY)}
        save_file(weights, file, metadata={"format": "pt"})

    return apply


QUERY = "layer.0.attention.self.query.weight"
WITH_NAN = with_weights(lambda weight: weight.clone().fill_diagonal_(torch.nan))
COMPLEX = with_weights(lambda weight: torch.complex(weight, weight).fill_(torch.nan))
HUGE = with_weights(lambda weight: weight.clone().fill_diagonal_(3e38))
NARROWER = with_weights(lambda weight: weight[:, :16].clone())
RENAMED = {"attribute_map": {"zz": "_attn_implementation_internal"}, "zz": "evil/kernel"}
RENAMED_KERNEL = edit("config.json", **RENAMED)
TAGGED = {"__float__": "NaN"}  # as transformers writes NaN
DOUBLED = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
SLOW_PATTERN = {
    "type": "Split",
    "pattern": {"Regex": r"(?:(?:[a-z]+\s?)+)+\d"},
    "behavior": "Isolated",
    "invert": False,
}
OVERFLOW = json.dumps({"a": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 64]}})
OVERFLOWING = struct.pack("<Q", len(OVERFLOW)) + OVERFLOW.encode() + bytes(64)
DEEP = b"[" * 100_000 + b"]" * 100_000
CONFIG, ITS_CONFIG = "config.json", "tokenizer_config.json"


def test_content_of_covers_all_weights_that_are_loaded(mine: Path) -> None:
    sharded("model-00001-of-00001.safetensors")(mine)
    revision = content_of(mine)
    assert Hub.check(path=str(mine), revision=revision)
    with_first = load_file(mine / "model-00001-of-00001.safetensors")
    changed = {key: 100 * weight for key, weight in with_first.items()}
    save_file(changed, mine / "model-00001-of-00001.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="^revision: the folder's content is"):
        Hub.check(path=str(mine), revision=revision)


@pytest.mark.parametrize(
    "shard", ["weights.safetensors", "../outside.safetensors", "model.bin", "/etc/passwd", "a/b", 1]
)
def test_weight_files_are_safetensors_of_the_folder(mine: Path, shard: str | int) -> None:
    index = {"weight_map": {"a": shard}}
    (mine / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"^path: .*index\.json lists .*; weights must be"):
        check(mine)


def test_published_opens_no_file_that_the_hash_does_not_cover(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither other weights that a configuration names nor pickles are opened."""
    for name in ("pytorch_model.bin", "training_args.bin", "adapter_model.bin"):
        (mine / name).write_bytes(b"\x80\x04cos\nsystem\n")
    (mine / "adapter_config.json").write_text('{"base_model_name_or_path": "/elsewhere"}')
    (mine / "generation_config.json").write_text("{]")
    monkeypatch.setattr(torch, "load", lambda *args, **kwargs: pytest.fail("a pickle is opened"))
    assert check(mine)


@pytest.mark.parametrize(
    "name",
    [
        "tekken.json",
        "entity_vocab.json",
        "chat_template.jinja",
        "additional_chat_templates/a.jinja",
    ],
)
def test_content_of_covers_all_that_a_tokenizer_reads(mine: Path, name: str) -> None:
    (mine / name).parent.mkdir(exist_ok=True)
    contents = {content_of(mine)}
    for text in ("{}", "[]"):
        (mine / name).write_text(text)
        contents.add(content_of(mine))
    assert len(contents) == 3


def test_a_tokenizer_alone_reads_no_file_elsewhere(mine: Path) -> None:
    """The class names no file of sentencepiece, so the settings could name any."""
    (elsewhere,) = small_tokenizer().files
    edit(ITS_CONFIG, tokenizer_class="XGLMTokenizer", vocab_file=str(elsewhere))(mine)
    (mine / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match="^path: .* has no tokenizer"):
        PublishedTokenizer(mine)
    edit(ITS_CONFIG, fast_tokenizer_files=["../tokenizer.4.0.0.json"])(mine)
    with pytest.raises(ValueError, match="^path: .*may name other files .fast_tokenizer_files"):
        PublishedTokenizer(mine)


def test_a_tokenizer_alone_is_refused_as_with_its_model(mine: Path) -> None:
    replacing("q", 22)(mine)
    pinned = {"path": str(mine), "revision": content_of(mine)}
    settings = params.PublishedTokenizer(corpus="none", algorithm="hub", **pinned)
    plan = TokenizerPlan.model_construct(tokenizer=settings)
    with pytest.raises(ValueError, match="^tokenizers.own.path: the tokenizer of .* makes 4,194,3"):
        train_tokenizer.main(plan, "own")


def test_a_text_for_which_a_pattern_takes_too_long_is_a_fault_of_the_tokenizer(mine: Path) -> None:
    in_tokenizer(pre_tokenizer=SLOW_PATTERN)(mine)
    tokenizer = PublishedTokenizer(mine)
    assert tokenizer.encode(["a b 1"])
    with pytest.raises(ValueError, match="^path: the tokenizer of .*mine fails: Onig: Regex sea"):
        tokenizer.encode(["an ordinary sentence without any number is enough"])


@pytest.mark.parametrize("target", ["/dev/zero", "/etc/passwd", "../outside.json"])
@pytest.mark.parametrize("name", [CONFIG, "model.safetensors", "tokenizer.json"])
def test_read_files_refuses_links_that_leave_the_folder(mine: Path, name: str, target: str) -> None:
    (mine.parent / "outside.json").write_text("{}")
    linked(name, target)(mine)
    with pytest.raises(ValueError, match=rf"^path: .*{name} is a link to"):
        content_of(mine)


def test_read_files_follows_the_links_of_the_hubs_cache(tmp_path: Path) -> None:
    blobs, commit = tmp_path / "blobs", tmp_path / "snapshots/0123"
    shutil.copytree(checkpoint("bert"), blobs)
    commit.mkdir(parents=True)
    for file in blobs.iterdir():
        (commit / file.name).symlink_to(f"../../blobs/{file.name}")
    assert content_of(commit) == content_of(blobs) and check(commit)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edit(CONFIG, _attn_implementation="evil/kernel"), "code of its own, config.json"),
        (edit(CONFIG, attn_implementation="evil/kernel"), "code of its own, config.json"),
        (edit(CONFIG, text_config={"_experts_implementation": "a/b"}), "code of its own"),
        (edit(CONFIG, custom_pipelines={"a": {"impl": "evil.E"}}), "config.json .custom_pipelines"),
        (edit(CONFIG, trust_remote_code=True), "config.json .trust_remote_code"),
        (edit(CONFIG, use_kernels=True), "config.json .use_kernels"),
        (edit(CONFIG, transformers_weights="other.safetensors"), "transformers_weights"),
        (edit(CONFIG, quantization_config={"quant_method": "../x"}), "quantization_config"),
        (edit(ITS_CONFIG, auto_map={"AutoTokenizer": ["e.E"]}), "tokenizer_config"),
        (RENAMED_KERNEL, "code of its own, config.json .attribute_map"),
        (edit(CONFIG, save_pretrained="x"), "code of its own, config.json .save_pretrained"),
        (edit(CONFIG, configuration_files=["config.4.0.0.json"]), "config.json may name other"),
        (edit(ITS_CONFIG, fast_tokenizer_files=["../tokenizer.4.0.0.json"]), "may name other"),
        (edit(ITS_CONFIG, gguf_file="../tokenizer.gguf"), "may name other files .gguf_file"),
        (edit(ITS_CONFIG, init_inputs=["/elsewhere/vocab.txt"]), "may name other files .init_in"),
        (edit(ITS_CONFIG, vocab="/elsewhere/vocab.txt"), "may name other files .vocab"),
        (write(TOKENS_MAP, b'{"tokenizer_file": "../t.json"}'), f"{TOKENS_MAP} may name other"),
        (write(CONFIG, b"null"), "config.json must be a JSON object"),
        (write(CONFIG, DEEP), "config.json is nested too deeply"),
        (write(CONFIG, b'{"model_type": "bert", "x": "\xe9"}'), "config.json cannot be read"),
        (edit(CONFIG, num_attention_heads=0), "config.json describes no model"),
        (edit(CONFIG, hidden_act="nope"), "config.json describes no model"),
        (edit(CONFIG, hidden_size=-16), "config.json describes no model"),
        (edit(CONFIG, hidden_size=10**9), "config.json describes "),
        (edit(CONFIG, vocab_size=10**12), "config.json describes "),
        (edit(CONFIG, max_position_embeddings=10**12), "config.json describes "),
        (edit(CONFIG, num_hidden_layers=10**9), "config.json has 1000000000 layers"),
        (edit(CONFIG, num_hidden_layers=10**6), "config.json has 1000000 layers"),
        (edit(CONFIG, num_hidden_layers="x"), "num_hidden_layers"),
        (edit(CONFIG, num_hidden_layers=-1), "num_hidden_layers must not be negative, not -1"),
        (edit(CONFIG, attention_probs_dropout_prob=math.nan), "attention_probs_.* must be finite"),
        (edit(CONFIG, hidden_dropout_prob=TAGGED), "hidden_dropout_prob must be finite, not nan"),
        (edit(CONFIG, hidden_dropout_prob=2.0), "must be at least 0 and less than 1, not 2.0"),
        (edit(CONFIG, classifier_dropout=-0.5), "must be at least 0 and less than 1, not -0.5"),
        (edit(CONFIG, layer_norm_eps=math.inf), "layer_norm_eps must be finite, not inf"),
        (edit(CONFIG, rope_scaling={"factor": math.nan}), "factor must be finite, not nan"),
        (edit(CONFIG, initializer_range=-1.0), "initializer_range must not be negative"),
        (fifo, "config.json is no regular file"),
        (write("model.safetensors.index.json", b"{"), "index.json cannot be read"),
        (write("model.safetensors.index.json", b'{"weight_map": [1]}'), "it has no weight_map"),
        (write("model.safetensors", OVERFLOWING), "model.safetensors is damaged"),
        (write("tokenizer.json", b'{"a":' * 200_000), "tokenizer"),
        (replacing("q", 22), "tokenizer of .* makes 4,194,304 characters or tokens of a character"),
        (replacing({"Regex": "q.z"}, 22), "makes 4,194,304 characters or tokens of a char"),
        (replacing({"Regex": "(?=q)"}, 22), "makes .* characters or tokens of a char"),
        (in_tokenizer(normalizer=sequence([{"type": "ByteLevel"}] * 16)), "makes .* of 64 char"),
        (in_tokenizer(decoder=sequence([DOUBLED] * 22)), "makes 4,194,304 characters"),
        (in_tokenizer(normalizer={"type": "Prepend", "prepend": "a" * 10**6}), "makes 1,000,064"),
        (in_tokenizer(pre_tokenizer=SLOW_PATTERN), "tokenizer of .* fails: Onig: Regex search"),
        (WITH_NAN, f"{QUERY} has NaN or infinite values"),
        (COMPLEX, f"{QUERY} has numbers of torch.complex64"),
        (HUGE, f"{QUERY} has numbers beyond 1e.18"),
        (edit(CONFIG, layer_norm_eps=-1.0), "states of this 'bert' have NaN or infinite values"),
        (NARROWER, rf"{QUERY} has the shape \[32, 16\], but config.json describes \[32, 32\]"),
    ],
)
def test_check_refuses_a_hostile_folder(
    mine: Path, change: Callable[[Path], object], message: str
) -> None:
    change(mine)
    with pytest.raises(ValueError, match=rf"^path: .*{message}"):
        Hub.check(path=str(mine), revision="0" * 12)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        (RENAMED, "_attn_implementation_internal"),
        ({"_attn_implementation": "evil/kernel"}, "_attn_implementation_internal"),
        ({"_experts_implementation": "evil/kernel"}, "_experts_implementation_internal"),
        ({"quantization_config": {"quant_method": "x"}}, "quantization_config"),
    ],
)
def test_config_of_refuses_code_by_whatever_setting(
    mine: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], name: str
) -> None:
    """Code is refused even if the check of the file itself lets it through."""
    monkeypatch.setattr(published, "refuse_code", lambda folder: None)
    edit(CONFIG, **changes)(mine)
    with pytest.raises(ValueError, match=rf"code of its own, config.json .{name}"):
        config_of(mine)


def test_config_of_takes_settings_that_are_infinite_where_published(
    tmp_path: Path,
) -> None:
    Mamba2Config(num_heads=2, hidden_size=8, head_dim=8).save_pretrained(tmp_path)
    assert math.inf in config_of(tmp_path).time_step_limit


def test_check_runs_the_model_as_in_training(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrusted, "_refuse_number", lambda *setting: None)
    edit(CONFIG, attention_probs_dropout_prob=math.nan)(mine)
    with pytest.raises(ValueError, match="^path: a 'bert' cannot read a text: .*dropout"):
        check(mine)


def test_check_ends_after_a_while(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrusted, "CHECKED_WITHIN_S", 0.01)
    monkeypatch.setattr(untrusted, "BYTES_PER_S", 2**60)
    with pytest.raises(ValueError, match="^path: reading .*mine took more than 0 s"):
        check(mine)
