from collections.abc import Sequence

import numpy as np

from stages.baselines._baseline import Baseline, Row, Score
from stages.baselines._linear import tfidf_of_words


class Overlap(Baseline):
    """The choice whose words are most similar to the words of the text and the question; ties go to
    the first.

    Similarity is the cosine of TF-IDF vectors of words and signs. Labels are not used.
    """

    fits = ("multiple_choice",)

    def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
        self.vectorizer = tfidf_of_words(max_ngram=1)
        self.vectorizer.fit([text for row in train for text in (_read(row), *row["choices"])])

    def predict(self, rows: Sequence[Row]) -> list[str]:
        return [str(self._best(row)) for row in rows]

    def _best(self, row: Row) -> int:
        text = self.vectorizer.transform([_read(row)])
        choices = self.vectorizer.transform(row["choices"])
        # Rounded, because equal choices may differ in the last digits, and the first must win.
        return int(np.round((choices @ text.T).toarray()[:, 0], 9).argmax())


def _read(row: Row) -> str:
    return f"{row['text']} {row.get('question', '')}"
