import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from stages.baselines._baseline import Baseline, Row, Score, Strengths
from stages.tasks._tags import OUTSIDE

WINDOW, MAX_AFFIX = 2, 3  # words on each side; letters
PART_LENGTHS = (2, 3, 4)  # letters
MAX_ITERATIONS = 200  # of L-BFGS


class Crf(Baseline):
    """A conditional random field over each word and its neighbours (Lafferty et al. 2001), trained
    by CRFsuite.

    Its features are the words within WINDOW, their shapes and the pairs of the nearest words; the
    word's parts of 2 to 4 letters, its first and last letters, and whether it is in brackets or in
    quotes. An I- that continues no span becomes a B- (BIO).

    Validation chooses ``c2``, the strength of L2 regularisation.
    """

    fits = ("tagging",)

    def __init__(self, *, c2: Strengths = (0.01, 0.1, 1.0)) -> None:
        self.c2, self.num_tries = sorted(c2), len(c2)

    def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
        from pycrfsuite import Trainer

        trainer = Trainer(algorithm="lbfgs", verbose=False)
        trainer.set_params({"max_iterations": MAX_ITERATIONS, "feature.possible_transitions": True})
        for row in train:
            trainer.append(_features(row["words"]), row["tags"])
        best = -float("inf")
        for c2 in self.c2:
            trainer.set("c2", c2)
            with tempfile.NamedTemporaryFile() as file:
                trainer.train(file.name)
                model = Path(file.name).read_bytes()
            value = score(validation, _tags(model, validation))
            if value > best:
                best, self.model = value, model

    def predict(self, rows: Sequence[Row]) -> list[str]:
        return _tags(self.model, rows)


def _tags(model: bytes, rows: Sequence[Row]) -> list[str]:
    """Returns the likeliest tags of each row, joined."""
    from pycrfsuite import Tagger

    tagger, answers = Tagger(), []
    tagger.open_inmemory(model)
    for row in rows:
        tags = [OUTSIDE]
        for tag in tagger.tag(_features(row["words"])):
            is_stray = tag.startswith("I-") and tags[-1] not in (f"B-{tag[2:]}", tag)
            tags.append(f"B-{tag[2:]}" if is_stray else tag)
        answers.append(" ".join(tags[1:]))
    return answers


def _features(words: Sequence[str]) -> list[list[str]]:
    """Returns the features of each word of a row."""
    edge = ["<edge>"] * WINDOW
    lower = [*edge, *(word.lower() for word in words), *edge]
    shapes = [*edge, *map(shape, words), *edge]
    around = range(-WINDOW, WINDOW + 1)
    features = []
    for i, word in enumerate(lower[len(edge) : -len(edge)], start=len(edge)):
        before, marked = words[: i - len(edge)], f"<{word}>"
        pairs = [(-1, 0), (0, 1), (-1, 1), (-2, -1), (1, 2)]
        of_word = [
            *(f"{j}={lower[i + j]}" for j in around),
            *(f"{j}~{shapes[i + j]}" for j in around),
            *(f"{j},{k}={lower[i + j]} {lower[i + k]}" for j, k in pairs),
            f"-1,0,1~{shapes[i - 1]} {shapes[i]} {shapes[i + 1]}",
            *(f"^{word[:n]}" for n in range(1, MAX_AFFIX + 1)),
            *(f"{word[-n:]}$" for n in range(1, MAX_AFFIX + 1)),
            *(f"*{marked[j : j + n]}" for n in PART_LENGTHS for j in range(len(marked) - n + 1)),
        ]
        if before.count("(") > before.count(")"):
            of_word.append("in brackets")
        if sum(each in ('"', "'") for each in before) % 2:
            of_word.append("in quotes")
        features.append(of_word)
    return features


def shape(word: str) -> str:
    """Returns the shape of a word, without repetitions: ``a_0A()`` for ``array_2D()``."""
    classes = re.sub(r"[^\W\d_]", lambda m: "A" if m[0].isupper() else "a", word)
    return re.sub(r"(.)\1+", r"\1", re.sub(r"\d", "0", classes))
