import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from stages.baselines._baseline import Baseline, Counts, Row, Score

WORD = re.compile(r"\w+(?:[.,'’-]\w+)*|[^\w\s]")  # a word, a number or a sign
MAX_WORDS = 10  # that an answer has at most; a sign counts as one
SIGNS = ".?!;"  # signs that end a sentence; an answer lies within a sentence


class SlidingWindow(Baseline):
    """The span of a context with the most words of the question around it (Richardson et al. 2013).

    A word of the question adds log(1 + 1 / its count in the context) to the score if it is within a
    window before or after the span, and subtracts it if it is in the span. The log of the share of
    training's answers that have the span's length is added, for spans of at most MAX_WORDS.

    Validation chooses the size of the window and, if some training rows have no answer, the score
    below which no answer is given.
    """

    fits = ("span_qa",)

    def __init__(self, *, windows: Counts = (3, 5, 10, 20)) -> None:
        self.windows, self.num_tries = sorted(windows), len(windows)

    def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
        answers = [answer["text"] for row in train for answer in row["answers"]]
        counts = Counter(len(WORD.findall(answer)) for answer in answers)
        frequency = np.array([counts[length] + 1 for length in range(1, MAX_WORDS + 1)])
        self.of_length = np.log(frequency / frequency.sum())
        best = -1.0
        for window in self.windows:
            spans = [self._best(row, window) for row in validation]
            thresholds = [-np.inf]
            if not all(row["answers"] for row in train):
                thresholds += np.quantile([s for s, _ in spans], np.arange(1, 10) / 10).tolist()
                thresholds.append(np.inf)
            for threshold in thresholds:
                value = score(validation, [text if s >= threshold else "" for s, text in spans])
                if value > best:
                    best, self.window, self.threshold = value, window, threshold

    def predict(self, rows: Sequence[Row]) -> list[str]:
        spans = [self._best(row, self.window) for row in rows]
        return [text if score >= self.threshold else "" for score, text in spans]

    def _best(self, row: Row, window: int) -> tuple[float, str]:
        """Returns the score and the text of the best span. Ties go to the first, then to the
        shortest."""
        matches = [*WORD.finditer(row["context"])]
        words = [match[0].lower() for match in matches]
        n = len(words)
        if not n:
            return -np.inf, ""
        counts = Counter(words)
        asked_words = {match[0].lower() for match in WORD.finditer(row["question"])}
        rarity = [
            np.log1p(1 / counts[w]) if w in asked_words and w[0].isalnum() else 0.0 for w in words
        ]
        total = np.concatenate([[0.0], np.cumsum(rarity)])
        sentence = np.cumsum([word in SIGNS for word in words])
        first = np.arange(n)[:, None]
        last = first + np.arange(MAX_WORDS)
        inside = last < n
        last = np.minimum(last, n - 1)
        inside &= sentence[first] == sentence[last]
        low, high = np.maximum(first - window, 0), np.minimum(last + 1 + window, n)
        own = total[last + 1] - total[first]
        scores = np.where(inside, total[high] - total[low] - 2 * own + self.of_length, -np.inf)
        start, more = np.unravel_index(scores.argmax(), scores.shape)
        text = row["context"][matches[start].start() : matches[start + more].end()]
        return float(scores[start, more]), text
