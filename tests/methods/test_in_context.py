"""In-context learning: the label that a causal model finds likeliest after a prompt."""

from functools import cache
from typing import Any, cast

import numpy as np
import pytest
import torch

from stages.core.seeding import stream
from stages.methods._method import METHODS
from stages.methods.in_context import InContext, draw_shots
from stages.models._heads import ModelWithHead
from stages.objectives.causal import Causal
from stages.tasks._text_form import NO_LABEL, label_words
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.corpus import encode
from stages.text.packing import Packing
from stages.text.tokenizer import BOS_ID
from stages.training.device import Device
from stages.training.loop import train
from stages.training.pretraining import PretrainingData
from tests.small import headless, small_model, small_schedule, small_tokenizer

pytestmark = pytest.mark.slow

CPU = Device("cpu", "float32", compile=False, threads=1)
WORDS = {  # what texts with each label are made of
    "list": ["name", "object", "string", "value"],
    "module": ["class", "method", "attribute", "keyword"],
    "the_statement": ["function", "call", "argument", "expression"],
}
LABELS = sorted(WORDS)
TEMPLATE = "{text} type: {label}"


def rows_of(number: int, *, seed: int) -> list[dict[str, str]]:
    """Returns rows with each label equally often."""
    rng = stream(seed, "rows")
    labels = [LABELS[i % len(LABELS)] for i in range(number)]
    texts = [" ".join(rng.choice(WORDS[label], 3)) for label in labels]
    return [
        {"id": str(i), "text": text, "label": label}
        for i, (text, label) in enumerate(zip(texts, labels, strict=True))
    ]


def method(**settings: Any) -> InContext:
    return cast(
        InContext,
        METHODS.build({"name": "in_context", "template": TEMPLATE} | settings, where="method"),
    )


def predictor(
    rows=(), *, max_tokens: int = 200, seed: int = 1, verbalisers=(), **settings: Any
) -> Any:
    return method(**settings).predictor(
        label_words(LABELS, verbalisers),
        small_tokenizer(),
        max_tokens,
        rows or rows_of(30, seed=7),
        rng=stream(seed, "shots"),
    )


@torch.no_grad()
def scores(of: Any, model: ModelWithHead, rows, *, at_once: int = 7) -> list[list[float]]:
    examples, flat = of.encode(rows), []
    for at in range(0, len(examples), at_once):
        part = examples[at : at + at_once]
        flat += of.predict(model.eval(), of.collate(part, rngs=[]), part)
    return np.reshape(flat, (len(rows), -1)).tolist()


def accuracy(of: Any, model: ModelWithHead, rows) -> float:
    labels = [of.combine(row, s) for row, s in zip(rows, scores(of, model, rows), strict=True)]
    return sum(row["label"] == label for row, label in zip(rows, labels, strict=True)) / len(rows)


