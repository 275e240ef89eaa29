"""Tagging: labels of words, predicted at their first subwords."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.models._heads import ModelWithHead
from stages.tasks.tagging import Tagging
from stages.text.batch import IGNORE_INDEX
from tests.small import small_model, small_tokenizer, with_stub

LABELS = ["B-CODE", "I-CODE", "O"]
WORDS = ["The", "antidisestablishmentarian", "class", "x.y_z()", "漢字"]
TAGS = ["O", "O", "B-CODE", "I-CODE", "O"]


def task(max_tokens: int = 64, **settings) -> Tagging:
    return Tagging(LABELS, small_tokenizer(), max_tokens, **settings)


def test_labels_stand_at_the_first_subword_of_each_word() -> None:
    (example,) = task().encode([{"id": "1", "words": WORDS, "tags": TAGS}])
    assert example.word_starts is not None
    labels = [LABELS[i] for i in example.labels[example.word_starts]]
    assert labels == TAGS
    assert (example.labels != IGNORE_INDEX).sum() == len(WORDS)
    assert small_tokenizer().starts_word[example.tokens[example.word_starts]].all()


def test_or_at_all_of_them() -> None:
    (example,) = task(label_subwords="all").encode([{"id": "1", "words": WORDS, "tags": TAGS}])
    assert example.word_starts is not None
    counted = example.labels != IGNORE_INDEX
    assert counted[1:-1].all() and not counted[0] and not counted[-1]
    assert [LABELS[i] for i in example.labels[example.word_starts]] == TAGS


@given(
    words=st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=20),
    max_tokens=st.integers(4, 40),
    subwords=st.sampled_from(["first", "all"]),
)
@settings(max_examples=60, deadline=None)
def test_every_word_gets_one_prediction_however_it_is_cut(words, max_tokens, subwords) -> None:
    of = task(max_tokens, label_subwords=subwords)
    model = ModelWithHead(small_model("encoder"), of.head(small_model("encoder"))).eval()
    rows = [{"id": "1", "words": words, "tags": ["O"] * len(words)}]
    examples = of.encode(rows)
    assert len(examples[0].tokens) <= max_tokens
    assert len(examples[0].labels) == len(examples[0].tokens)
    (predicted,) = of.predict(model, of.collate(examples, rngs=[]), examples)
    assert len(predicted.split(" ")) == len(words)


def test_a_model_that_knows_the_labels_predicts_them() -> None:
    """The backbone is replaced by one whose states are the labels."""
    of = task()
    examples = of.encode([{"id": "1", "words": WORDS, "tags": TAGS}])
    batch = of.collate(examples, rngs=[])

    class Oracle(torch.nn.Module):
        def forward(self, batch):
            return torch.nn.functional.one_hot(batch.labels.clamp(min=0), 3).float()

    model = with_stub(Oracle(), torch.nn.Identity())
    assert of.predict(model, batch, examples) == [" ".join(TAGS)]
    _, loss = of.loss(model, batch)["tagging"]
    chance = len(WORDS) * np.log(3)
    assert 0 < loss.item() < chance
