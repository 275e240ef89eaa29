"""Sequence to sequence: the training targets, and public checkpoints that learn and write."""

import pytest
import torch
import torch.nn.functional as F

from stages.tasks.seq2seq import Seq2Seq
from stages.text.batch import Batch
from stages.text.tokenizer import BOS_ID, EOS_ID
from tests.small import headless, small_model, small_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

WRITERS = ("decoder", "encoder_decoder")


def task(max_tokens: int = 32, max_target_tokens: int = 12) -> Seq2Seq:
    return Seq2Seq([], small_tokenizer(), max_tokens, max_target_tokens=max_target_tokens)


def test_encode_cuts_long_texts_and_targets_and_counts_what_is_cut() -> None:
    """A target that is cut has no end mark."""
    of = task(10, 6)
    texts = {"text": "a class " * 30, "target": "a function " * 30}
    lengths = [len(ids) for ids in small_tokenizer().encode([*texts.values()])]
    rows = [texts, {"text": texts["text"]}, {"text": "a class", "target": "a def"}]
    cut, hidden_target, short = of.encode([{"id": str(i), **row} for i, row in enumerate(rows)])
    assert (len(cut.tokens), cut.tokens[-1]) == (10, EOS_ID)
    assert len(cut.labels) == 6 and EOS_ID not in cut.labels
    assert hidden_target.num_cut == lengths[0] + 2 - 10
    assert cut.num_cut == hidden_target.num_cut + lengths[1] + 1 - 6
    assert short.num_cut == 0
    text, target = small_tokenizer().encode(["a class", "a def"])
    batch = of.collate([short], rngs=[])
    assert batch.decoder_input_ids is not None and batch.labels is not None
    assert batch.input_ids.tolist() == [[BOS_ID, *text, EOS_ID]]
    assert batch.decoder_input_ids.tolist() == [[BOS_ID, *target]]
    assert batch.labels.tolist() == [[*target, EOS_ID]]


@pytest.mark.parametrize("architecture", WRITERS)
def test_loss_is_the_cross_entropy_of_the_targets_tokens(architecture) -> None:
    of, model = task(), headless(small_model(architecture).eval())
    (example,) = of.encode([{"id": "1", "text": "if not value", "target": "return name"}])
    batch = of.collate([example], rngs=[])
    assert batch.labels is not None and batch.decoder_input_ids is not None
    if architecture == "decoder":  # one row of running text
        row = torch.cat([batch.input_ids, batch.labels], dim=1)[:, :-1]
        whole = Batch(input_ids=row, document_ids=torch.ones_like(row), num_targets={})
        states = model.backbone(whole)[:, batch.input_ids.shape[1] - 1 :]
    else:
        states = model.backbone.decode(batch)
    logits = model.backbone.unembed(states)[0]
    expected = F.cross_entropy(logits, batch.labels[0], reduction="sum")
    torch.testing.assert_close(of.loss(model, batch)["target"][1], expected)
