from typing import Any

import pytest

from stages.baselines._baseline import BASELINES, Score
from stages.baselines.crf import Crf
from stages.baselines.linear_svc import LinearSvc
from stages.baselines.majority import Majority
from stages.baselines.nearest import Nearest
from stages.baselines.overlap import Overlap
from stages.baselines.sliding_window import SlidingWindow
from stages.baselines.tfidf import Tfidf
from stages.core.seeding import stream
from stages.evaluation.metrics import entities
from stages.tasks._task import TASKS

FRUIT = ["apple", "pear", "plum", "cherry"]
TOOLS = ["hammer", "saw", "drill", "wrench"]
macro_f1 = Score(TASKS["classification"], "macro_f1")
entity_f1 = Score(TASKS["tagging"], "entity_f1")
squad_f1 = Score(TASKS["span_qa"], "squad_f1")
pearson = Score(TASKS["regression"], "pearson")
accuracy = Score(TASKS["multiple_choice"], "accuracy")
bleu = Score(TASKS["seq2seq"], "bleu")
micro_f1 = Score(TASKS["multi_label"], "micro_f1")


def texts(num: int, seed: int) -> list[dict]:
    rng = stream(seed, "texts")
    kinds = [("fruit", FRUIT), ("tool", TOOLS)]
    chosen = [kinds[i] for i in rng.integers(2, size=num)]
    return [{"text": f"The {rng.choice(w)} lies there.", "label": label} for label, w in chosen]


def sentences(num: int, seed: int) -> list[dict]:
    """Returns sentences with names that follow "call" and end in brackets."""
    rng = stream(seed, "sentences")
    return [
        {
            "words": ["Then", "call", f"{name}()", "again", "."],
            "tags": ["O", "O", "B-CODE", "O", "O"],
        }
        for name in rng.choice(FRUIT + TOOLS, size=num)
    ]


def unlabelled(rows: list[dict]) -> list[dict]:
    return [{k: v for k, v in row.items() if k not in ("label", "tags")} for row in rows]


def test_baselines_say_what_they_fit_and_build_without_settings() -> None:
    for name in BASELINES.names():
        baseline = BASELINES.build({"name": name}, where=f"baselines.{name}")
        assert set(baseline.fits) <= set(TASKS) and baseline.fits


@pytest.mark.parametrize(
    ("score", "train", "row", "expected"),
    [
        (macro_f1, [{"label": label} for label in "abb"], {"text": "x"}, "b"),
        (macro_f1, [{"label": label} for label in "ba"], {"text": "x"}, "a"),  # a tie
        (entity_f1, sentences(3, seed=1), {"words": ["one", "two"]}, "O O"),
        (squad_f1, [{"answers": a} for a in ([{"text": "a"}], [], [])], {"question": "x"}, ""),
        (accuracy, [{"choices": ["a", "b"], "label": n} for n in "110"], {"choices": "cde"}, "1"),
        (micro_f1, [{"labels": []}] * 3, {"text": "x"}, "[]"),
    ],
)
def test_majority_predicts_the_commonest_answer_in_any_order(score, train, row, expected) -> None:
    for rows in (train, train[::-1]):
        majority = Majority()
        majority.fit(rows, [], score)
        assert majority.predict([row, row]) == [expected] * 2


@pytest.mark.parametrize("cls", [Tfidf, LinearSvc])
def test_linear_baselines_learn_what_words_say(cls: type[LinearSvc]) -> None:
    baseline, test = cls(), texts(50, seed=3)
    baseline.fit(texts(40, seed=1), texts(20, seed=2), macro_f1)
    assert baseline.predict(unlabelled(test)) == [row["label"] for row in test]


def test_tfidf_reads_parts_of_words_where_whole_words_were_never_seen() -> None:
    """Classifies surnames by their endings."""
    made = [
        {"text": f"{stem}{end}", "label": label}
        for stem in ("Ban", "Cor", "Del", "Far", "Gor", "Hol", "Kam", "Lor", "Mar", "Nor")
        for end, label in (("enko", "one"), ("ssen", "two"))
    ]
    tfidf = Tfidf()
    tfidf.fit(made[:10], made[10:14], macro_f1)
    assert tfidf.predict(unlabelled(made[14:])) == [row["label"] for row in made[14:]]


def test_crf_never_continues_nothing_and_finds_spans_of_two_words() -> None:
    """The second word of a span is any word, so that only the word before it helps."""
    rng = stream(1, "spans")
    rows = []
    for _ in range(60):
        first, second, third = rng.choice(FRUIT + TOOLS, size=3)
        rows.append(
            {
                "words": ["see", "New", first, "and", second, third],
                "tags": ["O", "B-PLACE", "I-PLACE", "O", "O", "O"],
            }
        )
    crf = Crf()
    crf.fit(rows[:30], rows[30:40], entity_f1)
    predicted = crf.predict(unlabelled(rows[40:]))
    assert entity_f1(rows[40:], predicted) == 1.0
    for tags in crf.predict([{"words": ["apple", "New", "apple", "apple"]}, {"words": []}]):
        assert entities(tags.split()) == entities(tags.replace("O I-", "O B-").split())


def test_tfidf_chooses_regularisation_by_validation_alone() -> None:
    """A planted score prefers the second model, and its choice does not depend on training."""
    scored_rows: list[Any] = []

    class SecondIsBest(Score):
        def __call__(self, rows: Any, predicted: Any) -> float:
            scored_rows.append(rows)
            return float(len(scored_rows) == 2)

    validation = texts(5, seed=2)
    tfidf = Tfidf(C=[0.001, 1.0, 1000.0])
    tfidf.fit(texts(20, seed=1), validation, SecondIsBest(TASKS["classification"], "macro_f1"))
    assert scored_rows == [validation] * tfidf.num_tries
    assert tfidf.model.C == 1.0


