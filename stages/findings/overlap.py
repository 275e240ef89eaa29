"""Overlap of test rows with the training text of pretraining, and how alike the two are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stages.core.artifacts import Json

Text = tuple[str, str]  # a corpus and the tokenizer that it was encoded with


@dataclass(frozen=True, eq=False)
class Overlap:
    """The overlap of each task's test rows with each text that a model was pretrained on."""

    contamination: Mapping[Text, Json]
    likeness: Mapping[Text, Json]
    tasks: Sequence[str]

    def share(self, text: Text, task: str, count: str = "ngram") -> float:
        """Returns the share of a task's test rows that overlap with a text. ``count`` is "ngram"
        for rows of which an n-gram occurs in the text, and "exact" for rows that occur in full."""
        counts = self.contamination[text]["tasks"][task]
        return counts[count] / counts["num_test"]

    def similarity(self, text: Text, task: str) -> float | None:
        """Returns the domain similarity of a text and a task (``evaluation.likeness``)."""
        return self.likeness[text]["tasks"][task]["similarity"]

    def name(self, text: Text) -> str:
        """Returns the name of the corpus, with the tokenizer if the corpus was encoded with
        several."""
        corpus, tokenizer = text
        several = sum(other == corpus for other, _ in self.contamination) > 1
        return f"{corpus}, {tokenizer}" if several else corpus

    @property
    def shares(self) -> dict[tuple[str, str], float]:
        """The shares of n-gram overlap, by task and name of the training text."""
        return {
            (task, self.name(text)): self.share(text, task)
            for task in self.tasks
            for text in self.contamination
        }
