"""Classical baselines: each learns what its kind of rows shows, by validation alone, and is fitted
again from its record."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages import fit_baseline
from stages.baselines import _kept
from stages.baselines._baseline import BASELINES, Baseline, Score, kind_of_source
from stages.baselines.crf import Crf
from stages.baselines.majority import Majority
from stages.baselines.ngram import Ngram
from stages.baselines.predictions import Predictions
from stages.baselines.sliding_window import SlidingWindow
from stages.baselines.tfidf import Tfidf
from stages.commands import inputs
from stages.core import paths
from stages.core.artifacts import read_jsonl, write_jsonl
from stages.core.keys import TrialKey
from stages.core.seeding import stream
from stages.evaluation.metrics import entities
from stages.evaluation.records import CLASSICAL, PredictionRecord, TrialRecord, read
from stages.tasks._task import TASKS
from tests.labelled_words import fit_baselines, plan_of, write_tasks
from tests.small import documents

Rows = list[dict[str, Any]]
FRUIT = ["apple", "pear", "plum", "cherry"]
TOOLS = ["hammer", "saw", "drill", "wrench"]
NAMES = ["Ada", "Bela", "Cleo", "Dora", "Ezra", "Finn"]
MADE = ["a kite", "a boat", "a lamp", "a drum", "a coat", "a book"]
METRICS = {
    "classification": "macro_f1",
    "multi_label": "micro_f1",
    "regression": "pearson",
    "tagging": "entity_f1",
    "span_qa": "squad_f1",
    "multiple_choice": "accuracy",
    "seq2seq": "bleu",
    "language_modelling": "bits_per_byte",
}
ANSWERS = ("label", "labels", "target", "tags", "answers")


def score_of(kind: str) -> Score:
    return Score(TASKS[kind], METRICS[kind])


def unlabelled(rows: Rows) -> Rows:
    return [{k: v for k, v in row.items() if k not in ANSWERS} for row in rows]


# Each kind of rows, with answers that follow from the inputs -----------------------------------


def classification(rng: np.random.Generator, i: int) -> dict[str, Any]:
    label, words = [("fruit", FRUIT), ("tool", TOOLS)][rng.integers(2)]
    return {"text": f"The {rng.choice(words)} lies there.", "label": label}


def multi_label(rng: np.random.Generator, i: int) -> dict[str, Any]:
    """Each label says whether the text has words of one kind."""
    labels = [label for label in ("fruit", "tools") if rng.random() < 0.5]
    words = [str(rng.choice(FRUIT if label == "fruit" else TOOLS)) for label in labels]
    return {"text": " ".join(["a", "text", *words]), "labels": labels}


def regression(rng: np.random.Generator, i: int) -> dict[str, Any]:
    """The target of a pair is 100 times the number of words that the two share."""
    words, same = rng.choice(FRUIT + TOOLS, size=4, replace=False).tolist(), int(rng.integers(5))
    pair = [*words[:same], *["stone"] * (4 - same)]
    return {"text": " ".join(words), "text_pair": " ".join(pair), "target": 100.0 * same}


def tagging(rng: np.random.Generator, i: int) -> dict[str, Any]:
    """The second word of a span is any word, so that only the word before it helps."""
    first, second, third = rng.choice(FRUIT + TOOLS, size=3)
    words = ["see", "New", first, "and", second, third]
    return {"words": words, "tags": ["O", "B-PLACE", "I-PLACE", "O", "O", "O"]}


def span_qa(rng: np.random.Generator, i: int, *, unanswered: float = 0.0) -> dict[str, Any]:
    """Asks who made one of the six things of a text, or who cooked soup, which no text says."""
    names, things = rng.permutation(NAMES), rng.permutation(MADE)
    context = " ".join(
        f"Long ago in {1900 + year} the clever {name} made {thing} for all of us to see."
        for year, (name, thing) in enumerate(zip(names, things, strict=True))
    )
    place = int(rng.integers(6))
    answers = [{"text": str(names[place]), "answer_start": context.index(names[place])}]
    question = f"Who made {things[place]}?"
    if rng.random() < unanswered:
        answers, question = [], "Who cooked soup?"
    return {"id": str(i), "question": question, "context": context, "answers": answers}


def rows_of(make: Callable[..., dict], number: int, seed: int, **settings: Any) -> Rows:
    rng = stream(seed, "rows")
    return [make(rng, i, **settings) for i in range(number)]


def fitted(baseline: Baseline, train: Rows, validation: Rows, kind: str) -> Any:
    baseline.fit(train, validation, score_of(kind))
    return baseline


@pytest.mark.parametrize(
    ("name", "make", "least", "of_majority"),
    [
        ("tfidf", classification, 1.0, 0.5),
        ("linear_svc", classification, 1.0, 0.5),
        ("tfidf", multi_label, 0.95, 0.75),
        ("linear_svc", multi_label, 0.95, 0.75),
        ("tfidf", regression, 0.95, 0.0),
        ("crf", tagging, 1.0, 0.0),
        ("sliding_window", span_qa, 0.9, 0.5),
    ],
)
def test_baseline_learns_and_the_majority_does_not(
    name: str, make: Callable[..., dict], least: float, of_majority: float
) -> None:
    kind = make.__name__
    train, validation, test = (rows_of(make, n, seed) for seed, n in enumerate((100, 40, 50)))
    built = BASELINES.build({"name": name}, where="baselines.a")
    learnt, majority = (fitted(each, train, validation, kind) for each in (built, Majority()))
    predicted = learnt.predict(unlabelled(test))
    assert kind in learnt.fits and score_of(kind)(test, predicted) >= least
    assert score_of(kind)(test, majority.predict(unlabelled(test))) <= of_majority
    probabilities = learnt.probabilities(unlabelled(test))
    if (name, kind) == ("tfidf", "classification"):
        assert all(0.5 < probability <= 1 for probability in probabilities)
    else:
        assert probabilities == [None] * len(test)


def test_baselines_build_without_settings_and_fit_known_kinds() -> None:
    for name in BASELINES.names():
        fits = BASELINES.build({"name": name}, where=f"baselines.{name}").fits
        assert fits and {*fits} <= {*TASKS}


@pytest.mark.parametrize(
    ("kind", "train", "row", "expected"),
    [
        ("classification", [{"label": label} for label in "abb"], {"text": "x"}, "b"),
        ("classification", [{"label": label} for label in "ba"], {"text": "x"}, "a"),  # a tie
        ("tagging", [{"tags": ["O", "B-X", "O"]}], {"words": ["one", "two"]}, "O O"),
        ("span_qa", [{"answers": a} for a in ([{"text": "a"}], [], [])], {"question": "x"}, ""),
        (
            "multiple_choice",
            [{"label": n, "choices": "ab"} for n in "110"],
            {"choices": "cde"},
            "1",
        ),
        ("multi_label", [{"labels": []}] * 3, {"text": "x"}, "[]"),
        ("regression", [{"target": 1.0}, {"target": 4.0}], {"text": "x"}, "2.5"),
    ],
)
def test_majority_predicts_the_commonest_answer_or_the_mean(kind, train, row, expected) -> None:
    for rows in (train, train[::-1]):
        majority = fitted(Majority(), rows, [], kind)
        assert majority.predict([row, row]) == [expected] * 2


# Linear models -----------------------------------------------------------------------------------


def test_tfidf_reads_parts_of_words_where_whole_words_were_never_seen() -> None:
    """Classifies surnames by their endings."""
    made = [
        {"text": f"{stem}{end}", "label": label}
        for stem in ("Ban", "Cor", "Del", "Far", "Gor", "Hol", "Kam", "Lor", "Mar", "Nor")
        for end, label in (("enko", "one"), ("ssen", "two"))
    ]
    tfidf = fitted(Tfidf(), made[:10], made[10:14], "classification")
    assert tfidf.predict(unlabelled(made[14:])) == [row["label"] for row in made[14:]]


def test_tfidf_counts_a_repeated_word_by_its_logarithm() -> None:
    for vectorizer in Tfidf().vectorizers():
        weights = vectorizer.fit_transform(["one two", "one two two two two"]).toarray()[1]
        names = [name.rpartition("__")[2] for name in vectorizer.get_feature_names_out()]
        once, often = (weights[names.index(word)] for word in ("one", "two"))
        assert often / once == pytest.approx(1 + np.log(4))


def test_tfidf_of_one_class_predicts_it() -> None:
    rows = [row for row in rows_of(classification, 20, 1) if row["label"] == "tool"]
    assert fitted(Tfidf(), rows, rows, "classification").predict([{"text": "plum"}]) == ["tool"]


def test_tfidf_chooses_regularisation_by_validation_alone() -> None:
    """A planted score prefers the second model."""
    scored_rows: list[Any] = []

    class SecondIsBest(Score):
        def __call__(self, rows: Any, predicted: Any) -> float:
            scored_rows.append(rows)
            return float(len(scored_rows) == 2)

    validation = rows_of(classification, 5, 2)
    tfidf = Tfidf(C=[0.001, 1.0, 1000.0])
    score = SecondIsBest(TASKS["classification"], "macro_f1")
    tfidf.fit(rows_of(classification, 20, 1), validation, score)
    assert scored_rows == [validation] * tfidf.num_tries
    assert tfidf.model.C == 1.0


# Sequences and spans -----------------------------------------------------------------------------


CUES = {  # sentences in which the word with a star is a name, and in which it is none
    "pair before": (["yes yes x*", "no no x*"], ["yes no x*", "no yes x*"]),
    "word and the one before": (["yes yes*", "no no*"], ["yes no*", "no yes*"]),
    "word and the one after": (["yes* yes", "no* no"], ["yes* no", "no* yes"]),
    "pair around": (["yes x* yes", "no x* no"], ["yes x* no", "no x* yes"]),
    "pair after": (["x* yes yes", "x* no no"], ["x* yes no", "x* no yes"]),
    "brackets": (["( a a a x* a a a )"], ["( ) a a a x* a a a"]),
    "quotes": (['" a a a x* a a a "'], ['" " a a a x* a a a']),
    "beginning": (["a pre_* a"], ["a tri_* a"]),
    "end": (["a _ant* a"], ["a _ert* a"]),
    "part": (["a b_uvwx_b* a"], ["a b_vuxw_b* a"]),
    "shape": (["a _* a"], ["a _9* a"]),
}


@pytest.mark.parametrize("cue", CUES)
def test_crf_learns_from_neighbours_brackets_and_forms_of_words(cue: str) -> None:
    """The letters in place of ``_`` are new in each sentence."""
    rng, rows = stream(1, "cues"), Rows()
    for i in range(80):
        letters = "".join(rng.choice([*"bcdfghjklm"], size=4))
        words = CUES[cue][i % 2][i // 2 % len(CUES[cue][0])].replace("_", letters).split()
        tags = ["B-X" if word.endswith("*") and i % 2 == 0 else "O" for word in words]
        rows.append({"words": [word.rstrip("*") for word in words], "tags": tags})
    crf = fitted(Crf(), rows[:48], rows[48:56], "tagging")
    assert score_of("tagging")(rows[56:], crf.predict(unlabelled(rows[56:]))) == 1.0


def test_crf_never_continues_nothing() -> None:
    rows = rows_of(tagging, 40, 1)
    crf = fitted(Crf(), rows[:30], rows[30:], "tagging")
    for tags in crf.predict([{"words": ["apple", "New", "apple", "apple"]}, {"words": []}]):
        assert entities(tags.split()) == entities(tags.replace("O I-", "O B-").split())


def test_sliding_window_gives_no_answer_where_the_text_has_none() -> None:
    train, validation, test = (rows_of(span_qa, 40, seed, unanswered=0.5) for seed in (1, 2, 3))
    baseline = fitted(SlidingWindow(), train, validation, "span_qa")
    predicted = baseline.predict(unlabelled(test))
    assert score_of("span_qa")(test, predicted) > 0.9
    assert all(text in row["context"] for row, text in zip(test, predicted, strict=True))
    assert baseline.predict([{"question": "Who?", "context": ""}]) == [""]


# Choices, targets, text --------------------------------------------------------------------------


def test_overlap_chooses_what_repeats_the_text_and_the_first_of_equal_ones() -> None:
    rows = [
        {"text": "The hammer lies there.", "choices": ["an apple", "this hammer"], "label": "1"},
        {"text": "What?", "question": "The pear?", "choices": ["no", "a pear", "the saw"]},
        {"text": "Nothing.", "choices": ["plum", "cherry"]},
    ]
    overlap = BASELINES.build({"name": "overlap"}, where="")
    # Fitted to the first row alone, it knows only "the" of the second.
    for train, expected in ((rows[:1], ["1", "2", "0"]), (rows, ["1", "1", "0"])):
        assert fitted(overlap, train, [], "multiple_choice").predict(rows) == expected


def test_nearest_gives_the_target_of_the_text_that_is_most_alike_and_copy_the_text() -> None:
    train = [
        {"text": "a dog runs", "target": "ein Hund rennt"},
        {"text": "a cat sleeps", "target": "eine Katze schläft"},
        {"text": "a cat sleeps", "target": "never the second of equals"},
    ]
    nearest, copy = (
        fitted(BASELINES.build({"name": name}, where=""), train, [], "seq2seq")
        for name in ("nearest", "copy")
    )
    texts = ["the dog runs away", "one cat", "a cat sleeps", "xyz", ""]
    rows = [{"text": text} for text in texts]
    assert nearest.predict(rows) == [train[i]["target"] for i in (0, 1, 1, 0, 0)]
    assert copy.predict(rows) == texts


def test_ngram_has_the_probabilities_by_hand() -> None:
    """The text "abab" has a and b twice each, and b twice after a. Below the empty context each
    byte has the probability 1/256."""
    text = [{"text": "abab"}]
    model = fitted(Ngram(orders=[2]), text, text, "language_modelling")
    unigram = (2 + 2 / 256) / (4 + 2)
    assert model.probability(ord("b"), b"") == pytest.approx(unigram)
    assert model.probability(ord("b"), b"a") == pytest.approx((2 + 1 * unigram) / (2 + 1))
    assert model.probability(ord("z"), b"") == pytest.approx((2 / 256) / 6)
    assert model.probability(ord("b"), b"z") == pytest.approx(unigram)


@pytest.mark.slow
def test_ngram_takes_fewer_bits_with_more_text_and_more_context() -> None:
    texts = [{"text": " ".join(document)[:2000]} for document in documents()[:30]]
    train, validation, test = texts[:20], texts[20:25], texts[25:]

    def bits(train: Rows, *orders: int) -> float:
        model = fitted(Ngram(orders=orders), train, validation, "language_modelling")
        for context in (b"", b"the ", b"\xff\x00", b"cla"):
            assert sum(model.probability(b, context) for b in range(256)) == pytest.approx(1)
        return score_of("language_modelling")(test, model.predict(test))

    assert 2 < bits(train, 5) < bits(train, 2) < bits(train, 1) < 5.5
    assert bits(train, 5) < 0.9 * bits(train[:2], 5)
    assert bits(train, 1, 5, 2) == bits(train, 5)


# Records -----------------------------------------------------------------------------------------


def test_refit_refuses_other_rows_and_other_answers(tmp_path, monkeypatch) -> None:
    """Other code of the baseline or another version of scikit-learn changes answers. A record has
    the settings, and no rows."""
    monkeypatch.chdir(tmp_path)
    fit_baselines()
    path = _kept.path_of(TrialKey("tfidf", 7, "type", CLASSICAL, "4", 2))
    validation = paths.examples("type") / "validation.jsonl"
    about = json.loads(path.read_text())
    assert about["component"] == {"name": "tfidf"}
    assert all(isinstance(value, str | int | dict) for value in about.values())
    with monkeypatch.context() as patch:
        patch.setattr(Tfidf, "predict", lambda self, rows: ["x"] * len(rows))
        with pytest.raises(ValueError, match=r"tfidf-4-7-2\.json: .* answers differently"):
            _kept.refit(path, paths.examples("type"))
    write_jsonl(validation, read_jsonl(validation)[1:])
    with pytest.raises(ValueError, match=r"tfidf-4-7-2\.json: .*type/examples has changed since"):
        _kept.refit(path, paths.examples("type"))


# Predictions of an external system, from a file -------------------------------------------------

FILE = Path("predictions/llm.csv")
PAIRS = [{"text": "a pear", "text_pair": "a fruit"}, {"text": "a pear", "text_pair": "a tool"}]
WHO = [{"question": "Who?", "context": "Ada."}, {"question": "I?", "context": "x"}]
CHOICES = [{"text": "a", "choices": ["x", "y"]}]
SOURCES: dict[str, dict[str, Any]] = {
    "classification": {"label_case": "fold"},
    "regression": {"decimal": "comma"},
    "multiple_choice": {"first_choice": "A"},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    FILE.parent.mkdir()


def predicted(kind: str, rows: Sequence[Mapping[str, Any]], text: str, **source: Any) -> list[str]:
    """Returns the predictions for test ``rows`` from a file with a ``text``."""
    labels = ["yes", "no", "O"] if TASKS[kind].has_classes else []
    FILE.write_text(text.replace("?\n", "prediction\n", 1), encoding="utf-8")
    baseline = Predictions(path=str(FILE))
    baseline.fit([], [], Score(kind_of_source(TASKS[kind], source), "", labels))
    return baseline.predict([{"id": str(i), **row} for i, row in enumerate(rows)])


def texts(*some: str) -> list[dict[str, str]]:
    return [{"text": text} for text in some]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("kind", "rows", "text", "expected"),
    [
        (
            "classification",
            PAIRS,
            "text,text_pair,?\na pear,a tool,NO\na pear,a fruit,yes",
            "yes no",
        ),
        ("classification", texts("a", "b"), "text,?\na,YES\nb,<no label>\n", "yes <no label>"),
        ("multi_label", texts("a", "b"), 'text,?\na,"yes,no"\nb,\n', '["no", "yes"] []'),
        ("regression", texts("a"), 'text,?\na,"1,5"\n', "1.5"),
        ("tagging", [{"words": ["a", "saw"]}], 'words,?\n"[""a"", ""saw""]",O yes', "O yes"),
        ("span_qa", WHO, "question,context,?\nWho?,Ada.,Ada\nI?,x,\n", "Ada "),
        ("seq2seq", texts("a\r\nb"), 'text,?\n"a\nb",A text.\n', "A text."),
        ("multiple_choice", CHOICES, 'text,choices,?\na,"[""x"", ""y""]",B\n', "1"),
    ],
)
def test_predictions_reads_answers_as_the_data_of_each_kind(
    kind: str, rows: list[Any], text: str, expected: str
) -> None:
    assert " ".join(predicted(kind, rows, text, **SOURCES.get(kind, {}))) == expected


@pytest.mark.usefixtures("folder")
def test_predictions_matches_repeated_inputs_and_ignores_others(capsys) -> None:
    rows, text = texts("a  b", "A b", "a b", "a b "), "text,?\nother,no\na b,yes\nA b,no\na b,yes\n"
    assert predicted("classification", rows, text) == ["yes", "no", "yes", "yes"]
    assert capsys.readouterr().err.endswith("ignored, since test does not have these inputs: 1\n")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("text,?\n", "no rows"),
        ("text,answer\na,yes\n", "line 2: no column 'prediction'"),
        ("text,?\na,yes\n", "no prediction for 2 of 3 test inputs, .* is 'b'"),
        ("text,?\na,yes\nb,no\na,no\n", "line 4: prediction differs .* line 2"),
        ("text,?\na,Yes\nb,no\nc,no\n", "line 2: prediction: unknown 'Yes'"),
        ("text,?\na,yes\nb,\nc,no\n", "line 3: prediction is empty"),
    ],
)
def test_predictions_refuses_files_that_do_not_fit(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=rf"^path: predictions/llm\.csv.*{fault}"):
        predicted("classification", texts("a", "b", "c"), text)


@pytest.mark.usefixtures("folder")
def test_predictions_has_one_file_for_each_task_of_a_folder() -> None:
    for name in ("README.md", "topic.csv", "tone.jsonl"):
        Path("predictions", name).write_text("")
    files = {"tone": Path("predictions/tone.jsonl"), "topic": Path("predictions/topic.csv")}
    assert Predictions().files(["topic", "tone", "urgency"]) == files
    assert Predictions(path="./predictions/topic.csv").files(["a"]) == {"a": files["topic"]}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("predictions/../llm.csv", "not below predictions/"),
        ("predictions/gpt", "a folder with a file for each task"),
        ("predictions/topic.csv", "a folder .*: topic.csv, tone.csv"),
        ("predictions", "named after no task: .* did you mean 'topic'"),
    ],
)
def test_predictions_refuses_paths_of_no_task(path: str, fault: str) -> None:
    for name in ("topic.csv", "topci.csv"):
        Path("predictions", name).write_text("")
    with pytest.raises(ValueError, match=f"^path: .*{fault}"):
        Predictions(path=path).files(["topic", "tone"])


@pytest.mark.usefixtures("folder")
def test_fit_baseline_repeats_an_external_system_for_each_label_budget() -> None:
    write_tasks()
    inputs.run("type", FILE)
    header, *lines = FILE.read_text().splitlines()
    FILE.write_text("\n".join([f"{header},prediction", *(f"{line},tool" for line in lines)]))
    entry = {"name": "predictions", "path": str(FILE)}
    fit_baseline.main(plan_of("type", baselines={"llm": entry}), "type")
    trials = read(paths.BASELINES / "type" / "trials.csv", TrialRecord)
    written = [(trial.model, trial.label_budget, trial.num_tries) for trial in trials]
    assert written == [("llm", "4", 0), ("llm", "all", 0)]
    records = read(paths.BASELINES / "type" / "predictions.csv.gz", PredictionRecord)
    assert len(records) == 2 * len(read_jsonl(paths.examples("type") / "test.jsonl"))
    assert {record.prediction for record in records} == {"tool"}
    assert not (paths.BASELINES / "type" / "kept").exists()