def test_nearest_gives_the_target_of_the_text_that_is_most_alike() -> None:
    train = [
        {"text": "a dog runs", "target": "ein Hund rennt"},
        {"text": "a cat sleeps", "target": "eine Katze schläft"},
        {"text": "a cat sleeps", "target": "never the second of equals"},
    ]
    nearest = Nearest()
    nearest.fit(train, [], bleu)
    rows = [{"text": text} for text in ("the dog runs away", "one cat", "a cat sleeps", "xyz", "")]
    assert nearest.predict(rows) == [train[i]["target"] for i in (0, 1, 1, 0, 0)]


NAMES = ["Ada", "Bela", "Cleo", "Dora", "Ezra", "Finn"]
MADE = ["a kite", "a boat", "a lamp", "a drum", "a coat", "a book"]


def questions(num: int, seed: int, *, none: float = 0.0) -> list[dict]:
    """Returns questions on who made one of the six things of a text, or on who cooked soup, which
    is not in the text."""
    rng = stream(seed, "questions")
    rows = []
    for i in range(num):
        names, things = rng.permutation(NAMES), rng.permutation(MADE)
        context = " ".join(
            f"Long ago in {1900 + year} the clever {name} made {thing} for all of us to see."
            for year, (name, thing) in enumerate(zip(names, things, strict=True))
        )
        place = int(rng.integers(6))
        answers = [{"text": str(names[place]), "answer_start": context.index(names[place])}]
        question = f"Who made {things[place]}?"
        if rng.random() < none:
            answers, question = [], "Who cooked soup?"
        rows.append({"id": str(i), "question": question, "context": context, "answers": answers})
    return rows


@pytest.mark.parametrize("none", [0.0, 0.5])
def test_sliding_window_finds_names_beside_words_of_the_question_or_no_answer(none) -> None:
    baseline, test = SlidingWindow(), questions(40, seed=3, none=none)
    baseline.fit(questions(40, seed=1, none=none), questions(20, seed=2, none=none), squad_f1)
    predicted = baseline.predict([{k: v for k, v in row.items() if k != "answers"} for row in test])
    assert squad_f1(test, predicted) > 0.9
    assert all(text in row["context"] for row, text in zip(test, predicted, strict=True))
    assert all(predicted) or none
    assert baseline.predict([{"question": "Who?", "context": ""}]) == [""]


def rated(num: int, seed: int) -> list[dict]:
    """Returns pairs whose target is 100 times the number of words that they share."""
    rng = stream(seed, "rated")
    rows = []
    for _ in range(num):
        words = rng.choice(FRUIT + TOOLS, size=4, replace=False).tolist()
        same = int(rng.integers(5))
        pair = [*words[:same], *["stone"] * (4 - same)]
        target = 100.0 * same
        rows.append({"text": " ".join(words), "text_pair": " ".join(pair), "target": target})
    return rows


def test_tfidf_learns_how_alike_two_texts_are_and_the_mean_learns_nothing() -> None:
    train, validation, test = (rated(n, seed) for seed, n in enumerate((60, 30, 50)))
    scores, inputs = {}, [{k: v for k, v in row.items() if k != "target"} for row in test]
    for baseline in (Tfidf(), Majority()):
        baseline.fit(train, validation, pearson)
        scores[type(baseline)] = pearson(test, baseline.predict(inputs))
    assert scores[Tfidf] > 0.95 and scores[Majority] == 0
    mean = sum(row["target"] for row in train) / 60
    assert float(baseline.predict(inputs)[0]) == pytest.approx(mean)


def topics(num: int, seed: int) -> list[dict[str, Any]]:
    """Returns texts with labels, each of which says whether the text has words of one kind."""
    rng, rows = stream(seed, "topics"), []
    for _ in range(num):
        kinds = [kind for kind in (FRUIT, TOOLS) if rng.random() < 0.5]
        words = ["a", "text", *(str(rng.choice(kind)) for kind in kinds)]
        names = {id(FRUIT): "fruit", id(TOOLS): "tools"}
        labels = sorted(names[id(kind)] for kind in kinds)
        rows.append({"text": " ".join(words), "labels": labels})
    return rows


def test_labels_are_learnt_each_by_itself_and_not_by_the_majority() -> None:
    train, validation, test = (topics(n, seed) for seed, n in enumerate((100, 40, 100)))
    inputs = [{"text": row["text"]} for row in test]
    assert {tuple(row["labels"]) for row in test} == {
        *((), ("fruit",), ("tools",), ("fruit", "tools"))
    }
    scores = {}
    for baseline in (Tfidf(), LinearSvc(), Majority()):
        baseline.fit(train, validation, micro_f1)
        scores[type(baseline)] = micro_f1(test, baseline.predict(inputs))
    assert scores[Tfidf] > 0.95 < scores[LinearSvc] and 0.3 < scores[Majority] < 0.75


def test_overlap_chooses_what_repeats_the_text_and_the_first_of_equal_ones() -> None:
    rows = [
        {"text": "The hammer lies there.", "choices": ["an apple", "this hammer"], "label": "1"},
        {"text": "What?", "question": "The pear?", "choices": ["no", "a pear", "the saw"]},
        {"text": "Nothing.", "choices": ["plum", "cherry"]},
    ]
    overlap = Overlap()
    overlap.fit(rows[:1], [], accuracy)
    assert overlap.predict(rows) == ["1", "2", "0"]  # in the second, only "the" is known
    overlap.fit(rows, [], accuracy)
    assert overlap.predict(rows) == ["1", "1", "0"]
