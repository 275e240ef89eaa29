"""Tasks of reading as tasks of writing: the training targets, and that small models learn to
answer."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from stages.core.seeding import stream
from stages.evaluation.metrics import score
from stages.kinds._kind import KINDS
from stages.kinds._text_form import NO_LABEL
from stages.tasks._task import TASKS
from stages.tasks._text_to_text import TextToText
from stages.text.batch import IGNORE_INDEX
from stages.text.tokenizer import BOS_ID, EOS_ID
from stages.training.optimizer import AdamW
from tests.models.test_hub import tokenizer_of
from tests.small import headless, small_model, small_tokenizer
from tests.small_hub import checkpoint

pytestmark = pytest.mark.usefixtures("one_thread")

WRITERS = ("decoder", "encoder_decoder")
WORDS = ["class", "value", "return", "import"]
ANSWERS = dict(zip(WORDS, WORDS[1:] + WORDS[:1], strict=True))
STEPS, LR = 120, 2e-3
# The score of a model that knows only how often each answer is right: one class of two, all words
# tagged where half of them are, one word of four.
CHANCE = {"classification": 1 / 2, "tagging": 2 / 3, "span_qa": 1 / 4}


def task(name: str, labels: list[str], *, max_tokens: int = 48, tokenizer: Any = None, **settings):
    record = {"task": {"name": name, **settings}, "labels": labels}
    of = TASKS.build(
        record["task"], labels, tokenizer or small_tokenizer(), max_tokens, where="task"
    )
    return TextToText("films", record, of)


def questions(number: int, *, seed: int) -> Iterator[dict[str, Any]]:
    """Each word asks for another word, which is next to a word that plays no part."""
    rng = stream(seed, "questions")
    for i in range(number):
        word, other = (str(word) for word in rng.choice(WORDS, size=2))
        answers = [{"text": ANSWERS[word], "answer_start": 0}]
        context = f"{ANSWERS[word]} {other}"
        yield {"id": str(i), "question": word, "context": context, "answers": answers}


def texts(number: int, *, seed: int) -> Iterator[dict[str, Any]]:
    """The label says whether the first word is "class", the tags which words are."""
    rng = stream(seed, "texts")
    for i in range(number):
        words = [str(word) for word in rng.choice(["class", "def"], size=2)]
        tags = ["B-X" if word == "class" else "O" for word in words]
        label = "some_class" if words[0] == "class" else "none"
        yield {"id": str(i), "words": words, "tags": tags, "label": label}


def rows_of(name: str, number: int, *, seed: int) -> list[dict[str, Any]]:
    if name == "span_qa":
        return [*questions(number, seed=seed)]
    rows = [*texts(number, seed=seed)]
    if name == "tagging":
        return [{"id": row["id"], "words": row["words"], "tags": row["tags"]} for row in rows]
    return [
        {"id": row["id"], "text": " ".join(row["words"]), "label": row["label"]} for row in rows
    ]


LABELS = {"classification": ["none", "some_class"], "tagging": ["B-X", "O"], "span_qa": []}


def test_a_row_and_its_answer_stand_between_their_marks() -> None:
    of = task("classification", LABELS["classification"])
    (example,) = of.encode([{"id": "1", "text": "a value", "label": "some_class"}])
    batch = of.collate([example], rngs=[])
    text, target = small_tokenizer().encode(["films text: a value", "some class"])
    assert batch.input_ids.tolist() == [[BOS_ID, *text, EOS_ID]]
    assert batch.labels is not None and batch.labels.tolist() == [[*target, EOS_ID]]
    assert batch.num_targets == {"target": len(target) + 1}
    (unknown,) = of.encode([{"id": "1", "text": "a value"}])
    assert unknown.labels.tolist() == [IGNORE_INDEX]


def test_the_longest_answer_can_be_written() -> None:
    encode = small_tokenizer().encode
    length = max(map(len, encode(["none", "some class"]))) + 1
    assert task("classification", LABELS["classification"]).max_target_tokens == length
    longest_tag = max(map(len, encode(["B-X", "O"])))
    assert task("tagging", LABELS["tagging"]).max_target_tokens == 48 * longest_tag + 1
    settings = {"stride": 4, "max_question_tokens": 8, "max_answer_tokens": 7}
    assert task("span_qa", [], **settings).max_target_tokens == 8


def test_a_label_that_a_tokenizer_cannot_write_is_refused() -> None:
    """The vocabulary of this T5 has neither the character nor bytes to write it with."""
    tokenizer = tokenizer_of(checkpoint("t5"))
    assert task("classification", ["a", "b"], tokenizer=tokenizer).max_target_tokens >= 2
    with pytest.raises(ValueError, match="the tokenizer cannot write '\N{SNOWMAN}'"):
        task("classification", ["a", "b"], tokenizer=tokenizer, verbalisers=["a=\N{SNOWMAN}"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["classification", "tagging", "span_qa"])
@pytest.mark.parametrize("architecture", WRITERS)
def test_small_models_learn_to_answer_as_those_that_do_not_train_cannot(architecture, name) -> None:
    settings = {"stride": 4, "max_question_tokens": 8} if name == "span_qa" else {}
    of = task(name, LABELS[name], **settings)
    kind, test = KINDS[name], rows_of(name, 60, seed=2)
    gold = [kind.answer(row) for row in test]
    hidden = [{k: v for k, v in row.items() if k != kind.target} for row in test]
    train = of.encode(rows_of(name, 400, seed=1))
    model, rng = headless(small_model(architecture, d_model=64, d_ff=128)), stream(1, "batches")

    def value() -> float:
        model.eval()
        examples = of.encode(hidden)
        with torch.no_grad():
            texts_of_examples = of.predict(model, of.collate(examples, rngs=[]), examples)
        predicted = [
            of.combine(row, [one]) for row, one in zip(hidden, texts_of_examples, strict=True)
        ]
        return score(kind.metric_names[0], gold, predicted)

    before, optimizer = value(), AdamW(model, weight_decay=0.0)
    for step in range(STEPS):
        model.train()
        batch = of.collate([train[i] for i in rng.choice(len(train), size=32)], rngs=[])
        (of.loss(model, batch)["target"][1] / batch.num_targets["target"]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step(lr=LR * min(1.0, (step + 1) / 20))
    after = value()
    assert before < 0.1 and after > (1 + CHANCE[name]) / 2, (before, after)


def test_a_prediction_that_is_no_label_is_wrong() -> None:
    of = task("classification", LABELS["classification"])
    assert [of.combine({}, [text]) for text in ("none", "some class", "class", "")] == [
        "none",
        "some_class",
        NO_LABEL,
        NO_LABEL,
    ]
    assert score("accuracy", ["none", "none"], ["none", NO_LABEL]) == 0.5
    assert Counter(of.columns({}, "none")) == Counter({"label": "none"})


@pytest.mark.parametrize("tokenizer", ["ours", "t5", "bart", "gpt2"])
def test_of_a_pair_that_is_too_long_no_text_and_no_name_vanishes(tokenizer) -> None:
    """The longer text is cut first."""
    own = small_tokenizer() if tokenizer == "ours" else tokenizer_of(checkpoint(tokenizer))
    short, long = "a value", "return the class of a value " * 20
    for row in ({"text": short, "text_pair": long}, {"text": long, "text_pair": short}):
        of = task("classification", ["none", "class"], tokenizer=own)
        (example,) = of.encode([{"id": "1", **row}])
        (whole,) = task("classification", ["none", "class"], tokenizer=own, max_tokens=999).encode(
            [{"id": "1", **row}]
        )
        assert len(example.tokens) == 48 and whole.num_cut == 0
        assert example.num_cut == len(whole.tokens) - 48
        first, _, second = own.decode(example.tokens.tolist()).partition(" text_pair: ")
        remaining = {"text": first.removeprefix("films text: "), "text_pair": second}
        for column, text in row.items():
            assert (
                remaining[column] == text if text == short else text.startswith(remaining[column])
            )
            assert remaining[column]


def test_no_room_beside_the_names_is_refused() -> None:
    row = {"id": "1", "text": "a class", "text_pair": "a value"}
    with pytest.raises(ValueError, match=r"^finetune\.max_tokens: 9 "):
        task("classification", ["none", "class"], max_tokens=9).encode([row])
