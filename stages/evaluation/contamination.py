"""Contamination: test texts that occur in the text that models are pretrained on.

The definition follows Brown et al. 2020 (GPT-3, appendix C): texts overlap if they share n
consecutive words, ignoring case and punctuation, with n between 8 and 13. Three things differ.
n is chosen for each text and not for each task. A text of fewer than 8 words matches only if it
equals one or more complete sentences, because one or two words occur everywhere. Cleaning a corpus
removes sentences, not 200 characters around a match.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl
from stages.tasks._task import TASKS

LONG, SHORT = 13, 8  # n for texts of at least 13 words, and of 8 to 12 words
WORD = re.compile(r"\w+")

Words = tuple[str, ...]


@dataclass(frozen=True)
class Overlap:
    """How many of a task's test rows overlap with a corpus."""

    num_test: int  # test rows
    exact: int  # rows with a text that occurs as a whole in the corpus
    ngram: int  # rows with a text of which an n-gram occurs in the corpus


def words(text: str) -> list[str]:
    """Returns the words of a text, without case, punctuation and differences in Unicode
    composition."""
    return WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def gram_length(num_words: int) -> int:
    """Returns the n of the n-grams of a text with ``num_words`` words."""
    return LONG if num_words >= LONG else SHORT if num_words >= SHORT else num_words


def searched_texts(tasks: Iterable[str]) -> dict[str, list[list[str]]]:
    """Returns the input texts of each test row, by task.

    If the task's source masked words, these are the texts before masking. Answers are left out,
    because only ``evaluate`` may read them.
    """
    texts_by_task = {}
    for task in tasks:
        kind = TASKS[read_json(paths.examples(task) / "task.json")["kind"]]
        originals = {row["id"]: row for row in read_jsonl(paths.test_originals(task))}
        rows = read_jsonl(paths.examples(task) / "test.jsonl")
        texts_by_task[task] = [kind.texts(row | originals.get(row["id"], {})) for row in rows]
    return texts_by_task


class TaskTexts:
    """Searches documents (lists of sentences) for the texts of test rows.

    A match consists of consecutive words of a document and may span sentences. A row counts if one
    of its texts matches.
    """

    def __init__(self, rows: Mapping[str, Sequence[Sequence[str]]]) -> None:
        """``rows`` are the texts of each test row, by task."""
        self._rows = {
            task: [[tuple(words(text)) for text in texts] for texts in of_task]
            for task, of_task in rows.items()
        }
        texts = [t for of_task in self._rows.values() for row in of_task for t in row if t]
        self._grams = {gram for text in texts for gram in _grams(text)}
        # A whole text is looked for only where its first n-gram matches.
        self._wholes: dict[Words, set[Words]] = {}
        for text in texts:
            self._wholes.setdefault(text[: gram_length(len(text))], set()).add(text)
        self._lengths: dict[str, set[int]] = {}  # by first word: the lengths of its n-grams
        for gram in self._grams:
            self._lengths.setdefault(gram[0], set()).add(len(gram))

    def overlap(self, documents: Iterable[Sequence[str]]) -> dict[str, Overlap]:
        """Returns the overlap of each task with the documents."""
        seen = {
            match
            for sentences in documents
            for _, match in self._found([words(sentence) for sentence in sentences])
        }
        return {
            task: Overlap(
                num_test=len(rows),
                exact=sum(any(text in seen for text in row) for row in rows),
                ngram=sum(any(g in seen for text in row for g in _grams(text)) for row in rows),
            )
            for task, rows in self._rows.items()
        }

    def removed_from(self, documents: Iterable[Sequence[str]]) -> Iterator[list[str]]:
        """Yields each document without the sentences that overlap with a match.

        Removing a sentence makes its neighbours adjacent, and together they may match. So the
        search is repeated until nothing matches.
        """
        for document in documents:
            sentences = [(sentence, words(sentence)) for sentence in document]
            while True:
                owner = [i for i, (_, own) in enumerate(sentences) for _ in own]
                matches = self._found([own for _, own in sentences])
                ends = [(owner[start], owner[start + len(gram) - 1]) for start, gram in matches]
                touched = {i for first, last in ends for i in range(first, last + 1)}
                if not touched:
                    break
                sentences = [pair for i, pair in enumerate(sentences) if i not in touched]
            yield [sentence for sentence, _ in sentences]

    def _found(self, sentences: Sequence[Sequence[str]]) -> Iterator[tuple[int, Words]]:
        """Yields the matches in a document, each with the place of its first word."""
        running = [word for sentence in sentences for word in sentence]
        ends = {0, *accumulate(map(len, sentences))}
        for start, first in enumerate(running):
            for n in self._lengths.get(first, ()):
                gram = tuple(running[start : start + n])
                if len(gram) < n or gram not in self._grams:
                    continue
                if n < SHORT and not (start in ends and start + n in ends):
                    continue
                yield start, gram
                for whole in self._wholes.get(gram, ()):
                    if len(whole) > n and tuple(running[start : start + len(whole)]) == whole:
                        yield start, whole


def _grams(text: Words) -> Iterator[Words]:
    """Yields the n-grams of a text, or the whole of a short one; none if it has no words."""
    n = gram_length(len(text))
    if text:
        yield from (text[i : i + n] for i in range(len(text) - n + 1))
