import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

import numpy as np

from stages.baselines._baseline import Baseline, Row, Score

WORD = re.compile(r"\w+(?:[.,'’-]\w+)*|[^\w\s]")  # a word, a number or a sign
ASKING = ("who", "whose", "whom", "when", "where", "why", "which", "what", "how many", "how")
SIGNS = ".?!;"  # signs that end a sentence; an answer lies within a sentence
NUM_FREQUENT = 50  # the most frequent words are features themselves; other words have shapes
SHAPES = ("<edge>", "<sign>", "<number>", "<capital>", "<lower>")
PRIOR = 10.0  # pseudo-count of answers that look like any other span


class SlidingWindow(Baseline):
    """The span of a context that has the most words of the question around it (Richardson et al.
    2013) and looks like an answer to the question.

    A word of the question adds log(1 + 1 / its count in the context) to the score if it is within a
    window before or after the span, and subtracts it if it is in the span. The look is scored by
    naive Bayes over the span's length, its neighbours, and its first and last word given the
    question word (who, when, ... in English). Frequent words are features themselves; other words
    are replaced by their shape. Spans have at most ``max_words`` words, signs included.

    Validation chooses the size of the window, the weight of the question's words relative to the
    look and, if some training rows have no answer, the score below which no answer is given.
    """

    fits = ("span_qa",)

    def __init__(
        self,
        *,
        max_words: int = 10,
        windows: Sequence[int] = (5, 10, 20, 40),
        weights: Sequence[float] = (1.0, 2.0, 4.0, 8.0),
    ) -> None:
        if max_words < 1 or not windows or min(windows) < 1 or not weights or min(weights) <= 0:
            raise ValueError(
                "max_words and every value of windows must be at least 1, and weights above 0"
            )
        self.max_words, self.windows, self.weights = max_words, windows, weights
        self.num_tries = len(windows) * len(weights)

    def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
        contexts = {row["context"] for row in train}
        words = Counter(word.lower() for context in contexts for word in WORD.findall(context))
        frequent = sorted(words, key=lambda word: (-words[word], word))[:NUM_FREQUENT]
        self.looks = {look: i for i, look in enumerate([*frequent, *SHAPES])}
        self._contexts: dict[str, _Context] = {}
        self._learn_looks(train)
        self.threshold = -np.inf
        best = -1.0
        for window, weight in product(sorted(self.windows), sorted(self.weights)):
            spans = [self._best(row, window, weight) for row in validation]
            thresholds = [-np.inf]
            if not all(row["answers"] for row in train):
                thresholds += np.quantile([s for s, _ in spans], np.arange(1, 10) / 10).tolist()
                thresholds.append(np.inf)
            for threshold in thresholds:
                value = score(validation, [text if s >= threshold else "" for s, text in spans])
                if value > best:
                    best = value
                    self.window, self.weight, self.threshold = window, weight, threshold

    def predict(self, rows: Sequence[Row]) -> list[str]:
        spans = [self._best(row, self.window, self.weight) for row in rows]
        return [text if score >= self.threshold else "" for score, text in spans]

    def _learn_looks(self, train: Sequence[Row]) -> None:
        """Learns log ratios of frequencies: of the looks of an answer's first and last word and of
        the words before and after it, relative to the looks of all words; and of the lengths of
        answers, relative to a uniform distribution."""
        num_looks = len(self.looks)
        everywhere = np.ones(num_looks)
        ends = np.zeros((2, len(ASKING) + 1, num_looks))
        around = np.zeros((2, num_looks))
        lengths = np.zeros(self.max_words)
        for row in train:
            context, asking = self._context(row), _asking(row["question"])
            looks = context.looks
            np.add.at(everywhere, looks[1:-1], 1)
            for first, last in context.spans(row["answers"]):
                if last - first < self.max_words:
                    ends[0, asking, looks[1 + first]] += 1
                    ends[1, asking, looks[1 + last]] += 1
                    around[0, looks[first]] += 1
                    around[1, looks[last + 2]] += 1
                    lengths[last - first] += 1
        everywhere /= everywhere.sum()
        self.first, self.last = (_log_ratio(counts, everywhere) for counts in ends)
        self.before, self.after = _log_ratio(around, everywhere)
        self.length = _log_ratio(lengths, np.full(self.max_words, 1 / self.max_words))

    def _best(self, row: Row, window: int, weight: float) -> tuple[float, str]:
        """Returns the score and the text of the best span. Ties go to the first, then to the
        shortest."""
        context = self._context(row)
        n = len(context.lower)
        if not n:
            return -np.inf, ""
        asking, looks = _asking(row["question"]), context.looks
        first = np.arange(n)[:, None]
        last = first + np.arange(self.max_words)
        inside = last < n
        last = np.minimum(last, n - 1)
        inside &= context.sentence[first] == context.sentence[last]

        total = np.concatenate([[0.0], np.cumsum(context.rarity(row["question"]))])
        low, high = np.maximum(first - window, 0), np.minimum(last + 1 + window, n)
        own = total[last + 1] - total[first]
        scores = weight * (total[high] - total[low] - 2 * own)  # words around minus inside
        scores = scores + self.first[asking, looks[1 + first]] + self.last[asking, looks[1 + last]]
        scores += self.before[looks[first]] + self.after[looks[last + 2]] + self.length
        scores[~inside] = -np.inf
        start, more = np.unravel_index(scores.argmax(), scores.shape)
        begin, end = context.begins[start], context.ends[start + more]
        return float(scores[start, more]), row["context"][begin:end]

    def _context(self, row: Row) -> "_Context":
        """Returns the words of a row's context; cached, because many questions may share it."""
        text = row["context"]
        if text not in self._contexts:
            self._contexts[text] = _Context(text, self.looks)
        return self._contexts[text]


