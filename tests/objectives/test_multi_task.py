"""Several tasks at once: inputs and targets, which equal those of each task."""

from typing import Any

import numpy as np
import pytest
import torch

from stages.core.seeding import stream
from stages.objectives.multi_task import MultiTask
from stages.tasks._task import TASKS
from stages.tasks._text_form import TextToText
from stages.text.batch import IGNORE_INDEX
from stages.text.corpus import encode
from stages.text.packing import Packing, Row
from stages.text.tokenizer import EOS_ID, Vocabulary
from tests.objectives.rows import collated
from tests.small import VOCAB_SIZE, small_model, small_tokenizer

RECORD = {"task": {"name": "classification"}, "labels": ["list", "value"]}
ROWS = [
    {"id": str(i), "text": f"a {word} of the module", "label": ("list", "value")[i % 2]}
    for i, word in enumerate(["class", "method", "name", "object", "string", "function"])
]


@pytest.mark.parametrize("architecture", ["decoder", "encoder_decoder"])
def test_a_document_is_to_a_model_what_the_task_is(architecture) -> None:
    """The logits of its targets equal those of the task's own batch."""
    form = TASKS["classification"].as_text("kind", RECORD)
    corpus = encode([[form.input(r), form.answer(r) or ""] for r in ROWS], small_tokenizer())
    whole = len(corpus.tokens)
    objective = MultiTask(Vocabulary(VOCAB_SIZE), whole)
    objective.architecture = architecture
    batch: Any = collated(objective, [Packing(corpus, whole, seed=1).row(0)])
    model = small_model(architecture).eval()
    states = model.decode(batch) if batch.decoder_input_ids is not None else model(batch)
    ours = model.unembed(states)[batch.labels != IGNORE_INDEX]
    targets = batch.labels[batch.labels != IGNORE_INDEX]

    inner = TASKS.build(RECORD["task"], RECORD["labels"], small_tokenizer(), 32, where="task")
    task = TextToText("kind", RECORD, inner)
    alone = {}
    for example in task.encode(ROWS):
        one: Any = task.collate([example], rngs=[])
        alone[tuple(example.tokens)] = model.unembed(model.decode(one))[0], one.labels[0]
    documents = batch.document_ids[0]
    order = [
        tuple(tokens[: tokens.index(EOS_ID) + 1])
        for number in range(1, int(documents.max()) + 1)
        if (tokens := batch.input_ids[0][documents == number].tolist())
    ]
    assert sorted(order) == sorted(alone)
    logits, labels = (torch.cat(parts) for parts in zip(*(alone[o] for o in order), strict=True))
    assert torch.equal(labels, targets)
    torch.testing.assert_close(ours, logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("begin", "end", "inputs", "targets"),
    [
        (0, 6, [2, 10, 11, 3], [12, 13, 3]),
        (0, 5, [2, 10, 11, 3], [12, 13]),
        (0, 3, [2, 10, 11], []),
        (2, 6, [11, 12, 13, 3], []),
        (3, 6, [12, 13, 3], []),
    ],
)
def test_what_a_row_cuts_is_learnt_as_far_as_it_is_there(begin, end, inputs, targets) -> None:
    tokens = np.array([2, 10, 11, 12, 13, 3])[begin:end]  # <bos> text text target target <eos>
    starts = np.array([True, False, False, True, False, False])[begin:end]
    row = Row(tokens, np.ones(len(tokens)), starts_sentence=starts)
    pair = MultiTask(small_tokenizer(), 8).pair(row, rng=stream(0, "none"))
    assert [each.tolist() for each in pair] == [inputs, targets]
