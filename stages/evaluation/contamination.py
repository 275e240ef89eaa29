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
from itertools import compress, repeat
from operator import not_

import numpy as np

from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl
from stages.core.parallel import grouped
from stages.kinds._kind import KINDS

LONG, SHORT = 13, 8  # n for texts of at least 13 words, and of 8 to 12 words
WORD = re.compile(r"\w+")
BREAK = -1  # stands for any word that no test text has, and for the end of a document
BATCH_WORDS = 2**20  # words of a corpus searched at once; all of it may not fit into memory


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
        kind = KINDS[read_json(paths.examples(task) / "task.json")["kind"]]
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
        self._num_test = {task: len(of_task) for task, of_task in rows.items()}
        texts = [
            (row, words(text))
            for row, content in enumerate(row for of_task in rows.values() for row in of_task)
            for text in content
        ]
        self._row = np.array([row for row, _ in texts], dtype=np.int64)  # the row of each text
        self._trie = _Trie([text for _, text in texts])

    def overlap(self, documents: Iterable[Sequence[str]]) -> dict[str, Overlap]:
        """Returns the overlap of each task with the documents."""
        return self.overlap_of([self.matches(documents)])

    def matches(self, documents: Iterable[Sequence[str]]) -> "Matches":
        """Returns the matches in documents, to be passed to ``overlap_of``."""
        return self._trie.matches(documents)

    def overlap_of(self, matches: Iterable["Matches"]) -> dict[str, Overlap]:
        """Returns the overlap of each task with the documents of several calls of ``matches``, in
        this process or others."""
        ends = np.cumsum([0, *self._num_test.values()])
        exact, ngram = (
            np.diff(np.searchsorted(np.unique(self._row[hit]), ends)).tolist()
            for hit in self._trie.matched_texts(matches)
        )
        numbers = zip(self._num_test.items(), exact, ngram, strict=True)
        return {task: Overlap(num, *of_task) for (task, num), *of_task in numbers}

    def removed_from(self, documents: Iterable[Sequence[str]]) -> Iterator[list[str]]:
        """Yields each document without the sentences that overlap with a match.

        Removing a sentence makes its neighbours adjacent, and together they may match. So the
        search is repeated until nothing matches.
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


Matches = list[np.ndarray]  # the trie's nodes that matched, an array for each length in words
_Document = list[tuple[str, list[str]]]  # the sentences with their words


class _Trie:
    """A trie of whole texts and their n-grams, with one level per word.

    All positions of the documents are looked up at once, level by level; few match more than two
    words. The search is exact, because nothing is hashed.
    """

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
        # These arrays describe the n-grams first, then the whole texts.
        self._is_whole = np.repeat([False, True], [len(starts), len(whole)])
        self._text = np.concatenate([owner[starts], whole])
        self._length = np.concatenate([grams[owner[starts]], lengths[whole]])
        self._node = np.zeros(len(self._text), dtype=np.int64)  # the last node of the sequence
        self._keys: list[np.ndarray] = []  # for each level: the sorted (node above, word)
        self._ends: list[np.ndarray] = []  # for each level: whether a sequence ends at a node
        self._grow(
            np.array(flat, dtype=np.int64), np.concatenate([starts, (ends - lengths)[whole]])
        )

    def _grow(self, flat: np.ndarray, starts: np.ndarray) -> None:
        """Adds all levels. The number of a node is the index of its key in its level."""
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

    def matched_texts(self, matches: Iterable[Matches]) -> tuple[np.ndarray, np.ndarray]:
        """Returns for each text whether it matched as a whole, and whether one of its n-grams
        did."""
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
        """Returns for each sentence of each document whether it overlaps with a match."""
        ids, starts, ends = self._read(batch)
        change = np.zeros(len(starts) + 1, dtype=np.int64)
        for at, length, _ in self._matches(ids, starts, ends):
            np.add.at(change, np.searchsorted(starts, at, side="right") - 1, 1)
            np.add.at(change, np.searchsorted(starts, at + length - 1, side="right"), -1)
        marks = iter((np.cumsum(change[:-1]) > 0).tolist())
        return [[next(marks) for _ in document] for document in batch]

    def _read(self, batch: Sequence[_Document]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the words of documents as numbers, and where each sentence begins and ends."""
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
        """Yields, for each length, the positions at which sequences of this length match, the
        length, and the nodes that match."""
        begins, closes = np.zeros((2, len(ids)), dtype=bool)
        begins[starts] = closes[ends] = True
        at = np.arange(len(ids))
        node = np.zeros(len(ids), dtype=np.int64)
        for length, (keys, ending) in enumerate(zip(self._keys, self._ends, strict=True), 1):
            word = ids[at + length - 1]  # never past the end: no match continues over a BREAK
            at, node, word = (each[word != BREAK] for each in (at, node, word))
            key = node * len(self._ids) + word
            node = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
            at, node = (each[keys[node] == key] for each in (at, node))
            matched = ending[node]
            if length < SHORT:
                matched = matched & begins[at] & closes[at + length]
            yield at[matched], length, node[matched]


def _batches(documents: Iterable[Sequence[str]]) -> Iterator[list[_Document]]:
    read = ([(sentence, words(sentence)) for sentence in sentences] for sentences in documents)
    return grouped(read, lambda document: sum(len(own) for _, own in document), BATCH_WORDS)
