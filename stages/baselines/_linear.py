"""Linear models over TF-IDF of texts, and the settings from which validation chooses."""

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from threadpoolctl import threadpool_limits

from stages.baselines._baseline import Baseline, Row, Score
from stages.tasks._cells import written_number
from stages.tasks._labels import written_labels

# scikit-learn is imported inside functions, so that checking settings does not take two seconds.

MAX_NGRAM, MAX_PART = 2, 5  # words of an n-gram, and characters of a part of a word


def tfidf_of_words(max_ngram: int = MAX_NGRAM) -> Any:
    """Returns scikit-learn's TF-IDF of words, signs and their n-grams, unfitted."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(
        ngram_range=(1, max_ngram), sublinear_tf=True, token_pattern=r"\w+|[^\w\s]"
    )


def classifier() -> Any:
    """Returns logistic regression over the TF-IDF of texts, unfitted, without settings to
    choose."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    return make_pipeline(tfidf_of_words(), LogisticRegression(C=10.0, max_iter=2000))


class LinearBaseline(Baseline):
    """A linear model over TF-IDF of a row's texts. The features and the model with the best score
    on validation are chosen; ties go to the first.

    The two texts of a pair are joined. For numbers the features of a pair are the cosine of the
    two, and the product and the absolute difference of their TF-IDF. For several labels there is a
    separate model for each label (binary relevance; Tsoumakas and Katakis 2007), and one choice for
    all.
    """

    features: ClassVar[Sequence[str]] = ("words", "parts", "words_and_parts")

    @abstractmethod
    def models(self) -> list[Any]:
        """Returns the unfitted models of scikit-learn from which validation chooses."""

    def vectorizers(self) -> list[Any]:
        """Returns scikit-learn's TF-IDF of each of the ``features``, unfitted; parts of words are
        character n-grams."""
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.pipeline import make_union

        words = tfidf_of_words()
        parts = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, MAX_PART), sublinear_tf=True)
        every = {"words": words, "parts": parts, "words_and_parts": make_union(words, parts)}
        return [every[name] for name in self.features]

    def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
        from sklearn.base import clone
        from sklearn.dummy import DummyClassifier
        from sklearn.multiclass import OneVsRestClassifier
        from sklearn.preprocessing import MultiLabelBinarizer

        self.kind = score.kind
        models = self.models()
        targets: Any = [row[self.kind.target] for row in train]
        if self.kind.name == "multi_label":
            labels = sorted({label for row in train for label in row["labels"]})
            # scikit-learn needs several labels, so two are added that no row has.
            self.binarizer = MultiLabelBinarizer(classes=[*labels, "", " "])
            targets = self.binarizer.fit_transform(targets)
            models = [OneVsRestClassifier(model) for model in models]
        elif self.kind.name == "classification" and len({*targets}) == 1:
            models = [DummyClassifier() for _ in models]
        best, self.num_tries = -float("inf"), len(self.features) * len(models)
        for unfitted_features in self.vectorizers():
            vectorizer = clone(unfitted_features)
            vectorizer.fit([text for row in train for text in self._texts(row)])
            inputs, held_out = (self._inputs(vectorizer, rows) for rows in (train, validation))
            for unfitted in models:
                # Several threads would take ten times as long with short vectors, and the last
                # digits would depend on their number.
                with threadpool_limits(1), warnings.catch_warnings():
                    warnings.filterwarnings("ignore", "Label .* is present in all training")
                    model = clone(unfitted).fit(inputs, targets)
                value = score(validation, self._answers(model, held_out))
                if value > best:
                    best, self.vectorizer, self.model = value, vectorizer, model

    def predict(self, rows: Sequence[Row]) -> list[str]:
        return self._answers(self.model, self._inputs(self.vectorizer, rows))

    def probabilities(self, rows: Sequence[Row]) -> list[float | None]:
        """Returns the probabilities of one label; None for other answers and other models."""
        if self.kind.name != "classification" or not hasattr(self.model, "predict_proba"):
            return [None] * len(rows)
        return self.model.predict_proba(self._inputs(self.vectorizer, rows)).max(axis=1).tolist()

    def _texts(self, row: Row) -> list[str]:
        texts = self.kind.texts(row)
        return texts if self.kind.name == "regression" else [" ".join(texts)]

    def _inputs(self, vectorizer: Any, rows: Sequence[Row]) -> Any:
        from scipy import sparse

        texts = [self._texts(row) for row in rows]
        first, *others = (vectorizer.transform(each) for each in zip(*texts, strict=True))
        if not others:
            return first
        product = first.multiply(others[0])
        cosine = sparse.csr_matrix(product.sum(axis=1))
        return sparse.hstack([cosine, product, abs(first - others[0])], format="csr")

    def _answers(self, model: Any, inputs: Any) -> list[str]:
        predicted = model.predict(inputs)
        if self.kind.name == "multi_label":
            return [*map(written_labels, self.binarizer.inverse_transform(predicted))]
        if self.kind.name == "regression":
            return [*map(written_number, predicted.tolist())]
        return predicted.tolist()
