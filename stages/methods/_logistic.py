"""Logistic and ridge regression on states, which methods fit as a head."""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float, Int

from stages.methods._method import Solution, SolvedMethod, States, Targets, Weights

WIDE = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
MAX_ITERATIONS = 1000
DEAD = 1e-8  # a dimension with a smaller standard deviation counts as constant
ABSENT = 30.0  # how far the logit of a class that no labelled row has is below those of others
Fitted = tuple[Float[np.ndarray, "K D"], Float[np.ndarray, " K"], int]  # weight, bias, iterations


class LogisticHead(SolvedMethod):
    """Logistic regression (for numbers, ridge regression) of scikit-learn on standardised states.
    ``C`` are the inverse strengths of the penalty that are tried: the sum of the losses plus
    ``|W|^2 / (2 C)`` is minimised. The C with the best metric on validation is kept; ties go to the
    lowest loss. (The loss alone would choose penalties so strong that rare labels are never
    predicted.)
    """

    def __init__(self, *, C: Sequence[float] = WIDE) -> None:
        if not C or min(C) <= 0:
            raise ValueError("C must be one or more numbers above 0")
        self.C = C

    def solutions(
        self, states: States, targets: Targets, weights: Weights, *, num_outputs: int
    ) -> Iterator[Solution]:
        states = states.astype(np.float64)
        mean, std = states.mean(axis=0), states.std(axis=0)
        std = np.where(std < DEAD, 1.0, std)
        states = (states - mean) / std
        for C in sorted(self.C):
            if targets.ndim == 2:
                # The logit of a label is the difference of those of having it and of lacking it,
                # whose weights w / 2 and -w / 2 have half the penalty of w.
                by_label = [_logistic(states, column, weights, C / 2, 2) for column in targets.T]
                weight = np.concatenate([w[1:] - w[:1] for w, _, _ in by_label])
                bias = np.concatenate([b[1:] - b[:1] for _, b, _ in by_label])
                iterations = max(number for _, _, number in by_label)
            elif targets.dtype.kind == "f":
                weight, bias, iterations = _ridge(states, targets, C)
            else:
                weight, bias, iterations = _logistic(states, targets, weights, C, num_outputs)
            # The same outputs from states that are not standardised.
            weight = weight / std
            bias = bias - weight @ mean
            yield Solution(C, weight, bias, iterations, iterations < MAX_ITERATIONS)


def _logistic(
    states: States, classes: Int[np.ndarray, " N"], weights: Weights, C: float, num_outputs: int
) -> Fitted:
    """Fits a logit for each class; that of a class that does not occur is far below the others."""
    from sklearn.linear_model import LogisticRegression

    known = np.unique(classes)
    weight, bias = np.zeros((num_outputs, states.shape[1])), np.zeros(num_outputs)
    iterations = 0
    if len(known) > 1:
        # Of two classes scikit-learn fits the difference w, whose halves have half the penalty.
        C = 2 * C if len(known) == 2 else C
        model = LogisticRegression(C=C, max_iter=MAX_ITERATIONS, tol=1e-5)
        model.fit(states, classes, sample_weight=weights)
        of_known, of_bias, iterations = model.coef_, model.intercept_, int(model.n_iter_.max())
        if len(known) == 2:
            of_known = np.concatenate([-of_known, of_known]) / 2
            of_bias = np.concatenate([-of_bias, of_bias]) / 2
        weight[known], bias[known] = of_known, of_bias
    absent = np.setdiff1d(np.arange(num_outputs), known)
    bias[absent] = bias[known].min() - ABSENT
    return weight, bias, iterations


def _ridge(states: States, numbers: Weights, C: float) -> Fitted:
    from sklearn.linear_model import Ridge

    model = Ridge(alpha=1 / (2 * C)).fit(states, numbers.astype(np.float64))
    return model.coef_[None], np.atleast_1d(model.intercept_), 1
