"""Sequence to sequence: the training targets, and public checkpoints that learn and write."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from stages.tasks.seq2seq import Seq2Seq
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.tokenizer import BOS_ID, EOS_ID
from stages.training.finetuning import FinetuningData
from stages.training.loop import train
from tests.models.test_hub import published, tokenizer_of
from tests.small import headless, small_model, small_tokenizer
from tests.small_hub import checkpoint
from tests.training.test_loop import CPU, SCHEDULE

pytestmark = pytest.mark.usefixtures("one_thread")

WRITERS = ("decoder", "encoder_decoder")
ROWS = [
    {"id": "1", "text": "class def", "target": "if import"},
    {"id": "2", "text": "for from is", "target": "not or"},
    {"id": "3", "text": "value name", "target": "lambda with list"},
]


def task(max_tokens: int = 32, **settings: Any) -> Seq2Seq:
    settings.setdefault("max_target_tokens", 12)
    return Seq2Seq([], small_tokenizer(), max_tokens, **settings)


def test_encode_puts_a_text_and_its_target_between_their_marks() -> None:
    of = task()
    (example,) = of.encode([{"id": "1", "text": "a class", "target": "a value"}])
    batch = of.collate([example], rngs=[])
    text, target = of.tokenizer.encode(["a class", "a value"])
    assert batch.input_ids.tolist() == [[BOS_ID, *text, EOS_ID]]
    assert batch.decoder_input_ids is not None and batch.labels is not None
    assert batch.decoder_input_ids.tolist() == [[BOS_ID, *target]]
    assert batch.labels.tolist() == [[*target, EOS_ID]]
    assert batch.num_targets == {"target": len(target) + 1}


def test_encode_puts_a_prefix_before_every_text() -> None:
    of = task(prefix="return the value: ")
    (example,) = of.encode([{"id": "1", "text": "a class"}])
    assert small_tokenizer().decode(example.tokens) == "return the value: a class"


def test_encode_cuts_long_texts_and_targets_and_counts_what_is_cut() -> None:
    """A target that is cut has no end mark."""
    of = task(10, max_target_tokens=6)
    texts = {"text": "a class " * 30, "target": "a function " * 30}
    lengths = [len(ids) for ids in small_tokenizer().encode([*texts.values()])]
    rows = [texts, {"text": texts["text"]}, {"text": "a class", "target": "a def"}]
    cut, hidden_target, short = of.encode([{"id": str(i), **row} for i, row in enumerate(rows)])
    assert (len(cut.tokens), cut.tokens[-1]) == (10, EOS_ID)
    assert len(cut.labels) == 6 and EOS_ID not in cut.labels
    assert hidden_target.num_cut == lengths[0] + 2 - 10
    assert cut.num_cut == hidden_target.num_cut + lengths[1] + 1 - 6
    assert short.num_cut == 0


def test_seq2seq_refuses_a_prefix_without_room_for_a_text() -> None:
    prefix = "return the value: "
    length = len(small_tokenizer().encode([prefix])[0]) + 2
    (example,) = task(length + 1, prefix=prefix).encode([{"id": "1", "text": "a class"}])
    assert len(example.tokens) == length + 1
    with pytest.raises(ValueError, match="^prefix: "):
        task(length, prefix=prefix)


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
    smoothed = task(label_smoothing=0.1).loss(model, batch)["target"][1]
    uniform = -logits.log_softmax(dim=-1).mean(dim=-1).sum()
    torch.testing.assert_close(smoothed, 0.9 * expected + 0.1 * uniform)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gpt2", "t5", "bart"])
def test_seq2seq_trains_a_public_checkpoint(family) -> None:
    """The checkpoint keeps its published special tokens, and every weight has a gradient."""
    tokenizer, backbone = tokenizer_of(checkpoint(family)), published(checkpoint(family))
    of = Seq2Seq([], tokenizer, 32, max_target_tokens=24)
    examples = of.encode(ROWS)
    batch = of.collate(examples, rngs=[])
    assert batch.labels is not None and batch.decoder_input_ids is not None
    for labels, row in zip(batch.labels, ROWS, strict=True):
        ids = labels[labels != IGNORE_INDEX].tolist()
        assert ids[-1] == tokenizer.eos_id
        assert tokenizer.decode(ids) == row["target"]
        if family != "gpt2":
            assert ids == tokenizer.wrap(*tokenizer.encode([row["target"]]))
    assert batch.decoder_input_ids[:, 0].tolist() == [tokenizer.start_id] * 3
    model = headless(backbone)
    first = of.loss(model, batch)["target"][1]
    first.backward()
    assert [name for name, p in backbone.named_parameters() if p.grad is None] == []
    data = FinetuningData(examples, of, batch_examples=3, seed=1)
    list(train(model, of, data, SCHEDULE, num_steps=40, seed=1, device=CPU))
    assert of.loss(model.eval(), batch)["target"][1] < 0.5 * first
    assert len(of.predict(model, batch, examples)) == 3
