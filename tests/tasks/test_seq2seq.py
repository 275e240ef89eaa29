"""Sequence to sequence: the training targets, the written texts, and that small models learn to
write."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from stages.baselines._baseline import Score
from stages.baselines.copy import Copy
from stages.baselines.nearest import Nearest
from stages.core.seeding import stream
from stages.evaluation.metrics import score
from stages.models._heads import ModelWithHead
from stages.tasks.seq2seq import Seq2Seq
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.tokenizer import BOS_ID, EOS_ID
from stages.training.optimizer import AdamW
from tests.models.test_hub import published, tokenizer_of
from tests.small import headless, small_model, small_tokenizer
from tests.small_hub import checkpoint

pytestmark = pytest.mark.usefixtures("one_thread")

WRITERS = ("decoder", "encoder_decoder")
WORDS = [
    *("class", "def", "for", "from", "if", "import", "in", "is"),
    *("lambda", "not", "or", "return", "with", "value", "name", "list"),
]
OTHER = dict(zip(WORDS, WORDS[5:] + WORDS[:5], strict=True))


def task(max_tokens: int = 32, **settings: Any) -> Seq2Seq:
    settings.setdefault("max_target_tokens", 12)
    return Seq2Seq([], small_tokenizer(), max_tokens, **settings)


def pairs(number: int, *, seed: int, begin: int = 0) -> list[dict[str, str]]:
    """Three words and their translation, word for word."""
    rng = stream(seed, "pairs")
    chosen = [rng.choice(WORDS, size=3, replace=False) for _ in range(number)]
    return [
        {"id": str(i), "text": " ".join(words), "target": " ".join(OTHER[word] for word in words)}
        for i, words in enumerate(chosen, start=begin)
    ]


def hidden(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    return [{"id": row["id"], "text": row["text"]} for row in rows]


def fit(
    model: ModelWithHead, of: Seq2Seq, rows: list[dict[str, str]], *, steps: int, lr: float
) -> float:
    """Trains on batches of 32 in a random order and returns the last loss per token."""
    examples, optimizer = of.encode(rows), AdamW(model, weight_decay=0.0)
    rng, loss = stream(1, "batches"), torch.zeros(())
    model.train()
    for _ in range(steps):
        chosen = rng.choice(len(examples), size=min(32, len(examples)), replace=False)
        batch = of.collate([examples[i] for i in chosen], rngs=[])
        loss = of.loss(model, batch)["target"][1] / batch.num_targets["target"]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step(lr=lr)
    model.eval()
    return loss.item()


def predictions(model: ModelWithHead, of: Seq2Seq, rows: list[dict[str, str]]) -> list[str]:
    examples = of.encode(hidden(rows))
    return of.predict(model, of.collate(examples, rngs=[]), examples)


# Training targets


def test_a_text_and_its_target_stand_between_their_marks() -> None:
    of = task()
    (example,) = of.encode([{"id": "1", "text": "a class", "target": "a value"}])
    batch = of.collate([example], rngs=[])
    text, target = of.tokenizer.encode(["a class", "a value"])
    assert batch.input_ids.tolist() == [[BOS_ID, *text, EOS_ID]]
    assert batch.decoder_input_ids is not None and batch.labels is not None
    assert batch.decoder_input_ids.tolist() == [[BOS_ID, *target]]
    assert batch.labels.tolist() == [[*target, EOS_ID]]
    assert batch.num_targets == {"target": len(target) + 1}


def test_a_prefix_stands_before_every_text() -> None:
    of = task(prefix="return the value: ")
    (example,) = of.encode([{"id": "1", "text": "a class"}])
    assert small_tokenizer().decode(example.tokens) == "return the value: a class"


def test_long_texts_and_targets_are_cut_and_a_cut_target_has_no_end() -> None:
    of = task(10, max_target_tokens=6)
    rows = [{"id": "1", "text": "a class " * 30, "target": "a function " * 30}]
    (example,) = of.encode(rows)
    assert (len(example.tokens), example.tokens[-1]) == (10, EOS_ID)
    assert len(example.labels) == 6 and EOS_ID not in example.labels


def test_what_is_cut_of_texts_and_targets_is_counted() -> None:
    of = task(10, max_target_tokens=6)
    texts = {"text": "a class " * 30, "target": "a function " * 30}
    lengths = [len(ids) for ids in small_tokenizer().encode([*texts.values()])]
    (example,) = of.encode([{"id": "1", **texts}])
    assert example.num_cut == (lengths[0] + 2 - 10) + (lengths[1] + 1 - 6)
    (hidden_target,) = of.encode([{"id": "1", "text": texts["text"]}])
    assert hidden_target.num_cut == lengths[0] + 2 - 10
    (short,) = of.encode([{"id": "1", "text": "a class", "target": "a def"}])
    assert short.num_cut == 0


def test_a_prefix_without_room_for_a_text_is_refused() -> None:
    prefix = "return the value: "
    length = len(small_tokenizer().encode([prefix])[0]) + 2
    (example,) = task(length + 1, prefix=prefix).encode([{"id": "1", "text": "a class"}])
    assert len(example.tokens) == length + 1
    with pytest.raises(ValueError, match="^prefix: "):
        task(length, prefix=prefix)


def test_a_test_row_has_no_target_and_counts_in_no_loss() -> None:
    of = task()
    rows = [{"id": "1", "text": "a class"}, {"id": "2", "text": "a def", "target": "a value"}]
    batch = of.collate(of.encode(rows), rngs=[])
    assert batch.labels is not None
    assert set(batch.labels[0].tolist()) == {IGNORE_INDEX}
    assert batch.num_targets["target"] == int((batch.labels != IGNORE_INDEX).sum())


@pytest.mark.parametrize("architecture", WRITERS)
def test_the_loss_is_of_the_targets_tokens_alone_whatever_is_padded(architecture) -> None:
    of, model = task(), headless(small_model(architecture).eval())
    examples = of.encode(pairs(5, seed=1))
    together = of.loss(model, of.collate(examples, rngs=[]))["target"][1]
    alone = [of.loss(model, of.collate([e], rngs=[]))["target"][1] for e in examples]
    torch.testing.assert_close(together, torch.stack(alone).sum())

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


@pytest.mark.parametrize("architecture", WRITERS)
def test_flops_are_what_torch_counts(architecture) -> None:
    of, model = task(), headless(small_model(architecture, activation="relu").eval())
    batch = of.collate(of.encode(pairs(3, seed=1)), rngs=[])
    counter = FlopCounterMode(display=False)
    with counter, sdpa_kernel(SDPBackend.MATH):
        of.loss(model, batch)
    assert of.flops(model, batch) == counter.get_total_flops()


# Learning


@pytest.mark.slow
@pytest.mark.parametrize("architecture", WRITERS)
def test_what_was_learnt_by_heart_is_written(architecture) -> None:
    """The tokens that are likeliest given the target are those that are written."""
    of, model = task(), headless(small_model(architecture, positions="learned", num_layers=1))
    rows = pairs(6, seed=2)
    assert fit(model, of, rows, steps=150, lr=5e-3) < 0.05
    examples = of.encode(rows)
    batch = of.collate(examples, rngs=[])
    assert batch.labels is not None
    with torch.no_grad():
        taught = model.backbone.logits(batch).argmax(dim=-1)
    assert torch.equal(taught[batch.labels != IGNORE_INDEX], batch.labels[batch.labels >= 0])
    written = [of.tokenizer.encode([text])[0] for text in predictions(model, of, rows)]
    assert [[*ids, EOS_ID] for ids in written] == [e.labels.tolist() for e in examples]
    assert predictions(model, task(num_beams=3), rows) == [row["target"] for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("architecture", WRITERS)
def test_small_models_learn_to_translate_better_than_baselines(architecture) -> None:
    """Training sees 400 of 3,360 texts; nearly all of the others have no similar text among
    them."""
    train, test = pairs(400, seed=3), pairs(60, seed=4, begin=1000)
    of, model = task(), headless(small_model(architecture, positions="learned", num_layers=1))
    fit(model, of, train, steps=300, lr=4e-3)
    gold = [row["target"] for row in test]
    learnt = score("chrf", gold, predictions(model, of, test))
    for baseline in (Copy(), Nearest()):
        baseline.fit(train, test, Score(of.kind, "chrf"))
        assert learnt > score("chrf", gold, baseline.predict(hidden(test))) + 0.15


# Public checkpoints


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gpt2", "t5", "bart"])
def test_a_public_checkpoint_learns_and_writes(family) -> None:
    """The checkpoint keeps its published special tokens, and every weight has a gradient."""
    tokenizer, backbone = tokenizer_of(checkpoint(family)), published(checkpoint(family))
    of = Seq2Seq([], tokenizer, 32, max_target_tokens=24)
    rows = pairs(4, seed=5)
    batch = of.collate(of.encode(rows), rngs=[])
    assert batch.labels is not None and batch.decoder_input_ids is not None
    for labels, row in zip(batch.labels, rows, strict=True):
        ids = labels[labels != IGNORE_INDEX].tolist()
        assert ids[-1] == tokenizer.eos_id
        assert tokenizer.decode(ids) == row["target"]
        if family != "gpt2":
            assert ids == tokenizer.wrap(*tokenizer.encode([row["target"]]))
    assert batch.decoder_input_ids[:, 0].tolist() == [tokenizer.start_id] * 4
    model = headless(backbone)
    first = of.loss(model, batch)["target"][1] / batch.num_targets["target"]
    first.backward()
    assert [name for name, p in backbone.named_parameters() if p.grad is None] == []
    assert fit(model, of, rows, steps=40, lr=5e-3) < 0.5 * first.item()
    assert len(predictions(model, of, rows)) == 4
    counter = FlopCounterMode(display=False)
    with counter, sdpa_kernel(SDPBackend.MATH):
        of.loss(model, batch)
    assert of.flops(model, batch) == pytest.approx(counter.get_total_flops(), rel=0.02)
