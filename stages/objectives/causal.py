"""Causal language modelling: each token is predicted from the tokens before it (GPT; Radford et al.
2018)."""

import numpy as np

from stages.objectives._objective import Objective, first_words, neighbours, tokens_of
from stages.text.batch import Batch
from stages.text.packing import Row


class Causal(Objective):
    """Predicts all tokens of a document but the first, which has no context. The end-of-text token
    at its end is predicted like any other token."""

    architectures = ("decoder",)
    term = "causal"
    draws_text = True

    def collate(self, examples: list[Row], *, rngs: list[np.random.Generator]) -> Batch:
        tokens = tokens_of(examples)
        return Batch(**tokens, **self.targets(neighbours(**tokens)[0]))

    def prompt(self, passage: Row, *, rng: np.random.Generator) -> np.ndarray:
        return first_words(passage, self.vocabulary)
