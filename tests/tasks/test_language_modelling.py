"""Language modelling: the bits of a text are those of its tokens, each predicted once."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stages.models._heads import ModelWithHead
from stages.tasks.language_modelling import LanguageModelling
from stages.text import tokenizer
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.tokenizer import BOS_ID, Tokenizer
from tests.small import documents, headless, small_model, small_tokenizer

NUM_WORDS = (5, 12, 30, 100)
TEXTS = [
    " ".join(" ".join(document).split()[:number])
    for document, number in zip(documents(), NUM_WORDS, strict=False)
]
ROWS = [{"id": str(i), "text": text} for i, text in enumerate(TEXTS)]


def task(max_tokens: int) -> LanguageModelling:
    return LanguageModelling([], small_tokenizer(), max_tokens)


@torch.no_grad()
def bits(of: LanguageModelling, model: ModelWithHead, rows: list[dict[str, Any]]) -> list[float]:
    """Returns the bits of each row, with all windows of all rows in one batch."""
    examples = of.encode(rows)
    predictions = of.predict(model.eval(), of.collate(examples, rngs=[]), examples)
    by_row = {row["id"]: [] for row in rows}
    for example, prediction in zip(examples, predictions, strict=True):
        by_row[example.id].append(prediction)
    return [float(of.combine(row, by_row[row["id"]])) for row in rows]


@torch.no_grad()
def test_bits_of_a_text_are_those_of_its_tokens() -> None:
    model = headless(small_model("decoder")).eval()
    ids = torch.tensor([[BOS_ID, *small_tokenizer().encode(TEXTS[:1])[0]]])
    batch = Batch(input_ids=ids, document_ids=torch.ones_like(ids), num_targets={})
    logits = model.backbone.unembed(model.backbone(batch))[:, :-1].log_softmax(dim=-1)
    expected = -logits.gather(2, ids[:, 1:, None]).sum().item() / math.log(2)
    assert bits(task(2000), model, ROWS[:1]) == [pytest.approx(expected, rel=1e-4)]


@pytest.mark.parametrize("max_tokens", [1, 2, 7, 16, 64, 2000])
def test_encode_windows_predict_each_token_once_from_those_before_it(max_tokens) -> None:
    of = task(max_tokens)
    for row in ROWS:
        ids = np.array([BOS_ID, *small_tokenizer().encode([row["text"]])[0]])
        windows = of.encode([row])
        predicted = np.concatenate([w.labels[w.labels != IGNORE_INDEX] for w in windows])
        assert predicted.tolist() == ids[1:].tolist()
        assert [w.window for w in windows] == list(range(len(windows)))
        at = 1
        for window in windows:
            assert len(window.tokens) == len(window.labels) <= max_tokens
            for place in np.flatnonzero(window.labels != IGNORE_INDEX):
                context = window.tokens[: place + 1]
                assert context.tolist() == ids[at - len(context) : at].tolist()
                assert len(context) >= min(at, max_tokens // 2)
                at += 1
        assert at == len(ids)


def test_loss_is_the_bits() -> None:
    of, model = task(32), headless(small_model("decoder"))
    examples = of.encode(ROWS)
    batch = of.collate(examples, rngs=[])
    assert batch.num_targets == {
        "language_modelling": sum(map(len, small_tokenizer().encode(TEXTS)))
    }
    with torch.no_grad():
        [(weight, loss)] = of.loss(model.eval(), batch).values()
    expected = pytest.approx(sum(bits(of, model, ROWS)), rel=1e-4)
    assert weight * float(loss) / math.log(2) == expected


def test_encode_refuses_a_text_that_the_tokenizer_does_not_know(tmp_path: Path) -> None:
    lines = [line for document in documents() for line in document]
    tokenizer.train(lines, tmp_path, algorithm="char", vocab_size=300, threads=1)
    of = LanguageModelling([], Tokenizer(tmp_path), 64)
    assert of.encode([{"id": "1", "text": "a class"}])
    with pytest.raises(ValueError, match="row 2: the model's tokenizer does not know"):
        of.encode([{"id": "2", "text": "a класс"}])
