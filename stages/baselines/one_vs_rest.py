from collections.abc import Iterator, Sequence
from typing import Any

from stages.baselines._baseline import Row
from stages.baselines._linear import LinearBaseline, check_tries, fitted, logistic_regressions
from stages.kinds.multi_label import written


class OneVsRest(LinearBaseline):
    """A separate logistic regression for each label over TF-IDF of a text's words and their
    n-grams, or of the parts of its words, or of both (binary relevance; Tsoumakas and Katakis
    2007).

    Validation chooses the features, whether texts with and without a label have equal weights, and
    ``C``, the inverse strength of regularisation. All labels share these choices. The two texts of
    a pair are joined.
    """

    fits = ("multi_label",)

    def __init__(
        self,
        *,
        max_ngram: int = 2,
        max_part: int = 5,
        C: Sequence[float] = (1.0, 10.0, 100.0, 1000.0),
    ) -> None:
        check_tries(max_ngram=max_ngram, max_part=max_part, C=C)
        self.C = C
        super().__init__(max_ngram=max_ngram, max_part=max_part, num_models=2 * len(C))

    def models(self, features: Any, train: Sequence[Row]) -> Iterator[dict[str, Any]]:
        from sklearn.base import clone

        labels = sorted({label for row in train for label in row["labels"]})
        has = {label: [label in row["labels"] for row in train] for label in labels}
        for model in logistic_regressions(self.C):
            yield {label: fitted(clone(model), features, targets) for label, targets in has.items()}

    def answers(self, model: dict[str, Any], features: Any, rows: Sequence[Row]) -> list[str]:
        labels_by_row: list[list[str]] = [[] for _ in rows]
        for label, of_label in model.items():
            for labels, has in zip(labels_by_row, of_label.predict(features).tolist(), strict=True):
                labels += [label] if has else []
        return [written(labels) for labels in labels_by_row]
