from collections.abc import Sequence

import numpy as np

from stages.baselines._baseline import Baseline, Row, Score
from stages.baselines._linear import tfidf_of_words

AT_ONCE = 512  # number of rows whose similarities to all of train are in memory at once


class Nearest(Baseline):
    """The target of the most similar training text: translation by memory.

    Similarity is the cosine of TF-IDF vectors of words, signs and their n-grams; ties go to the
    first text in train. Nothing is chosen on validation.
    """

    fits = ("seq2seq",)

    def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
        self.vectorizer = tfidf_of_words()
        self.features = self.vectorizer.fit_transform(row["text"] for row in train)
        self.targets = [row["target"] for row in train]

    def predict(self, rows: Sequence[Row]) -> list[str]:
        features = self.vectorizer.transform(row["text"] for row in rows)
        targets: list[str] = []
        for at in range(0, len(rows), AT_ONCE):
            similar = (features[at : at + AT_ONCE] @ self.features.T).toarray()
            # Rounded, because equal texts may differ in the last digits, and the first must win.
            targets += [self.targets[i] for i in np.round(similar, 9).argmax(axis=1)]
        return targets
