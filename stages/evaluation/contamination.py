"""Test texts in the text that models are pretrained on.

After Brown et al. 2020 (GPT-3, appendix C): texts overlap if they share n words in a row, case and
punctuation apart, with n between 8 and 13. Different here: n is chosen for each text and not for
each task; a text of fewer than 8 words is looked for whole and as sentences of its own, since one
or two words stand everywhere; and to clean a corpus sentences are removed, not 200 characters
around a match.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, repeat
from operator import not_

import numpy as np

from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl
from stages.kinds._kind import KINDS

LONG, SHORT = 13, 8  # words of the n-grams of texts that have so many
WORD = re.compile(r"\w+")
BREAK = -1  # a word that no test text has, and the end of a document
BATCH_WORDS = 2**20  # searched at once: a corpus may be larger than memory


@dataclass(frozen=True)
class Overlap:
    """Of a task's test rows, how many have a text that stands whole in a corpus, and how many one
    of which an n-gram does."""

    num_test: int
    exact: int
    ngram: int


def words(text: str) -> list[str]:
    """Case and punctuation make no difference, nor does how a character is composed."""
    return WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def gram_length(num_words: int) -> int:
    """The n of a text's n-grams."""
    return LONG if num_words >= LONG else SHORT if num_words >= SHORT else num_words


def searched_texts(tasks: Iterable[str]) -> dict[str, list[list[str]]]:
    """task -> the inputs of each of its test rows, as texts: as they stand in the source, before a
    task masked words of them. Answers are not searched for: ``evaluate`` alone reads them."""
    found = {}
    for task in tasks:
        kind = KINDS[read_json(paths.examples(task) / "task.json")["kind"]]
        originals = {row["id"]: row for row in read_jsonl(paths.test_originals(task))}
        rows = read_jsonl(paths.examples(task) / "test.jsonl")
        found[task] = [kind.texts(row | originals.get(row["id"], {})) for row in rows]
    return found


class TaskTexts:
    """The texts of test rows, searched for in documents (lists of sentences).

    A match is a sequence of consecutive words of a document, across sentences. A row counts if one
    of its texts matches.
    """

    def __init__(self, rows: Mapping[str, Sequence[Sequence[str]]]) -> None:
        """``rows``: task -> the texts of each of its test rows."""
        self._num_test = {task: len(of_task) for task, of_task in rows.items()}
        found = [
            (row, words(text))
            for row, content in enumerate(row for of_task in rows.values() for row in of_task)
            for text in content
        ]
        self._row = np.array([row for row, _ in found], dtype=np.int64)  # of each text
        self._trie = _Trie([text for _, text in found])

    def overlap(self, documents: Iterable[Sequence[str]]) -> dict[str, Overlap]:
        """task -> what of it stands in the documents."""
        return self.overlap_of([self.matches(documents)])

    def matches(self, documents: Iterable[Sequence[str]]) -> "Matches":
        """What stands in documents, for ``overlap_of``."""
        return self._trie.matches(documents)

    def overlap_of(self, matches: Iterable["Matches"]) -> dict[str, Overlap]:
        """task -> what of it stands in the documents of any of the ``matches``, which other
        processes may have found."""
        ends = np.cumsum([0, *self._num_test.values()])
        exact, ngram = (
            np.diff(np.searchsorted(np.unique(self._row[hit]), ends)).tolist()
            for hit in self._trie.found(matches)
        )
        numbers = zip(self._num_test.items(), exact, ngram, strict=True)
        return {task: Overlap(num, *of_task) for (task, num), *of_task in numbers}

    def removed_from(self, documents: Iterable[Sequence[str]]) -> Iterator[list[str]]:
        """Each document without the sentences that a match touches, those between them included.

        Where others come to stand side by side for that and match, they go, too: nothing that is
        left matches.
        """
        for batch in _batches(documents):
            waiting = list(range(len(batch)))
            while waiting:
                touched = self._trie.touched([batch[i] for i in waiting])
                marked = {i: gone for i, gone in zip(waiting, touched, strict=True) if any(gone)}
                for i, gone in marked.items():
                    batch[i] = list(compress(batch[i], map(not_, gone)))
                waiting = list(marked)
            yield from ([text for text, _ in document] for document in batch)


Matches = list[np.ndarray]  # of each length in words, the nodes of the trie that were found
_Document = list[tuple[str, list[str]]]  # its sentences, and the words of each


