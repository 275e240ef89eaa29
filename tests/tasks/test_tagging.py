"""Tagging: labels of words, predicted at one of their subwords."""

import numpy as np
import pytest
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


def task(max_tokens: int = 64, *, by: str = "encoder", **settings) -> Tagging:
    of = Tagging(LABELS, small_tokenizer(), max_tokens, **settings)
    of.read_by(small_model(by), has_prefix=False)
    return of


def test_labels_stand_at_the_first_subword_of_each_word() -> None:
    (example,) = task().encode([{"id": "1", "words": WORDS, "tags": TAGS}])
    assert example.word_positions is not None
    labels = [LABELS[i] for i in example.labels[example.word_positions]]
    assert labels == TAGS
    assert (example.labels != IGNORE_INDEX).sum() == len(WORDS)
    assert small_tokenizer().starts_word[example.tokens[example.word_positions]].all()


def test_or_at_the_last_in_a_causal_model_and_where_it_is_asked_for() -> None:
    (words,) = small_tokenizer().encode_words([WORDS])
    ends = np.cumsum([len(ids) for ids in words])
    for of in (task(by="decoder"), task(label_subwords="last")):
        (example,) = of.encode([{"id": "1", "words": WORDS, "tags": TAGS}])
        assert example.word_positions is not None
        assert example.word_positions.tolist() == ends.tolist()  # <bos> comes before them
        assert [LABELS[i] for i in example.labels[example.word_positions]] == TAGS
        assert (example.labels != IGNORE_INDEX).sum() == len(WORDS)
    (first,) = task(by="decoder", label_subwords="first").encode([{"id": "1", "words": WORDS}])
    assert first.word_positions is not None
    assert first.word_positions.tolist() == [1, *(1 + ends[:-1])]


def test_a_word_without_its_last_subword_has_no_label_and_is_outside() -> None:
    (words,) = small_tokenizer().encode_words([WORDS])
    row = {"id": "1", "words": WORDS, "tags": ["B-CODE"] * len(WORDS)}
    assert len(words[0]) < 3 < len(words[1])
    max_tokens = 1 + len(words[0]) + 2 + 1  # two subwords of the second word
    for by, labelled in (("encoder", 2), ("decoder", 1)):
        of = task(max_tokens, by=by)
        (example,) = examples = of.encode([row])
        assert (example.labels != IGNORE_INDEX).sum() == labelled
        assert example.num_cut == sum(map(len, words)) + 2 - max_tokens
        model = with_stub(Constant(), torch.nn.Identity())
        (predicted,) = of.predict(model, of.collate(examples, rngs=[]), examples)
        assert predicted.split() == ["B-CODE"] * labelled + ["O"] * (len(WORDS) - labelled)


class Constant(torch.nn.Module):
    """States that predict B-CODE everywhere."""

    def forward(self, batch):
        return torch.tensor([1.0, 0.0, 0.0]).expand(*batch.input_ids.shape, 3)


def test_or_at_all_of_them() -> None:
    (example,) = task(label_subwords="all").encode([{"id": "1", "words": WORDS, "tags": TAGS}])
    assert example.word_positions is not None
    counted = example.labels != IGNORE_INDEX
    assert counted[1:-1].all() and not counted[0] and not counted[-1]
    assert [LABELS[i] for i in example.labels[example.word_positions]] == TAGS


@pytest.mark.slow
@given(
    words=st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=20),
    max_tokens=st.integers(4, 40),
    subwords=st.sampled_from(["auto", "first", "last", "all"]),
    by=st.sampled_from(["encoder", "decoder"]),
)
@settings(max_examples=60, deadline=None)
def test_every_word_gets_one_prediction_however_it_is_cut(words, max_tokens, subwords, by) -> None:
    of = task(max_tokens, by=by, label_subwords=subwords)
    model = ModelWithHead(small_model(by), of.head(small_model(by))).eval()
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
