from collections import Counter
from collections.abc import Sequence

from stages.baselines._baseline import Baseline, Row, Score
from stages.kinds._kind import answer


class Majority(Baseline):
    """The most frequent label for every text, the most frequent tag for every word, or the most
    frequent answer to every question, which may be that there is none.

    What a score means begins here: a model that learnt nothing ties with it.
    """

    fits = ("classification", "tagging", "span_qa")

    def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
        counts = Counter(target for row in train for target in _targets(row))
        self.majority = min(counts, key=lambda target: (-counts[target], target))

    def predict(self, rows: Sequence[Row]) -> list[str]:
        return [" ".join([self.majority] * len(row.get("words", "."))) for row in rows]


def _targets(row: Row) -> list[str]:
    if "answers" in row:
        return [one["text"] for one in row["answers"][:1]] or [""]
    return row["tags"] if "tags" in row else [answer(row)]
