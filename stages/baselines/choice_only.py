from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from stages.baselines._baseline import Row
from stages.baselines._linear import LinearBaseline, check_tries, fitted, logistic_regressions

RIGHT, WRONG = "right", "wrong"


class ChoiceOnly(LinearBaseline):
    """Logistic regression over TF-IDF of a choice alone, without the question: it shows how far the
    choices give the answer away (Zellers et al. 2018, section 3; Poliak et al. 2018). The
    prediction is the most probable choice; ties go to the first.

    Validation chooses the features (words with their n-grams, parts of words, or both), whether
    right and wrong choices have equal weights, and ``C``, the inverse strength of regularisation.
    """

    fits = ("multiple_choice",)

    def __init__(
        self,
        *,
        max_ngram: int = 2,
        max_part: int = 5,
        C: Sequence[float] = (0.1, 1.0, 10.0, 100.0),
    ) -> None:
        check_tries(max_ngram=max_ngram, max_part=max_part, C=C)
        self.C = C
        super().__init__(max_ngram=max_ngram, max_part=max_part, num_models=2 * len(C))

    def texts(self, rows: Sequence[Row]) -> list[str]:
        """Returns each choice of each row."""
        return [choice for row in rows for choice in row["choices"]]

    def models(self, features: Any, train: Sequence[Row]) -> Iterator[Any]:
        targets = [
            RIGHT if i == int(row["label"]) else WRONG
            for row in train
            for i in range(len(row["choices"]))
        ]
        return (fitted(model, features, targets) for model in logistic_regressions(self.C))

    def answers(self, model: Any, features: Any, rows: Sequence[Row]) -> list[str]:
        right = [*model.classes_].index(RIGHT)
        probabilities = model.predict_proba(features)[:, right].round(9)
        ends = np.cumsum([len(row["choices"]) for row in rows])
        return [str(int(of_row.argmax())) for of_row in np.split(probabilities, ends[:-1])]
