import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

import numpy as np

from stages.baselines._baseline import Baseline, Row, Score

WORD = re.compile(r"\w+(?:[.,'’-]\w+)*|[^\w\s]")  # a word, a number or a sign
ASKING = ("who", "whose", "whom", "when", "where", "why", "which", "what", "how many", "how")
SIGNS = ".?!;"  # no answer reaches over these
NUM_KNOWN = 50  # words so frequent that each is told apart; the others by their shape alone
SHAPES = ("<edge>", "<sign>", "<number>", "<capital>", "<lower>")  # of a word that is not known
PRIOR = 10.0  # answers' worth of belief that they look like any other span


class SlidingWindow(Baseline):
    """The span of a context with most words of the question around it (Richardson et al. 2013),
    and with the look of an answer to such a question.

    A word of the question counts log(1 + 1 / its number in the context) if it stands within a
    window before or behind the span, and as much against a span that it stands in. The look is
    naive Bayes over the span's first and last word, given what the question asks (who, when: of
    English), its length, and its neighbours; a word is itself if it is frequent, else its shape.
    Spans are of at most ``max_words`` words, signs included.

    The window, the weight of its words beside the look, and the score below which there is no
    answer (if some training rows have none) are the values that score best on validation.
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
        known = sorted(words, key=lambda word: (-words[word], word))[:NUM_KNOWN]
        self.looks = {look: i for i, look in enumerate([*known, *SHAPES])}
        self._contexts: dict[str, _Context] = {}
        self._learn_looks(train)
        self.threshold = -np.inf
        best = -1.0
        for window, weight in product(sorted(self.windows), sorted(self.weights)):
            found = [self._best(row, window, weight) for row in validation]
            thresholds = [-np.inf]
            if not all(row["answers"] for row in train):
                thresholds += np.quantile([s for s, _ in found], np.arange(1, 10) / 10).tolist()
                thresholds.append(np.inf)
            for threshold in thresholds:
                value = score(validation, [text if s >= threshold else "" for s, text in found])
                if value > best:
                    best = value
                    self.window, self.weight, self.threshold = window, weight, threshold

    def predict(self, rows: Sequence[Row]) -> list[str]:
        found = [self._best(row, self.window, self.weight) for row in rows]
        return [text if score >= self.threshold else "" for score, text in found]

    def _learn_looks(self, train: Sequence[Row]) -> None:
        """How much more often than any word the first, the last, the one before and the one behind
        an answer looks like this, and how much more often an answer has this length; logarithms."""
        num_looks = len(self.looks)
        everywhere = np.ones(num_looks)
        ends = np.zeros((2, len(ASKING) + 1, num_looks))
        around = np.zeros((2, num_looks))
        lengths = np.zeros(self.max_words)
        for row in train:
            context, asked = self._context(row), _asked(row["question"])
            looks = context.looks
            np.add.at(everywhere, looks[1:-1], 1)
            for first, last in context.spans(row["answers"]):
                if last - first < self.max_words:
                    ends[0, asked, looks[1 + first]] += 1
                    ends[1, asked, looks[1 + last]] += 1
                    around[0, looks[first]] += 1
                    around[1, looks[last + 2]] += 1
                    lengths[last - first] += 1
        everywhere /= everywhere.sum()
        self.first, self.last = (_log_ratio(counts, everywhere) for counts in ends)
        self.before, self.behind = _log_ratio(around, everywhere)
        self.length = _log_ratio(lengths, np.full(self.max_words, 1 / self.max_words))

    def _best(self, row: Row, window: int, weight: float) -> tuple[float, str]:
        """The best span and its score; of equal ones that which begins first, then the shortest."""
        context = self._context(row)
        n = len(context.lower)
        if not n:
            return -np.inf, ""
        asked, looks = _asked(row["question"]), context.looks
        first = np.arange(n)[:, None]
        last = first + np.arange(self.max_words)
        inside = last < n
        last = np.minimum(last, n - 1)
        inside &= context.sentence[first] == context.sentence[last]

        total = np.concatenate([[0.0], np.cumsum(context.rarity(row["question"]))])
        low, high = np.maximum(first - window, 0), np.minimum(last + 1 + window, n)
        own = total[last + 1] - total[first]
        scores = weight * (total[high] - total[low] - 2 * own)  # around it, less its own
        scores = scores + self.first[asked, looks[1 + first]] + self.last[asked, looks[1 + last]]
        scores += self.before[looks[first]] + self.behind[looks[last + 2]] + self.length
        scores[~inside] = -np.inf
        start, more = np.unravel_index(scores.argmax(), scores.shape)
        begin, end = context.begins[start], context.ends[start + more]
        return float(scores[start, more]), row["context"][begin:end]

    def _context(self, row: Row) -> "_Context":
        """The words of a row's context, which many questions may be about."""
        text = row["context"]
        if text not in self._contexts:
            self._contexts[text] = _Context(text, self.looks)
        return self._contexts[text]


class _Context:
    """The words of a text and where they stand; ``looks`` has an edge before and behind them."""

    def __init__(self, text: str, known: Mapping[str, int]) -> None:
        found = list(WORD.finditer(text))
        words = [match[0] for match in found]
        self.lower = [word.lower() for word in words]
        self.begins = np.array([match.start() for match in found], dtype=int)
        self.ends = np.array([match.end() for match in found], dtype=int)
        self.sentence = np.cumsum([word in SIGNS for word in words])
        looks = (known.get(word.lower(), known[_shape(word)]) for word in words)
        self.looks = np.array([known["<edge>"], *looks, known["<edge>"]])
        self._counts = Counter(self.lower)

    def rarity(self, question: str) -> np.ndarray:
        """Of each word that the question has, log(1 + 1 / its number here); 0 of the others."""
        asked = {match[0].lower() for match in WORD.finditer(question) if match[0][0].isalnum()}
        return np.array([np.log1p(1 / self._counts[w]) if w in asked else 0.0 for w in self.lower])

    def spans(self, answers: Iterable[Row]) -> list[tuple[int, int]]:
        """The first and the last word of each answer."""
        found = []
        for one in answers:
            start = one["answer_start"]
            first = int(np.searchsorted(self.ends, start, side="right"))
            last = int(np.searchsorted(self.begins, start + len(one["text"]))) - 1
            if first <= last:
                found.append((first, last))
        return found


def _log_ratio(counts: np.ndarray, everywhere: np.ndarray) -> np.ndarray:
    """How much more frequent than everywhere; 0 where nothing was counted."""
    smoothed = counts + PRIOR * everywhere
    return np.log(smoothed / smoothed.sum(axis=-1, keepdims=True) / everywhere)


def _asked(question: str) -> int:
    """Which of ASKING stands first in the question; one more if none does."""
    words = f" {' '.join(match[0].lower() for match in WORD.finditer(question))} "
    places = [words.find(f" {word} ") for word in ASKING]
    found = [(place, i) for i, place in enumerate(places) if place >= 0]
    return min(found)[1] if found else len(ASKING)


def _shape(word: str) -> str:
    if not any(c.isalnum() for c in word):
        return "<sign>"
    if any(c.isdigit() for c in word):
        return "<number>"
    return "<capital>" if word[0].isupper() else "<lower>"
