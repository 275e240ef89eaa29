"""Samples of the text that a pretrained model generates."""

import numpy as np

from stages.core.seeding import seeded, stream, torch_stream
from stages.models._backbone import Backbone
from stages.objectives._objective import Objective
from stages.text.batch import PADDING, Batch, pad
from stages.text.corpus import EncodedCorpus
from stages.text.packing import Row
from stages.text.tokenizer import Tokenizer
from stages.training.device import Device

PASSAGES = 3
MAX_TOKENS = 48  # of a passage, and of the generated text
SEED = 0  # of every model, so that models of one corpus and tokenizer get the same passages


def samples(
    backbone: Backbone,
    objective: Objective,
    corpus: EncodedCorpus,
    tokenizer: Tokenizer,
    device: Device,
) -> list[dict[str, str]]:
    """Returns samples for the beginnings of a few documents: each has the ``passage``, the
    ``prompt`` that the objective makes of it, and the text that the model has ``written``.

    They are a pure function of the weights: torch's own generator is seeded for them.
    """
    passages = beginnings(corpus, min(objective.max_tokens, MAX_TOKENS))
    if objective.draws_text:
        start = tokenizer.before or (tokenizer.eos_id,)  # as GPT-2 generates without a prompt
        passages = [_passage(np.array(start), np.array([True])), *passages]
    read = [
        (row, prompt)
        for i, row in enumerate(passages)
        if (prompt := objective.prompt(row, rng=stream(SEED, "prompt", i))) is not None
    ]
    if not read:
        return []
    documents = pad([np.ones(len(prompt)) for _, prompt in read], PADDING)
    batch = Batch(
        input_ids=pad([prompt for _, prompt in read], tokenizer.pad_id),
        document_ids=documents,
        visible=documents != PADDING if objective.has_prefix else None,
        num_targets={},
    )
    # The generated text of a decoder continues the row of the prompt.
    taken = batch.input_ids.shape[1] - 1 if backbone.is_causal else 0
    length = min(objective.max_tokens - taken, MAX_TOKENS)
    with device.autocast(), seeded(torch_stream(SEED, "sample")):
        texts = backbone.eval().generate(
            batch.to(device.torch),
            max_new_tokens=length,
            start_id=tokenizer.start_id,
            eos_id=tokenizer.eos_id,
            draws=objective.draws_text,
        )
    return [
        {
            "passage": tokenizer.shown(passage.tokens),
            "prompt": tokenizer.shown(prompt),
            "written": tokenizer.shown(text) + (" …" if len(text) == length else ""),
        }
        for (passage, prompt), text in zip(read, texts, strict=True)
    ]


def beginnings(corpus: EncodedCorpus, max_tokens: int) -> list[Row]:
    """Returns the beginnings of a few documents, the same for every model."""
    chosen = stream(SEED, "passages").permutation(len(corpus.document_starts))[:PASSAGES]
    lengths = np.minimum(corpus.document_lengths[chosen], max_tokens)
    rows = []
    for start, length in zip(corpus.document_starts[chosen], lengths, strict=True):
        places = np.arange(start, start + length)
        tokens = corpus.tokens[places].astype(np.int64)
        rows.append(_passage(tokens, np.isin(places, corpus.sentence_starts)))
    return rows


def _passage(tokens: np.ndarray, starts_sentence: np.ndarray) -> Row:
    return Row(tokens, np.ones_like(tokens), starts_sentence=starts_sentence)
