"""Samples of what a pretrained model writes."""

from typing import Any

import pytest

from stages.objectives._objective import OBJECTIVES
from stages.text.tokenizer import BOS_ID
from stages.training.samples import beginnings, samples
from tests.small import documents, small_corpus, small_model, small_tokenizer
from tests.training.test_loop import CPU

pytestmark = pytest.mark.usefixtures("one_thread")

MAX_TOKENS = 32
GENERATIVE = (
    ("causal", "decoder"),
    ("prefix_lm", "decoder"),
    ("span_corruption", "encoder_decoder"),
    ("denoising", "encoder_decoder"),
    ("multi_task", "decoder"),
    ("multi_task", "encoder_decoder"),
)


def written(objective: str, architecture: str, *, seed: int = 1, **settings: Any) -> list[dict]:
    """The samples of a model of random weights."""
    entry = {"name": objective, **settings}
    made: Any = OBJECTIVES.build(entry, small_tokenizer(), MAX_TOKENS, where="objective")
    made.architecture = architecture
    model = small_model(architecture, seed=seed)
    return samples(model, made, small_corpus(), small_tokenizer(), CPU)


@pytest.mark.parametrize(("objective", "architecture"), GENERATIVE)
def test_samples_have_equal_passages_and_prompts_for_every_model(objective, architecture) -> None:
    """Equal weights write equal text, which fits into the longest row."""
    one, *others = (written(objective, architecture, seed=seed) for seed in range(1, 6))
    other = next(each for each in others if each != one)  # models that write nothing are equal
    assert one == written(objective, architecture, seed=1)
    for sample, again in zip(one, other, strict=True):
        assert (sample["passage"], sample["prompt"]) == (again["passage"], again["prompt"])
    rows = beginnings(small_corpus(), MAX_TOKENS)
    assert all(row.tokens[0] == BOS_ID and len(row.tokens) <= MAX_TOKENS for row in rows)
    passages = [small_tokenizer().shown(row.tokens) for row in rows]
    assert [sample["passage"] for sample in one if sample["passage"]] == passages
    texts = {" ".join(document) for document in documents()}
    assert all(any(text.startswith(passage) for text in texts) for passage in passages)


def test_prompts_are_the_beginning_or_leave_something_out() -> None:
    """A decoder also continues nothing; an encoder without a decoder writes nothing."""
    for objective in ("causal", "prefix_lm"):
        first, *others = written(objective, "decoder")
        assert (first["passage"], first["prompt"]) == ("", "")
        for sample in others:
            words = sample["prompt"].split()
            assert words and words == sample["passage"].split()[: len(words)]
    for sample in written("span_corruption", "encoder_decoder", noise_density=0.3):
        assert "<s0>" in sample["prompt"] and "<s0>" not in sample["passage"]
    filled = written("denoising", "encoder_decoder", permute_sentences=False, infilling=0.3)
    assert all("<mask>" in sample["prompt"] for sample in filled)
    assert written("mlm", "encoder") == written("mlm", "bilstm") == []
