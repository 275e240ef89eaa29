"""How well a run predicts the texts of a task by its own objective."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from stages.core.artifacts import read_json, read_jsonl, write_json
from stages.core.params import Params
from stages.text.batch import Batch
from stages.training.device import resolve
from stages.trials.setup import TrialSetup
from stages.trials.text_bits import text_bits
from tests.small import small_tokenizer
from tests.small_study import SCRATCH, write_pair

TEXTS = Path("data/tasks/section/examples/test.jsonl")


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """An encoder and a decoder with random weights."""
    monkeypatch.chdir(tmp_path)
    return write_pair(tmp_path)


def bits_of(params: Params, run: str, objective: dict[str, Any], **training: int) -> Any:
    """Of a run whose record says that it was pretrained with this objective."""
    path = Path("data/pretrained", run, "run.json")
    record = read_json(path)
    record["settings"]["objective"] = objective
    record["settings"]["training"] |= training
    record["objective"] = objective["name"]
    write_json(path, record)
    setup = TrialSetup(run, "section", max_tokens=64)
    return text_bits(setup, resolve(params.compute, threads=1))


def test_those_of_a_causal_model_are_the_likelihood_of_each_text(params: Params) -> None:
    """A text alone in its row, its probabilities multiplied one by one, in float64."""
    tokenizer = small_tokenizer()
    texts = [row["text"] for row in read_jsonl(TEXTS)]
    ids = [[*tokenizer.before, *i, *tokenizer.after] for i in tokenizer.encode(texts)]
    found = bits_of(params, "decoder", {"name": "causal"}, max_tokens=sum(map(len, ids)))
    backbone = TrialSetup("decoder", "section", max_tokens=64).backbone(seed=0).eval()
    nats, number = 0.0, 0
    for tokens in ids:
        row = torch.tensor([tokens])
        batch = Batch(input_ids=row, document_ids=torch.ones_like(row), num_targets={})
        with torch.no_grad():
            (logits,) = backbone.unembed(backbone(batch)).double()
        for at, token in enumerate(tokens[1:]):
            nats -= float(logits[at].log_softmax(dim=-1)[token])
            number += 1
    assert found.num_targets == number
    assert found.loss == pytest.approx(nats / number, rel=1e-5)
    num_bytes = sum(len(text.encode()) for text in texts)
    # As if the first token of a text, which has no context, took as much as the others.
    all_tokens = sum(map(len, ids)) / number
    assert found.bits_per_byte == pytest.approx(
        nats / math.log(2) / num_bytes * all_tokens, rel=1e-5
    )


def test_a_model_without_preference_takes_the_bits_of_its_vocabulary(params: Params) -> None:
    """Any objective of one term, in which each target is a token: log2(V) bits a token."""
    weights = Path("data/pretrained/encoder_scratch/model.safetensors")
    save_file({k: torch.zeros_like(v) for k, v in load_file(weights).items()}, weights)
    found = bits_of(params, SCRATCH, {"name": "mlm"})
    assert found.loss == pytest.approx(math.log(small_tokenizer().vocab_size), rel=1e-6)


def test_objectives_that_are_validated_as_mlm_are_measured_as_mlm(params: Params) -> None:
    """Heads and teachers, which no checkpoint holds, and a second term do not matter: the masked
    tokens are the same, and so is the loss."""
    as_mlm = bits_of(params, SCRATCH, {"name": "mlm"})
    for other in ({"name": "mlm", "next_sentence": "nsp"}, {"name": "distillation"}):
        found = bits_of(params, SCRATCH, other)
        assert (found.loss, found.num_targets) == (as_mlm.loss, as_mlm.num_targets), other


@pytest.mark.parametrize(
    ("run", "objective"),
    [
        (SCRATCH, {"name": "none"}),  # has learnt nothing
        ("decoder", {"name": "multi_task"}),  # nothing to predict in a text alone
    ],
)
def test_where_there_is_no_such_number_none_is_given(
    params: Params, run: str, objective: dict[str, Any]
) -> None:
    assert bits_of(params, run, objective) is None