@cache
def trained() -> ModelWithHead:
    """A decoder trained on texts that are followed by their labels."""
    lines = [f"{r['text']} type: {r['label'].replace('_', ' ')}" for r in rows_of(900, seed=3)]
    # Lines are shuffled, because labels take turns; documents have one to three lines.
    lines = [lines[i] for i in stream(1, "lines").permutation(len(lines))]
    documents = [lines[at : at + 1 + at // 3 % 3] for at in range(0, len(lines), 3)]
    packing = Packing(encode(documents, small_tokenizer()), 32, seed=1)
    data = PretrainingData(
        packing, Causal(small_tokenizer(), 32), batch_rows=8, micro_batch_rows=8, seed=1
    )
    settings = small_schedule(rows=8, max_tokens=32, num_steps=100, lr=5e-3, weight_decay=0.0)
    model = headless(small_model("decoder"))
    objective = Causal(small_tokenizer(), 32)
    list(train(model, objective, data, settings.at(5e-3), num_steps=100, seed=1, device=CPU))
    return model


def by_hand(model: ModelWithHead, context: str, word: str) -> tuple[float, int]:
    """Returns the log-probability of the word's tokens, computed one after the other without
    padding, and their number."""
    encode_one = small_tokenizer().encode
    before, after = [BOS_ID, *encode_one([context])[0]], encode_one([word])[0]
    ids = torch.tensor([before + after])
    batch = Batch(input_ids=ids, document_ids=torch.ones_like(ids), num_targets={})
    with torch.no_grad():
        log_probs = model.eval().backbone.unembed(model.backbone(batch))[0].log_softmax(dim=-1)
    places = range(len(before), len(before) + len(after))
    return sum(float(log_probs[i - 1, ids[0, i]]) for i in places), len(after)


def test_scores_are_sums_of_log_probabilities_in_each_normalisation() -> None:
    rows, model = rows_of(9, seed=5), trained()
    by_name = {
        n: scores(predictor(normalise=n), model, rows)
        for n in ("none", "tokens", "bytes", "unconditional")
    }
    for i, row in enumerate(rows):
        for j, word in enumerate(label.replace("_", " ") for label in LABELS):
            score, length = by_hand(model, f"{row['text']} type:", word)
            alone, _ = by_hand(model, "type:", word)
            expected = {
                "none": score,
                "tokens": score / length,
                "bytes": score / len(word.encode()),
                "unconditional": score - alone,
            }
            for normalise, value in expected.items():
                assert by_name[normalise][i][j] == pytest.approx(value, abs=1e-3), normalise


def test_in_context_predicts_what_was_learnt_from_text() -> None:
    """A model that learnt nothing is at chance."""
    rows = rows_of(120, seed=11)
    assert accuracy(predictor(normalise="unconditional"), trained(), rows) > 0.8
    assert accuracy(predictor(num_shots=2), trained(), rows) > 0.7
    untrained = [
        accuracy(predictor(), headless(small_model("decoder", seed=s)), rows) for s in range(3)
    ]
    assert 0.2 < sum(untrained) / 3 < 0.5


def test_prompt_is_shots_of_the_label_budget_and_the_row() -> None:
    train_rows, test_rows = rows_of(30, seed=7)[:12], rows_of(6, seed=13)
    of = predictor(train_rows, num_shots=4, separator=" ; ")
    possible = {f"{row['text']} type: {row['label'].replace('_', ' ')}" for row in train_rows}
    texts = [small_tokenizer().decode(c.tokens) for c in of.encode(test_rows)]
    for i, row in enumerate(test_rows):
        for text, label in zip(texts[3 * i : 3 * i + 3], LABELS, strict=True):
            *shots, last = text.split(" ; ")
            assert len(shots) == 4 and set(shots) <= possible
            assert last == f"{row['text']} type: {label.replace('_', ' ')}"


@pytest.mark.parametrize("num_shots", [1, 4, 30])
def test_shots_are_balanced_and_drawn_by_the_seed(num_shots) -> None:
    rows = rows_of(30, seed=7)
    drawn = [draw_shots(rows, num_shots, rng=stream(seed, "shots")) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    for shots in drawn:
        counts = [sum(row["label"] == label for row in shots) for label in LABELS]
        assert sum(counts) == num_shots == len({row["id"] for row in shots})
        assert max(counts) - min(counts) <= 1


def test_prompt_leaves_out_shots_from_the_front(capsys) -> None:
    rows = rows_of(8, seed=17)
    whole = predictor(num_shots=8, separator=" ; ").encode(rows)
    assert "warning" not in capsys.readouterr().err
    cut = predictor(num_shots=8, separator=" ; ", max_tokens=60).encode(rows)
    assert "warning: in_context: of 8 shots " in capsys.readouterr().err
    for long, short in zip(whole, cut, strict=True):
        text, all_of_it = (small_tokenizer().decode(c.tokens) for c in (short, long))
        assert len(short.tokens) <= 60 and 0 < text.count(" ; ") < 8
        assert all_of_it.endswith(text)
        assert short.tokens[0] == BOS_ID
        assert len(short.tokens) - short.first == len(long.tokens) - long.first
        assert short.num_cut == len(long.tokens) - len(short.tokens) > 0 == long.num_cut


def test_prompt_keeps_the_end_of_a_long_text_and_the_label() -> None:
    row = {"id": "1", "text": "class method " * 40}
    candidates = predictor(num_shots=2, max_tokens=16).encode([row])
    whole = predictor(num_shots=2).encode([row])  # with the shots, which are cut too
    for candidate, uncut, label in zip(candidates, whole, LABELS, strict=True):
        assert candidate.num_cut == len(uncut.tokens) - len(candidate.tokens)
        text = small_tokenizer().decode(candidate.tokens)
        assert text.endswith(f"type: {label.replace('_', ' ')}")
    assert max(len(c.tokens) for c in candidates) == 16
    with pytest.raises(ValueError, match="max_tokens"):
        predictor(max_tokens=2).encode([row])


def test_combine_gives_no_label_for_a_tie() -> None:
    of = predictor()
    assert of.combine({}, [-3.0, -1.0, -2.0]) == LABELS[1]
    assert of.combine({}, [-1.0, -1.0, -2.0]) == NO_LABEL


@pytest.mark.parametrize("template", ["{text} {label}.", "It is {label}", "{txt} {label}"])
def test_template_must_have_a_text_and_the_label_at_its_end(template) -> None:
    with pytest.raises(ValueError, match="^method.*template"):
        method(template=template)


@pytest.mark.parametrize("pair", [{}, {"text_pair": "and b"}])
def test_template_by_default_has_all_texts_of_a_row(pair) -> None:
    rows = [{"id": str(i), "text": "a", "label": label} | pair for i, label in enumerate(LABELS)]
    (shot,) = predictor(rows, template="auto", num_shots=1).shots
    assert shot.startswith("\n".join(["a", *pair.values(), "label: "]))
    with pytest.raises(ValueError, match="template: .* {text_pair}"):
        predictor(rows, template="{text} {label}" if pair else "{text} {text_pair} {label}")


def test_prompt_is_read_in_both_directions_by_a_model_with_a_prefix() -> None:
    """The likelihood of a label is that of its tokens after a visible prompt."""
    rows = rows_of(3, seed=5)
    causal, both = (predictor(num_shots=2, normalise="none") for _ in range(2))
    both.has_prefix = True
    model, examples = trained(), both.encode(rows)
    batch = both.collate(examples, rngs=[])
    assert batch.visible is not None and batch.labels is not None
    for visible, labels, example in zip(batch.visible, batch.labels, examples, strict=True):
        assert visible.sum() == min(example.first, len(example.tokens) - 1)
        assert not visible[example.first :].any()  # no label is seen before its turn
        assert (labels[: example.first - 1] == IGNORE_INDEX).all()
    assert not np.allclose(scores(both, model, rows), scores(causal, model, rows))
    assert np.allclose(scores(both, model, rows), scores(both, model, rows, at_once=1), atol=1e-4)
