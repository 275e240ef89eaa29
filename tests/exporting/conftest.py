"""Runs of random weights, written as pretraining writes them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from stages.core import paths
from stages.core.artifacts import write_json
from stages.core.keys import RunKey
from stages.text import tokenizer as sentencepieces
from stages.training.checkpoint import WEIGHTS, save_weights
from tests.small import VOCAB_SIZE, documents, small_model, small_settings

CHECKPOINT = RunKey("run", 1)
FOLDER = paths.pretrained(CHECKPOINT)
TOKENIZER = "tokenizer.model"


@pytest.fixture(scope="module")
def unigram(tmp_path_factory) -> Path:
    return train("unigram", tmp_path_factory.mktemp("unigram"))


def train(algorithm: str, folder: Path) -> Path:
    lines = [line for document in documents() for line in document]
    path = folder / TOKENIZER
    sentencepieces.train(lines, path, algorithm=algorithm, vocab_size=VOCAB_SIZE, threads=1)
    return path


@pytest.fixture
def write_run(tmp_path, monkeypatch, unigram) -> Callable[..., Any]:
    """Writes data/pretrained/run of a random model, as pretraining does; returns the model.

    Neither this fixture nor its test has a network.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("socket.socket.connect", no_network)

    def write(architecture: str, options: dict[str, Any], *, tokenizer: Path = unigram) -> Any:
        # Large weights: generated text does not repeat itself. Post-norm models have smaller ones.
        std = 0.1 if options.get("norm_position") == "post" else 0.3
        model = perturbed(small_model(architecture, **options), std=std)
        FOLDER.mkdir(parents=True)
        save_weights(model, FOLDER / WEIGHTS)
        (FOLDER / TOKENIZER).write_bytes(tokenizer.read_bytes())
        entry = {"name": architecture, **small_settings(architecture), **options}
        settings = {"model": entry, "training": {"max_tokens": 64}, "parent": "none"}
        about = {"architecture": architecture, "settings": settings, "fingerprint": "f"}
        about["objective"] = "of its own"
        write_json(FOLDER / "run.json", about | {"model": entry, "has_prefix": False})
        return model

    return write


def no_network(*_: Any) -> None:
    raise AssertionError("neither writing nor loading an export may ask the network")


def perturbed(model: Any, *, std: float) -> Any:
    """Adds noise, since biases are 0 and norms are 1 before training."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in model.parameters():
            weight += torch.randn(weight.shape, generator=generator) * std
    return model.eval()
