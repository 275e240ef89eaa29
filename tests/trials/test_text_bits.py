"""How well a run predicts the texts of a task by its own objective."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl, write_json
from stages.core.keys import RunKey
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
    """Returns the bits of a run as if it were pretrained with this objective."""
    path = paths.pretrained(RunKey(run, 1)) / "run.json"
    write_json(path, read_json(path) | {"objective": objective["name"]})
    setup = TrialSetup(RunKey(run, 1), "section", max_tokens=64)
    entry = params.runs[run]
    changes = {"training": entry.training.model_copy(update=training), "objective": objective}
    return text_bits(setup, entry.model_copy(update=changes), resolve(params.compute, threads=1))


def test_text_bits_of_a_causal_model_are_the_likelihood_of_each_text(params: Params) -> None:
    """Each text is alone in its row; the probabilities of its tokens are multiplied in float64."""
    tokenizer = small_tokenizer()
    texts = [row["text"] for row in read_jsonl(TEXTS)]
    ids = [[*tokenizer.before, *i, *tokenizer.after] for i in tokenizer.encode(texts)]
    bits = bits_of(params, "decoder", {"name": "causal"}, max_tokens=sum(map(len, ids)))
    backbone = TrialSetup(RunKey("decoder", 1), "section", max_tokens=64).backbone(seed=0).eval()
    nats, number = 0.0, 0
    for tokens in ids:
        row = torch.tensor([tokens])
        batch = Batch(input_ids=row, document_ids=torch.ones_like(row), num_targets={})
        with torch.no_grad():
            (logits,) = backbone.unembed(backbone(batch)).double()
        for at, token in enumerate(tokens[1:]):
            nats -= float(logits[at].log_softmax(dim=-1)[token])
            number += 1
    assert bits.num_targets == number
    assert bits.loss == pytest.approx(nats / number, rel=1e-5)
    num_bytes = sum(len(text.encode()) for text in texts)
    # The first token of a text has no context; it counts as much as the mean of the others.
    all_tokens = sum(map(len, ids)) / number
    assert bits.bits_per_byte == pytest.approx(
        nats / math.log(2) / num_bytes * all_tokens, rel=1e-5
    )


def test_text_bits_without_preference_are_those_of_the_vocabulary(
    params: Params,
) -> None:
    """Each target is a token and costs log2(V) bits."""
    weights = paths.pretrained(RunKey(SCRATCH, 1)) / "model.safetensors"
    save_file({k: torch.zeros_like(v) for k, v in load_file(weights).items()}, weights)
    bits = bits_of(params, SCRATCH, {"name": "mlm"})
    assert bits.loss == pytest.approx(math.log(small_tokenizer().vocab_size), rel=1e-6)


def test_text_bits_of_objectives_that_are_validated_as_mlm_are_those_of_mlm(params: Params) -> None:
    """Checkpoints hold no heads or teachers of these objectives, which mask tokens as MLM does."""
    as_mlm = bits_of(params, SCRATCH, {"name": "mlm"})
    for other in ({"name": "mlm", "next_sentence": "nsp"}, {"name": "distillation"}):
        bits = bits_of(params, SCRATCH, other)
        assert (bits.loss, bits.num_targets) == (as_mlm.loss, as_mlm.num_targets), other


@pytest.mark.parametrize(
    ("run", "objective"),
    [
        (SCRATCH, {"name": "none"}),  # has learnt nothing
        ("decoder", {"name": "multi_task"}),  # nothing to predict in a text alone
    ],
)
def test_text_bits_is_none_without_targets(
    params: Params, run: str, objective: dict[str, Any]
) -> None:
    assert bits_of(params, run, objective) is None
