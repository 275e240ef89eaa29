from collections.abc import Sequence

import numpy as np

from stages.baselines._baseline import Baseline, Row, Score
from stages.kinds.regression import written


class Mean(Baseline):
    """The mean target of the train rows, for every text.

    A model that learnt nothing should score no better. The correlation of a constant is undefined
    and counts as 0.
    """

    fits = ("regression",)

    def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
        self.mean = float(np.mean([row["target"] for row in train]))

    def predict(self, rows: Sequence[Row]) -> list[str]:
        return [written(self.mean)] * len(rows)
