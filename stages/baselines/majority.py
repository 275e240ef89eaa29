from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from stages.baselines._baseline import Baseline, Row, Score
from stages.tasks._cells import written_number
from stages.tasks._task import TASKS


class Majority(Baseline):
    """The most frequent answer of train, whatever the input, or the mean of the numbers.

    It is the reference for every score: a model that learnt nothing ties with it.
    """

    fits = tuple(kind.name for kind in TASKS.values() if not (kind.generates or kind.is_own_answer))

    def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
        self.kind = score.kind
        if self.kind.name == "regression":
            self.majority = written_number(fmean(row["target"] for row in train))
            return
        counts = Counter(part for row in train for part in self.kind.answer_parts(row))
        # There is no majority if all rows are multi-label rows without labels.
        ranked = sorted(counts, key=lambda target: (-counts[target], target))
        self.majority = ranked[0] if ranked else None

    def predict(self, rows: Sequence[Row]) -> list[str]:
        if self.majority is None:
            return [self.kind.answer({self.kind.target: []}) for _ in rows]
        return [self.kind.repeated(self.majority, row) for row in rows]
