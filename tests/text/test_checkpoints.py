"""Files of public checkpoints: what pins them, and which are refused."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stages.text.checkpoints import content_of, refuse_unusable
from tests.hub_server import COMMIT, hub
from tests.project import ROOT
from tests.small_hub import checkpoint


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint("bert"), tmp_path / "bert"))


def test_content_of_covers_all_that_is_read_and_nothing_else(mine: Path) -> None:
    contents = [content_of(mine)]
    shards = ("model-00001-of-00002.safetensors", "model.safetensors.index.json")
    templates = ("chat_template.jinja", "additional_chat_templates/a.jinja")
    for name in (*shards, *templates, "config.json", "tokenizer_config.json"):
        (mine / name).parent.mkdir(exist_ok=True)
        (mine / name).write_text("other")
        contents.append(content_of(mine))
    assert len({*contents}) == 7
    (mine / "README.md").write_text("not read")
    assert content_of(mine) == contents[-1]


def test_content_of_is_the_hash_that_studies_pin(tmp_path: Path) -> None:
    """A change of the hash would unpin the checkpoints of all studies."""
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_text(name)
    assert content_of(tmp_path) == "e2bfec0466ec"


@pytest.mark.slow
def test_a_checkpoint_is_downloaded_once_without_pickles(tmp_path: Path) -> None:
    """The client is huggingface_hub's own; it asks a server on this machine."""
    files = {file.name: file.read_bytes() for file in checkpoint("bert").iterdir()}
    others = {"pytorch_model.bin": b"pickle", "onnx/model.onnx": b"graph", "README.md": b"card"}
    load = (
        "from transformers import AutoModel; from stages.text.checkpoints import folder_of; "
        f"print(AutoModel.from_pretrained(folder_of('own/bert', '{COMMIT}')).num_parameters())"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HF_HOME": str(tmp_path)}
    with hub("models", "own/bert", files | others) as (endpoint, sent):
        printed = [
            subprocess.check_output(
                [sys.executable, "-c", load],
                env=environment | {"HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": offline},
            )
            for offline in ("", "1")
        ]
    assert printed[0] == printed[1] and int(printed[0]) > 0
    assert "model.safetensors" in sent and len(sent) == len({*sent})
    assert not {*others} & {*sent}


def move_weights(folder: Path) -> None:
    (folder / "0_Transformer").mkdir()
    (folder / "model.safetensors").rename(folder / "0_Transformer/model.safetensors")


def quantise(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq"}
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), "needs model.safetensors"),
        (lambda folder: (folder / "adapter_config.json").write_text("{}"), "has an adapter"),
        (lambda folder: (folder / "2_Dense").mkdir(), "a layer after its model"),
        (move_weights, "use .*bert/0_Transformer$"),
        (quantise, "has quantised weights"),
    ],
)
def test_refuse_unusable_names_what_is_not_loaded(
    mine: Path, change: Callable[[Path], object], message: str
) -> None:
    refuse_unusable(mine)
    change(mine)
    with pytest.raises(ValueError, match=f"^path: {mine} .*{message}"):
        refuse_unusable(mine)
