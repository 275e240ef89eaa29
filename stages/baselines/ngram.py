import math
from collections import defaultdict
from collections.abc import Sequence

from stages.baselines._baseline import Baseline, Counts, Row, Score

NUM_BYTES = 256


class Ngram(Baseline):
    """An n-gram model of bytes with the smoothing of Witten and Bell (1991; interpolated as in
    Chen and Goodman 1999, section 2.5). A byte is predicted from at most ``order - 1`` before it.

        p(b | c) = (n(c b) + t(c) p(b | c')) / (n(c) + t(c))

    n counts occurrences, t(c) is the number of different bytes that follow c, and c' is c without
    its first byte. For the empty c, p(b | c') is 1/256. Validation chooses from ``orders`` the
    order with the fewest bits.
    """

    fits = ("language_modelling",)

    def __init__(self, *, orders: Counts = (3, 4, 5, 6)) -> None:
        self.orders, self.num_tries = orders, len(orders)

    def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
        self.counts: dict[bytes, dict[int, int]] = defaultdict(dict)
        self.totals: dict[bytes, int] = defaultdict(int)
        for row in train:
            text = row["text"].encode()
            for end, byte in enumerate(text):
                for begin in range(max(end - max(self.orders) + 1, 0), end + 1):
                    context = text[begin:end]
                    followers = self.counts[context]
                    followers[byte] = followers.get(byte, 0) + 1
                    self.totals[context] += 1
        self.order = min(
            sorted(self.orders),
            key=lambda order: sum(self.bits(row["text"], order) for row in validation),
        )

    def predict(self, rows: Sequence[Row]) -> list[str]:
        return [f"{self.bits(row['text'], self.order):.4f}" for row in rows]

    def bits(self, text: str, order: int) -> float:
        """Returns the number of bits of a whole text under the model of this order."""
        encoded = text.encode()
        return -sum(
            math.log2(self.probability(byte, encoded[max(end - order + 1, 0) : end]))
            for end, byte in enumerate(encoded)
        )

    def probability(self, byte: int, context: bytes) -> float:
        """Returns p(byte | context), interpolated from the empty context to the longest that
        occurred in training."""
        p = 1 / NUM_BYTES
        for begin in range(len(context), -1, -1):
            followers = self.counts.get(context[begin:])
            if followers is None:
                break
            total, kinds = self.totals[context[begin:]], len(followers)
            p = (followers.get(byte, 0) + kinds * p) / (total + kinds)
        return p
