"""Tasks whose answers are text: what is read, written and meant; and texts that are scored, whose
bits are those of their tokens, each predicted once."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stages.tasks._task import TASKS
from stages.tasks._text_form import NO_LABEL, TextForm, TextToText
from stages.tasks.language_modelling import LanguageModelling
from stages.tasks.seq2seq import Seq2Seq
from stages.text import tokenizer
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.tokenizer import BOS_ID, EOS_ID, Tokenizer
from tests.small import documents, headless, small_model, small_tokenizer
from tests.small_hub import checkpoint

pytestmark = pytest.mark.usefixtures("one_thread")


def form(name: str, *labels: str, facts: dict[str, Any] | None = None, **settings: Any) -> TextForm:
    record = {"task": {"name": name, **settings}, "labels": labels, **(facts or {})}
    return TASKS[name].as_text("films", record)


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


def written(own: Tokenizer, max_tokens: int) -> TextToText:
    """Classification as text to text."""
    record: dict[str, Any] = {"task": {"name": "classification"}, "labels": ["none", "some_class"]}
    of = TASKS.build(record["task"], record["labels"], own, max_tokens, where="task")
    return TextToText("films", record, of)


def test_encode_puts_a_row_and_its_answer_between_their_marks() -> None:
    of = written(small_tokenizer(), 48)
    (example,) = of.encode([{"id": "1", "text": "a value", "label": "some_class"}])
    batch: Any = of.collate([example], rngs=[])
    text, target = small_tokenizer().encode(["films text: a value", "some class"])
    assert batch.input_ids.tolist() == [[BOS_ID, *text, EOS_ID]]
    assert batch.decoder_input_ids.tolist() == [[BOS_ID, *target]]
    assert batch.labels.tolist() == [[*target, EOS_ID]]
    assert batch.num_targets == {"target": len(target) + 1}
    (unknown,) = of.encode([{"id": "1", "text": "a value"}])
    assert unknown.labels.tolist() == [IGNORE_INDEX]


@pytest.mark.parametrize("family", ["ours", "bart"])
def test_encode_cuts_the_longer_text_of_a_pair_and_no_name(family) -> None:
    own = small_tokenizer() if family == "ours" else Tokenizer(checkpoint(family))
    short, long = "a value", "return the class of a value " * 20
    for row in ({"text": short, "text_pair": long}, {"text": long, "text_pair": short}):
        cut, whole = (written(own, n).encode([{"id": "1", **row}])[0] for n in (48, 999))
        assert len(cut.tokens) == 48 and whole.num_cut == 0
        assert cut.num_cut == len(whole.tokens) - 48
        first, _, second = own.decode(cut.tokens.tolist()).partition(" text_pair: ")
        remaining = {"text": first.removeprefix("films text: "), "text_pair": second}
        for column, text in row.items():
            assert remaining[column] and text.startswith(remaining[column])
            assert remaining[column] == text or text == long


def test_seq2seq_cuts_long_texts_and_targets_and_counts_what_is_cut() -> None:
    """A target that is cut has no end mark."""
    of = Seq2Seq([], small_tokenizer(), 10, max_target_tokens=6)
    texts = {"text": "a class " * 30, "target": "a function " * 30}
    lengths = [len(ids) for ids in small_tokenizer().encode([*texts.values()])]
    rows = [texts, {"text": texts["text"]}, {"text": "a class", "target": "a def"}]
    cut, hidden_target, short = of.encode([{"id": str(i), **row} for i, row in enumerate(rows)])
    assert (len(cut.tokens), cut.tokens[-1]) == (10, EOS_ID)
    assert len(cut.labels) == 6 and EOS_ID not in cut.labels
    assert hidden_target.num_cut == lengths[0] + 2 - 10
    assert cut.num_cut == hidden_target.num_cut + lengths[1] + 1 - 6
    assert short.num_cut == 0


# Language modelling -------------------------------------------------------------------------------

TEXTS = [
    {"id": str(number), "text": " ".join(" ".join(document).split()[:number])}
    for document, number in zip(documents(), (5, 12, 30, 100), strict=False)
]


@torch.no_grad()
def test_bits_of_a_text_are_those_of_its_tokens_and_the_loss() -> None:
    model = headless(small_model("decoder")).eval()
    expected = []
    encoded = small_tokenizer().encode([row["text"] for row in TEXTS])
    for text in encoded:
        ids = torch.tensor([[BOS_ID, *text]])
        batch = Batch(input_ids=ids, document_ids=torch.ones_like(ids), num_targets={})
        logits = model.backbone.unembed(model.backbone(batch))[:, :-1].log_softmax(dim=-1)
        expected.append(-logits.gather(2, ids[:, 1:, None]).sum().item() / math.log(2))
    for max_tokens in (2000, 32):
        of = LanguageModelling([], small_tokenizer(), max_tokens)
        examples = of.encode(TEXTS)
        batch = of.collate(examples, rngs=[])
        by_row: dict[str, list[Any]] = {row["id"]: [] for row in TEXTS}
        for example, bits in zip(examples, of.predict(model, batch, examples), strict=True):
            by_row[example.id].append(bits)
        bits = [float(of.combine(row, by_row[row["id"]])) for row in TEXTS]
        if max_tokens == 2000:
            assert bits == pytest.approx(expected, rel=1e-4)
        [(weight, loss)] = of.loss(model, batch).values()
        assert weight * float(loss) / math.log(2) == pytest.approx(sum(bits), rel=1e-4)
        assert [*batch.num_targets.values()] == [sum(map(len, encoded))]


@pytest.mark.parametrize("max_tokens", [1, 2, 7, 16, 64, 2000])
def test_encode_windows_predict_each_token_once_from_those_before_it(max_tokens) -> None:
    of = LanguageModelling([], small_tokenizer(), max_tokens)
    for row in TEXTS:
        ids = np.array([BOS_ID, *small_tokenizer().encode([row["text"]])[0]])
        windows = of.encode([row])
        assert [window.window for window in windows] == [*range(len(windows))]
        at = 1
        for window in windows:
            assert len(window.tokens) == len(window.labels) <= max_tokens
            for place in np.flatnonzero(window.labels != IGNORE_INDEX):
                context = window.tokens[: place + 1]
                assert window.labels[place] == ids[at]
                assert context.tolist() == ids[at - len(context) : at].tolist()
                assert len(context) >= min(at, max_tokens // 2)
                at += 1
        assert at == len(ids)


def test_encode_refuses_a_text_that_the_tokenizer_does_not_know(tmp_path: Path) -> None:
    lines = [line for document in documents() for line in document]
    tokenizer.train(lines, tmp_path, algorithm="char", vocab_size=300, threads=1)
    of = LanguageModelling([], Tokenizer(tmp_path), 64)
    assert of.encode([{"id": "1", "text": "a class"}])
    with pytest.raises(ValueError, match="row 2: the model's tokenizer does not know"):
        of.encode([{"id": "2", "text": "a класс"}])
