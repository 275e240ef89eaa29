"""Files of public checkpoints: what pins them, and which are refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from stages.text.checkpoints import content_of, refuse_unpinned, refuse_unusable
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
        (lambda folder: (folder / "2_Dense").mkdir(), r"a layer after its model \(2_Dense\)"),
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


@pytest.mark.parametrize(
    ("path", "revision", "message"),
    [("no/such/folder", "a" * 40, "^path: no such folder"), ("a/b", "main", "^revision: must be")],
)
def test_refuse_unpinned_refuses_what_can_move(path: str, revision: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        refuse_unpinned(path, revision)
