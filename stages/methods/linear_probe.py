"""The linear probe: the head alone is fitted, to frozen features (Alain and Bengio 2017)."""

from stages.methods._logistic import LogisticHead


class LinearProbe(LogisticHead):
    """Fits a ``LogisticHead`` to the states of the frozen model. The states of an ELMo are the mean
    of its layers: their mix is not fitted.
    """

    fits = ("classification", "multi_label", "regression", "tagging")
