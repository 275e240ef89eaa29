"""Tasks as text: the text that is read, the text that is written, and what a written text means."""

from typing import Any

import pytest

from stages.tasks._task import TASKS
from stages.tasks._text_form import NO_LABEL, TextForm, TextToText
from stages.text.batch import IGNORE_INDEX
from stages.text.tokenizer import BOS_ID, EOS_ID
from tests.models.test_hub import tokenizer_of
from tests.small import small_tokenizer
from tests.small_hub import checkpoint

pytestmark = pytest.mark.usefixtures("one_thread")

LABELS = ["none", "some_class"]


def form(name: str, *labels: str, facts: dict[str, Any] | None = None, **settings: Any) -> TextForm:
    record = {"task": {"name": name, **settings}, "labels": labels, **(facts or {})}
    return TASKS[name].as_text("films", record)


def written(labels: list[str], *, max_tokens: int = 48, tokenizer: Any = None, **settings: Any):
    """Classification as text to text."""
    record = {"task": {"name": "classification", **settings}, "labels": labels}
    tokenizer = tokenizer or small_tokenizer()
    of = TASKS.build(record["task"], labels, tokenizer, max_tokens, where="task")
    return TextToText("films", record, of)


TEXT = {"text": "a"}
TAGGED = {"words": ["Ada", "met", "Bob"]}
SPANS = [{"text": "Ada", "answer_start": 0}, {"text": "Ada B.", "answer_start": 0}]
CHOICES = {"text": "It rained.", "choices": ["He got wet.", "He ate."], "question": "effect"}
OPTIONS = "text: It rained. question: effect choice1: He got wet. choice2: He ate."
PAIR = {"text": "a", "text_pair": "b"}
QUESTION = {"question": "Who?", "context": "Ada."}
ASKED = "question: Who? context: Ada."
ROWS: list[tuple[str, dict[str, Any], dict[str, Any], str, str]] = [
    ("classification", PAIR, {"label": "0"}, "text: a text_pair: b", "bad"),
    ("multi_label", TEXT, {"labels": ["very_good", "0"]}, "text: a", "bad, very good"),
    ("multi_label", TEXT, {"labels": []}, "text: a", "none"),
    ("tagging", TAGGED, {"tags": ["B-X", "O", "B-X"]}, "words: Ada met Bob", "B-X O B-X"),
    ("span_qa", QUESTION, {"answers": SPANS}, ASKED, "Ada"),
    ("span_qa", QUESTION, {"answers": []}, ASKED, ""),
    ("regression", TEXT, {"target": 2.57}, "text: a", "2.6"),
    ("regression", TEXT, {"target": -0.04}, "text: a", "0.0"),
    ("multiple_choice", CHOICES, {"label": "1"}, OPTIONS, "He ate."),
]


@pytest.mark.parametrize(("name", "row", "target", "read", "answer"), ROWS)
def test_input_and_answer_of_a_row_and_prediction_of_the_answer(
    name, row, target, read, answer
) -> None:
    kind, is_labelled = TASKS[name], "label" in name or name == "classification"
    labels = ["0", "very_good"] if is_labelled else ["B-X", "O"] * (name == "tagging")
    settings: dict[str, Any] = {"verbalisers": ["0=bad"]} if is_labelled else {}
    of = form(name, *labels, **settings)
    assert of.input(row) == of.input(row | target) == f"films {read}"
    assert of.answer(row | target) == answer and of.answer(row) is None
    if name == "regression":
        assert float(of.prediction(row, answer)) == float(answer)
    else:
        assert of.prediction(row, answer) in kind.right_answers(kind.answer(row | target))


def test_prediction_of_other_texts_is_wrong_or_the_mean() -> None:
    classes = form("classification", "0", "very_good", verbalisers=["0=bad"])
    assert classes.prediction({}, " very  good ") == "very_good"
    for other in ("0", "very", "Very good", "very good film", ""):
        assert classes.prediction({}, other) == NO_LABEL
    tags = form("tagging", "B-X", "O")
    assert tags.prediction(TAGGED, "B-Y B-X") == "O B-X O"  # no such tag, and too few
    assert tags.prediction(TAGGED, "O O B-X B-X B-X") == "O O B-X"
    choices = form("multiple_choice")
    assert choices.prediction(CHOICES, "he  ate.") == "1"
    assert choices.prediction(CHOICES, "He") == choices.prediction(CHOICES, "") == NO_LABEL
    numbers = form("regression", facts={"target_mean": 2.5}, text_step=25.0)
    assert numbers.answer({"text": "a", "target": 61}) == "50.0"
    assert numbers.prediction({}, "2 . 6") == "2.6"
    assert {numbers.prediction({}, text) for text in ("", "two", "2.6.", "nan", "inf")} == {"2.5"}


def test_encode_puts_a_row_and_its_answer_between_their_marks() -> None:
    of = written(LABELS)
    (example,) = of.encode([{"id": "1", "text": "a value", "label": "some_class"}])
    batch = of.collate([example], rngs=[])
    text, target = small_tokenizer().encode(["films text: a value", "some class"])
    assert batch.input_ids.tolist() == [[BOS_ID, *text, EOS_ID]]
    assert batch.labels is not None and batch.labels.tolist() == [[*target, EOS_ID]]
    assert batch.num_targets == {"target": len(target) + 1}
    (unknown,) = of.encode([{"id": "1", "text": "a value"}])
    assert unknown.labels.tolist() == [IGNORE_INDEX]


@pytest.mark.parametrize("tokenizer", ["ours", "bart"])
def test_encode_cuts_the_longer_text_of_a_pair_and_no_name(tokenizer) -> None:
    own = small_tokenizer() if tokenizer == "ours" else tokenizer_of(checkpoint(tokenizer))
    short, long = "a value", "return the class of a value " * 20
    for row in ({"text": short, "text_pair": long}, {"text": long, "text_pair": short}):
        cut, whole = (
            written(LABELS, tokenizer=own, max_tokens=n).encode([{"id": "1", **row}])[0]
            for n in (48, 999)
        )
        assert len(cut.tokens) == 48 and whole.num_cut == 0
        assert cut.num_cut == len(whole.tokens) - 48
        first, _, second = own.decode(cut.tokens.tolist()).partition(" text_pair: ")
        remaining = {"text": first.removeprefix("films text: "), "text_pair": second}
        for column, text in row.items():
            assert remaining[column] and text.startswith(remaining[column])
            assert remaining[column] == text or text == long
