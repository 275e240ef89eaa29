"""Tagging: labels of words, predicted at one of their subwords."""

import numpy as np
import pytest
import torch

from stages.tasks.tagging import Tagging
from stages.text.batch import IGNORE_INDEX
from tests.small import small_model, small_tokenizer, with_stub

LABELS = ["B-CODE", "I-CODE", "O"]
WORDS = ["The", "antidisestablishmentarian", "class", "x.y_z()", "漢字"]
TAGS = ["O", "O", "B-CODE", "I-CODE", "O"]


def task(max_tokens: int = 64, *, by: str = "encoder") -> Tagging:
    of = Tagging(LABELS, small_tokenizer(), max_tokens)
    of.read_by(small_model(by), has_prefix=False)
    return of


@pytest.mark.parametrize("by", ["encoder", "decoder"])
def test_encode_puts_labels_at_one_subword_of_each_word(by: str) -> None:
    """A causal model needs the last subword: at the first, it has not read the others."""
    (words,) = small_tokenizer().encode_words([WORDS])
    ends = np.cumsum([len(ids) for ids in words])  # <bos> comes before them
    begins = np.array([1, *(1 + ends[:-1])])
    (example,) = task(by=by).encode([{"id": "1", "words": WORDS, "tags": TAGS}])
    assert example.word_positions is not None
    counted = (example.labels != IGNORE_INDEX).nonzero()[0].tolist()
    expected = (begins if by == "encoder" else ends).tolist()
    assert counted == example.word_positions.tolist() == expected
    assert [LABELS[i] for i in example.labels[example.word_positions]] == TAGS


def test_predict_is_outside_for_a_word_without_its_labelled_subword() -> None:
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
