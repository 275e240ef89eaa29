from collections.abc import Sequence

from stages.baselines._baseline import Baseline, Row, Score, check_tries, logistic, tfidf_of_words

RIGHT, WRONG = "right", "wrong"


class ChoiceOnly(Baseline):
    """Logistic regression over TF-IDF of a choice alone: how far the choices give themselves away
    (Zellers et al. 2018, section 3; Poliak et al. 2018). The most probable choice of a row is its
    prediction, of equal ones the first.

    ``C``, the inverse strength of regularisation, is the value that scores best on validation.
    """

    fits = ("multiple_choice",)

    def __init__(self, *, max_ngram: int = 2, C: Sequence[float] = (0.1, 1.0, 10.0, 100.0)) -> None:
        check_tries(max_ngram, C=C)
        self.max_ngram, self.C, self.num_tries = max_ngram, C, len(C)

    def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
        self.vectorizer = tfidf_of_words(self.max_ngram)
        features = self.vectorizer.fit_transform([one for row in train for one in row["choices"]])
        targets = [
            RIGHT if i == int(row["label"]) else WRONG
            for row in train
            for i in range(len(row["choices"]))
        ]
        found = []
        for c in sorted(self.C):
            self.classifier = logistic(features, targets, c)
            found.append((score(validation, self.predict(validation)), self.classifier))
        self.classifier = max(found, key=lambda each: each[0])[1]

    def predict(self, rows: Sequence[Row]) -> list[str]:
        return [str(self._best(row["choices"])) for row in rows]

    def _best(self, choices: Sequence[str]) -> int:
        right = [*self.classifier.classes_].index(RIGHT)
        found = self.classifier.predict_proba(self.vectorizer.transform(choices))[:, right]
        return int(found.round(9).argmax())
