"""For every task, architecture and family of public checkpoints: the logits that a label is
predicted from have a gradient at the embedding of each token inside the unit that is labelled."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from stages.models._backbone import Backbone
from stages.models._heads import ModelWithHead, initialise_head, log_likelihoods
from stages.tasks._task import TASKS, Example, Task
from stages.tasks._text_form import TextToText
from stages.text.batch import Batch
from stages.text.tokenizer import Tokenizer
from tests.models.test_hub import published, tokenizer_of
from tests.small import ARCHITECTURES, small_model, small_tokenizer
from tests.small_hub import FAMILIES, checkpoint

pytestmark = pytest.mark.usefixtures("one_thread")

PREFIX = "prefix"  # a decoder that was pretrained to read its input in both directions
READERS = (*ARCHITECTURES, PREFIX, *FAMILIES)
CAUSAL = ("decoder", "gpt2")
WRITERS = ("decoder", PREFIX, "encoder_decoder", "gpt2", "t5", "bart")
LABELS = ["B-X", "I-X", "O"]
TEXT = {"id": "1", "text": "a class of their own", "label": "O"}
PAIR = {**TEXT, "text_pair": "returns objects, and an antidisestablishmentarian one"}
WORDS = {
    "id": "1",
    "words": ["The", "antidisestablishmentarian", "class", "x.y_z()", "漢字"],
    "tags": ["O", "O", "B-X", "I-X", "O"],
}
QUESTION = {
    "id": "1",
    "question": "What is it?",
    "context": "A class returns its objects.",
    "answers": [{"text": "objects", "answer_start": 20}],
}
SPAN = {"stride": 2, "max_question_tokens": 24, "max_answer_tokens": 5}
# A labelled unit: the positions of its tokens, and the logits that its label is read from.
Unit = tuple[list[int], Callable[[ModelWithHead, Batch], Tensor]]


@cache
def reader(name: str) -> tuple[Backbone, Tokenizer]:
    if name in FAMILIES:
        return published(checkpoint(name)).eval(), tokenizer_of(checkpoint(name))
    return small_model("decoder" if name == PREFIX else name).eval(), small_tokenizer()


def task_of(name: str, settings: dict[str, Any], by: str, *, as_text: bool = False) -> Task:
    backbone, tokenizer = reader(by)
    entry = {"name": name, **settings}
    labels = [] if name in ("span_qa", "language_modelling") else LABELS
    of: Task = TASKS.build(entry, labels, tokenizer, 64, where="task")
    if as_text:
        of = TextToText("films", {"task": entry, "labels": labels}, of)
    of.read_by(backbone, has_prefix=by == PREFIX)
    return of


def model_of(of: Task, by: str) -> ModelWithHead:
    backbone, _ = reader(by)
    head = of.head(backbone)
    initialise_head(head, generator=torch.Generator().manual_seed(1), std=0.5)
    return ModelWithHead(backbone, head).eval()


def check(of: Task, by: str, row: dict[str, Any], units: Callable[..., Iterator[Unit]]) -> None:
    """Checks that the embedding of each token of a unit affects the unit's logits."""
    (example,) = of.encode([row])
    assert not example.num_cut
    model, batch, embedded = model_of(of, by), of.collate([example], rngs=[]), list[Tensor]()

    def keep(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        length = batch.input_ids.shape[1]
        is_embedding = isinstance(module, nn.Embedding)
        if is_embedding and torch.equal(arguments[0][:, :length], batch.input_ids):
            embedded.append(output)

    for positions, logits_of in units(by, example):
        embedded.clear()
        with register_module_forward_hook(keep):
            logits = logits_of(model, batch)
        weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(2))
        gradients = torch.autograd.grad((logits * weights).sum(), embedded, allow_unused=True)
        (gradient,) = (each for each in gradients if each is not None)
        assert positions and [at for at in positions if not gradient[0, at].any()] == []


def texts_of(by: str, example: Example) -> list[int]:
    """Returns the positions of all texts, without those of special tokens."""
    regular = reader(by)[1].is_regular
    return [at for at, token in enumerate(example.tokens) if regular[token]]


def whole_text(by: str, example: Example) -> Iterator[Unit]:
    yield texts_of(by, example), lambda m, batch: m.head(m.backbone(batch), batch.document_ids)


def each_word(by: str, example: Example) -> Iterator[Unit]:
    _, tokenizer = reader(by)
    (words,) = tokenizer.encode_words([WORDS["words"]])
    assert example.word_positions is not None
    begin = len(tokenizer.before)
    for ids, position in zip(words, example.word_positions, strict=True):
        end = begin + max(len(ids), 1)
        yield [*range(begin, end)], lambda m, b, at=position: m.head(m.backbone(b))[0, at]
        begin = end


def each_span(by: str, example: Example) -> Iterator[Unit]:
    """Yields units of spans, each with the question, and one of no answer, with all texts."""
    assert example.pair_start is not None and example.offsets is not None
    texts = texts_of(by, example)
    question = [at for at in texts if at < example.pair_start]

    def ends(model: ModelWithHead, batch: Batch, first: int, last: int) -> Tensor:
        logits = model.head(model.backbone(batch), batch.document_ids, batch.extra)
        return torch.stack([each[0, at] for each, at in zip(logits, (first, last), strict=True)])

    inside = (example.offsets[:, 0] < example.offsets[:, 1]).nonzero()[0].tolist()
    for first, more in [(inside[0], 0), (inside[1], 3), (inside[-3], 2)]:
        last = first + more
        yield (
            [*question, *range(first, last + 1)],
            lambda m, batch, first=first, last=last: ends(m, batch, 1 + first, 1 + last),
        )
    yield texts, lambda m, batch: ends(m, batch, 0, 0)


def first_written(by: str, example: Example) -> Iterator[Unit]:
    yield (
        texts_of(by, example),
        lambda m, batch: m.backbone.unembed(m.backbone.decode(batch))[0, 0],
    )


def likelihood(by: str, example: Example) -> Iterator[Unit]:
    yield texts_of(by, example), lambda m, batch: log_likelihoods(m.backbone, batch)[0]


@pytest.mark.slow
@pytest.mark.parametrize("by", READERS)
@pytest.mark.parametrize(
    ("name", "settings", "row", "units"),
    [
        *(("classification", {"pooling": p}, PAIR, whole_text) for p in ("mean", "last", "first")),
        ("tagging", {}, WORDS, each_word),
        ("span_qa", {**SPAN, "no_answer": True}, QUESTION, each_span),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_logits_of_a_label_depend_on_all_that_is_labelled(name, settings, row, units, by) -> None:
    of = task_of(name, settings, by)
    if by in CAUSAL and settings.get("pooling") == "first":
        with pytest.raises(ValueError, match="^pooling: "):
            model_of(of, by)
    else:
        check(of, by, row, units)


@pytest.mark.parametrize("by", WRITERS)
@pytest.mark.parametrize(
    ("name", "row"), [("classification", PAIR), ("tagging", WORDS), ("span_qa", QUESTION)]
)
def test_logits_of_a_written_answer_depend_on_all_texts(name, row, by) -> None:
    of = task_of(name, SPAN if name == "span_qa" else {}, by, as_text=True)
    check(of, by, row, first_written)


@pytest.mark.parametrize("by", CAUSAL)
def test_log_likelihoods_of_a_text_depend_on_all_of_it(by) -> None:
    check(task_of("language_modelling", {}, by), by, TEXT, likelihood)
