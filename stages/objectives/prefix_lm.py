"""Prefix language modelling (T5; Raffel et al. 2020, section 3.2, and the code's ``prefix_lm``)."""

import numpy as np
import torch

from stages.objectives._objective import Objective, document_parts, first_words, tokens_of
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.packing import Row


class PrefixLM(Objective):
    """Each document is split at a random token into a prefix, to which attention is bidirectional,
    and targets, each of which is predicted from the prefix and the targets before.

        document   Thank you for inviting me
        visible    Thank you
        targets              for inviting me

    A prefix has 1 to n - 1 of a document's n tokens, uniformly distributed, and its last token
    predicts the first target. On average half of a document's tokens are predicted; ``causal``
    predicts all but the first.
    """

    architectures = ("decoder",)
    term = "prefix_lm"
    draws_text = True
    has_prefix = True

    def collate(self, examples: list[Row], *, rngs: list[np.random.Generator]) -> Batch:
        tokens = tokens_of(examples)
        visible = torch.zeros_like(tokens["input_ids"], dtype=torch.bool)
        labels = torch.full_like(tokens["input_ids"], IGNORE_INDEX)
        for i, (row, rng) in enumerate(zip(examples, rngs, strict=True)):
            for part in document_parts(row):
                if part.stop - part.start > 1:  # else there is no prefix
                    split = int(rng.integers(part.start + 1, part.stop))
                    visible[i, part.start : split] = True
                    labels[i, split - 1 : part.stop - 1] = tokens["input_ids"][i, split : part.stop]
        return Batch(**tokens, visible=visible, **self.targets(labels))

    def prompt(self, passage: Row, *, rng: np.random.Generator) -> np.ndarray:
        return first_words(passage, self.vocabulary)
