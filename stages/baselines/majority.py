from collections import Counter
from collections.abc import Sequence

from stages.baselines._baseline import Baseline, Row, Score
from stages.text.labelled import answer


class Majority(Baseline):
    """The most frequent label for every text, or the most frequent tag for every word.

    What a score means begins here: a model that learnt nothing ties with it.
    """

    fits = ("classification", "tagging")

    def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
        tags = "tags" in train[0]
        targets = [tag for row in train for tag in row["tags"]] if tags else map(answer, train)
        counts = Counter(targets)
        self.majority = min(counts, key=lambda target: (-counts[target], target))

    def predict(self, rows: Sequence[Row]) -> list[str]:
        return [" ".join([self.majority] * len(row.get("words", "."))) for row in rows]