class _Trie:
    """Whole texts and their n-grams, with a level for each word. All positions of a document walk
    down it at once, and few get beyond the second word. Exact: nothing is hashed."""

    def __init__(self, texts: Sequence[Sequence[str]]) -> None:
        self._ids: dict[str, int] = {}
        flat = [self._ids.setdefault(word, len(self._ids)) for text in texts for word in text]
        lengths = np.array([len(text) for text in texts], dtype=np.int64)
        grams = np.array([gram_length(len(text)) for text in texts], dtype=np.int64)
        ends = np.cumsum(lengths)
        owner = np.repeat(np.arange(len(texts)), lengths)  # the text of each word
        starts = np.flatnonzero(np.arange(len(flat)) + grams[owner] <= ends[owner])
        whole = np.flatnonzero(lengths)
        self._num_texts = len(texts)
        # Of the n-grams and, behind them, of the whole texts.
        self._is_whole = np.repeat([False, True], [len(starts), len(whole)])
        self._text = np.concatenate([owner[starts], whole])
        self._length = np.concatenate([grams[owner[starts]], lengths[whole]])
        self._node = np.zeros(len(self._text), dtype=np.int64)  # where each ends
        self._keys: list[np.ndarray] = []  # of each level, sorted: (node above, word)
        self._ends: list[np.ndarray] = []  # of each level: whether something ends at a node
        self._grow(
            np.array(flat, dtype=np.int64), np.concatenate([starts, (ends - lengths)[whole]])
        )

    def _grow(self, flat: np.ndarray, starts: np.ndarray) -> None:
        """A node's number is the place of its key among those of its level."""
        alive = np.arange(len(starts))
        while alive.size:
            word = flat[starts[alive] + len(self._keys)]
            keys, self._node[alive] = np.unique(
                self._node[alive] * len(self._ids) + word, return_inverse=True
            )
            self._keys.append(keys)
            ending = self._length[alive] == len(self._keys)
            ends = np.zeros(len(keys), dtype=bool)
            ends[self._node[alive[ending]]] = True
            self._ends.append(ends)
            alive = alive[~ending]

    def matches(self, documents: Iterable[Sequence[str]]) -> Matches:
        seen: list[list[np.ndarray]] = [[] for _ in self._ends]
        for batch in _batches(documents):
            for _, length, nodes in self._matches(*self._read(batch)):
                seen[length - 1].append(np.unique(nodes))
        none = np.zeros(0, dtype=np.int64)
        return [np.unique(np.concatenate([none, *nodes])) for nodes in seen]

    def found(self, matches: Iterable[Matches]) -> tuple[np.ndarray, np.ndarray]:
        """Of each text, whether all of it and whether an n-gram of it stands in a document."""
        seen = [np.zeros_like(ends) for ends in self._ends]
        for some in matches:
            for of_length, nodes in zip(seen, some, strict=True):
                of_length[nodes] = True
        hit = np.zeros(len(self._node), dtype=bool)
        for length, nodes in enumerate(seen, 1):
            here = self._length == length
            hit[here] = nodes[self._node[here]]
        exact, ngram = np.zeros((2, self._num_texts), dtype=bool)
        exact[self._text[hit & self._is_whole]] = True
        ngram[self._text[hit & ~self._is_whole]] = True
        return exact, ngram

    def touched(self, batch: Sequence[_Document]) -> list[list[bool]]:
        """Of each document's sentences, whether a match touches them."""
        ids, starts, ends = self._read(batch)
        change = np.zeros(len(starts) + 1, dtype=np.int64)
        for at, length, _ in self._matches(ids, starts, ends):
            np.add.at(change, np.searchsorted(starts, at, side="right") - 1, 1)
            np.add.at(change, np.searchsorted(starts, at + length - 1, side="right"), -1)
        marks = iter((np.cumsum(change[:-1]) > 0).tolist())
        return [[next(marks) for _ in document] for document in batch]

    def _read(self, batch: Sequence[_Document]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Their words as numbers, and where each sentence begins and ends."""
        ids: list[int] = []
        starts: list[int] = []
        ends: list[int] = []
        for document in batch:
            for _, sentence in document:
                starts.append(len(ids))
                ids.extend(map(self._ids.get, sentence, repeat(BREAK)))
                ends.append(len(ids))
            ids.append(BREAK)
        return np.array(ids, np.int64), np.array(starts, np.int64), np.array(ends, np.int64)

    def _matches(
        self, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray
    ) -> Iterator[tuple[np.ndarray, int, np.ndarray]]:
        """For each length, where something of it stands, and the nodes that it is."""
        begins, closes = np.zeros((2, len(ids)), dtype=bool)
        begins[starts] = closes[ends] = True
        at = np.arange(len(ids))
        node = np.zeros(len(ids), dtype=np.int64)
        for length, (keys, ending) in enumerate(zip(self._keys, self._ends, strict=True), 1):
            word = ids[at + length - 1]  # there is one: what meets a break goes no further
            at, node, word = (each[word != BREAK] for each in (at, node, word))
            key = node * len(self._ids) + word
            node = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
            at, node = (each[keys[node] == key] for each in (at, node))
            matched = ending[node]
            if length < SHORT:
                matched = matched & begins[at] & closes[at + length]
            yield at[matched], length, node[matched]


def _batches(documents: Iterable[Sequence[str]]) -> Iterator[list[_Document]]:
    batch: list[_Document] = []
    num_words = 0
    for sentences in documents:
        batch.append([(sentence, words(sentence)) for sentence in sentences])
        num_words += sum(len(found) for _, found in batch[-1])
        if num_words >= BATCH_WORDS:
            yield batch
            batch, num_words = [], 0
    yield batch
