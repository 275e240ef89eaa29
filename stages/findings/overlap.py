"""Overlap of test rows with the training text of pretraining."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stages.core.artifacts import Json
from stages.findings.contrasts import Contrast
from stages.findings.groups import Group

NOTEWORTHY = 0.03  # share of a task's test rows
UNEQUAL = 0.02  # a difference between two such shares
# Tasks with the setting ``long_texts``.
WITH_LONG_TEXTS = ("classification", "multi_label", "regression")

Text = tuple[str, str]  # a corpus and the tokenizer that it was encoded with


@dataclass(frozen=True, eq=False)
class Overlap:
    """The overlap of each task's test rows with each text that a run was pretrained on."""

    contamination: Mapping[Text, Json]
    tasks: Sequence[str]

    def share(self, text: Text, task: str, count: str = "ngram") -> float:
        """Returns the share of a task's test rows that overlap with a text. ``count`` is "ngram"
        for rows of which an n-gram occurs in the text, and "exact" for rows that occur in full."""
        counts = self.contamination[text]["tasks"][task]
        return counts[count] / counts["num_test"]

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

    def unequal(
        self, contrasts: Sequence[Contrast], groups: Sequence[Group]
    ) -> Iterator[tuple[str, Text, Text]]:
        """Yields each task with two training sets that are compared and whose overlaps with the
        task's test rows differ by more than ``UNEQUAL``."""
        texts = {group.name: (group.entry.corpus, group.entry.tokenizer) for group in groups}
        compared = dict.fromkeys(
            (texts[c.a.group], texts[c.b.group])
            for c in contrasts
            if c.axis in ("training set", "amount of text")
        )
        for a, b in compared:
            if self.contamination.keys() >= {a, b}:
                for task in self.tasks:
                    if abs(self.share(a, task) - self.share(b, task)) > UNEQUAL:
                        yield task, a, b