class _Context:
    """The words of a text and their positions; ``looks`` has an edge before and after them."""

    def __init__(self, text: str, looks: Mapping[str, int]) -> None:
        matches = list(WORD.finditer(text))
        words = [match[0] for match in matches]
        self.lower = [word.lower() for word in words]
        self.begins = np.array([match.start() for match in matches], dtype=int)
        self.ends = np.array([match.end() for match in matches], dtype=int)
        self.sentence = np.cumsum([word in SIGNS for word in words])
        of_words = (looks.get(word.lower(), looks[_shape(word)]) for word in words)
        self.looks = np.array([looks["<edge>"], *of_words, looks["<edge>"]])
        self._counts = Counter(self.lower)

    def rarity(self, question: str) -> np.ndarray:
        """Returns, for each word of the text, log(1 + 1 / count in the text) if the question has
        the word, else 0."""
        given = {match[0].lower() for match in WORD.finditer(question) if match[0][0].isalnum()}
        return np.array([np.log1p(1 / self._counts[w]) if w in given else 0.0 for w in self.lower])

    def spans(self, answers: Iterable[Row]) -> list[tuple[int, int]]:
        """Returns the indices of the first and the last word of each answer."""
        spans = []
        for answer in answers:
            start = answer["answer_start"]
            first = int(np.searchsorted(self.ends, start, side="right"))
            last = int(np.searchsorted(self.begins, start + len(answer["text"]))) - 1
            if first <= last:
                spans.append((first, last))
        return spans


def _log_ratio(counts: np.ndarray, everywhere: np.ndarray) -> np.ndarray:
    """Returns the log ratio of smoothed frequencies to ``everywhere``; all 0 without counts."""
    smoothed = counts + PRIOR * everywhere
    return np.log(smoothed / smoothed.sum(axis=-1, keepdims=True) / everywhere)


def _asking(question: str) -> int:
    """Returns the index of the item of ASKING that comes first in the question, or ``len(ASKING)``
    if the question has none."""
    words = f" {' '.join(match[0].lower() for match in WORD.finditer(question))} "
    places = [words.find(f" {word} ") for word in ASKING]
    occurring = [(place, i) for i, place in enumerate(places) if place >= 0]
    return min(occurring)[1] if occurring else len(ASKING)


def _shape(word: str) -> str:
    if not any(c.isalnum() for c in word):
        return "<sign>"
    if any(c.isdigit() for c in word):
        return "<number>"
    return "<capital>" if word[0].isupper() else "<lower>"
