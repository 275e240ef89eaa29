"""Tasks as text-to-text tasks: the text that is read and the text that is written."""

from typing import Any

import pytest

from stages.tasks._task import TASKS
from stages.tasks._text_to_text import TextToText
from stages.text.batch import IGNORE_INDEX
from stages.text.tokenizer import BOS_ID, EOS_ID
from tests.models.test_hub import tokenizer_of
from tests.small import small_tokenizer
from tests.small_hub import checkpoint

pytestmark = pytest.mark.usefixtures("one_thread")


def task(name: str, labels: list[str], *, max_tokens: int = 48, tokenizer: Any = None, **settings):
    record = {"task": {"name": name, **settings}, "labels": labels}
    of = TASKS.build(
        record["task"], labels, tokenizer or small_tokenizer(), max_tokens, where="task"
    )
    return TextToText("films", record, of)


LABELS = ["none", "some_class"]


def test_encode_puts_a_row_and_its_answer_between_their_marks() -> None:
    of = task("classification", LABELS)
    (example,) = of.encode([{"id": "1", "text": "a value", "label": "some_class"}])
    batch = of.collate([example], rngs=[])
    text, target = small_tokenizer().encode(["films text: a value", "some class"])
    assert batch.input_ids.tolist() == [[BOS_ID, *text, EOS_ID]]
    assert batch.labels is not None and batch.labels.tolist() == [[*target, EOS_ID]]
    assert batch.num_targets == {"target": len(target) + 1}
    (unknown,) = of.encode([{"id": "1", "text": "a value"}])
    assert unknown.labels.tolist() == [IGNORE_INDEX]


def test_text_to_text_refuses_a_label_that_a_tokenizer_cannot_write() -> None:
    """The vocabulary of this T5 has neither the character nor bytes to write it with."""
    tokenizer = tokenizer_of(checkpoint("t5"))
    assert task("classification", ["a", "b"], tokenizer=tokenizer).max_target_tokens >= 2
    with pytest.raises(ValueError, match="the tokenizer cannot write '\N{SNOWMAN}'"):
        task("classification", ["a", "b"], tokenizer=tokenizer, verbalisers=["a=\N{SNOWMAN}"])


@pytest.mark.parametrize("tokenizer", ["ours", "t5", "bart", "gpt2"])
def test_encode_cuts_the_longer_text_of_a_pair_and_no_name(tokenizer) -> None:
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
