"""A solved probe equals that of scikit-learn's other algorithm, also after its standardisation is
put into its weights."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight

from stages.core.seeding import stream, torch_stream
from stages.methods.linear_probe import LinearProbe
from stages.models._heads import ModelWithHead, initialise_head
from stages.tasks.classification import Classification
from stages.tasks.span_qa import SpanQA
from stages.tasks.tagging import Tagging
from stages.text.batch import IGNORE_INDEX, Batch
from stages.training.device import Device
from stages.training.finetuning import in_order_of_length
from stages.training.loop import mean_loss
from stages.training.solver import Solution, solve
from tests.small import documents, small_model, small_tokenizer

CPU = Device("cpu", "float32", compile=False, threads=1)
LINES = [line.split()[:12] for document in documents()[:8] for line in document if " " in line]
TAGS = ("B-X", "I-X", "O")


def rows() -> list[dict[str, Any]]:
    """Rows whose labels and tags follow the lengths of words and texts, with random exceptions."""
    rng = stream(1, "rows")
    labelled = []
    for i, words in enumerate(LINES[:120]):
        tags = ["B-X" if len(w) > 6 else "I-X" if rng.random() < 0.2 else "O" for w in words]
        label = "ab"[int(rng.random() < 0.2) ^ (len(words) > 6)]
        answer = {"text": words[1], "answer_start": len(words[0]) + 1}
        labelled.append(
            {
                "id": str(i),
                "words": words,
                "tags": tags,
                "text": " ".join(words),
                "label": label,
                "question": words[-1],
                "context": " ".join(words),
                "answers": [answer],
            }
        )
    return labelled


def probed(
    task: Any, architecture: str, *, layers: Any = "last", number: int = 80
) -> tuple[ModelWithHead, Any]:
    """A model to probe, with batches of the first rows and of others. Its random weights are
    enlarged, so that states differ in scale and are correlated."""
    backbone = small_model(architecture)
    backbone.drop_output_layers()
    with torch.no_grad():
        for weight in backbone.parameters():
            if weight.dim() >= 2:
                weight.mul_(4)
    head = task.head(backbone)
    initialise_head(head, generator=torch_stream(1, "head"))
    model = ModelWithHead(backbone, head)
    method = LinearProbe(layers=layers)
    method.apply(model, generator=torch_stream(1, "method"))
    examples = task.encode(rows())
    batches = [
        [task.collate(part, rngs=[]) for part in in_order_of_length(some, batch_examples=16)]
        for some in (task.weighted(examples[:number]), examples[number:][:40])
    ]
    for some in batches:
        method.remember(model, some)
    return model, batches


def solved(model: ModelWithHead, task: Any, batches: Any, *C: float) -> Solution:
    return solve(model, task, *batches, inverse_strengths=C, merit=lambda: 0.0, device=CPU)


def read(task: Any, model: ModelWithHead, batches: list[Batch]) -> tuple[np.ndarray, np.ndarray]:
    """The states that have a label, and the labels, computed without code of the solver."""
    states, labels = [], []
    for batch in batches:
        assert batch.labels is not None
        hidden = model.backbone(batch).detach().double()
        if isinstance(task, Classification):
            real = (batch.document_ids > 0).double().unsqueeze(-1)
            last = (real.sum(dim=1).long() - 1).flatten()
            mean = (hidden * real).sum(dim=1) / real.sum(dim=1)
            is_last = model.head.pooling == "last"
            states.append(hidden[torch.arange(len(hidden)), last] if is_last else mean)
            labels.append(batch.labels)
        else:
            has_label = batch.labels != IGNORE_INDEX
            states.append(hidden[has_label])
            labels.append(batch.labels[has_label])
    return torch.cat(states).numpy(), torch.cat(labels).numpy()


@pytest.mark.parametrize(
    ("kind", "architecture", "C", "class_weights"),
    [
        ("classification", "encoder", 1.0, "none"),
        ("classification", "decoder", 0.01, "none"),
        ("classification", "encoder", 1.0, "balanced"),
        ("tagging", "encoder", 0.01, "none"),
        ("tagging", "decoder", 1.0, "none"),
        ("tagging", "decoder", 1.0, "balanced"),
    ],
)
def test_solve_finds_the_minimum_of_scikit_learn(kind, architecture, C, class_weights) -> None:
    """Class weights equal scikit-learn's, and the loss on held-out rows has none."""
    tokenizer = small_tokenizer()
    task: Any = (
        Classification(["a", "b"], tokenizer, 32, class_weights=class_weights)
        if kind == "classification"
        else Tagging([*TAGS], tokenizer, 32, class_weights=class_weights)
    )
    model, batches = probed(task, architecture)
    (train, gold), (held_out, held_out_gold) = (read(task, model, some) for some in batches)
    scaler = StandardScaler().fit(train)
    # With two classes scikit-learn has one vector where a softmax has two of opposite sign.
    strength = 2 * C if kind == "classification" else C
    weighting = "balanced" if class_weights == "balanced" else None
    theirs = LogisticRegression(
        C=strength, solver="newton-cg", tol=1e-8, max_iter=1000, class_weight=weighting
    ).fit(scaler.transform(train), gold)

    solution = solved(model, task, batches, C)
    assert solution.converged
    for states, labels, loss, weights in (
        (train, gold, solution.train_loss, compute_sample_weight(weighting, gold)),
        (held_out, held_out_gold, solution.validation_loss, None),
    ):
        expected = theirs.predict_proba(scaler.transform(states))
        assert loss == pytest.approx(log_loss(labels, expected, sample_weight=weights), rel=1e-5)
        linear = model.head.linear
        logits = states @ linear.weight.detach().numpy().T + linear.bias.detach().numpy()
        ours = torch.from_numpy(logits).softmax(dim=-1).numpy()
        assert np.abs(ours - expected).max() < 1e-3
        assert (ours.argmax(axis=1) == expected.argmax(axis=1)).mean() > 0.995
    loss = mean_loss(model, task, batches[1], CPU)
    assert loss == pytest.approx(solution.validation_loss, rel=1e-4)


@pytest.mark.parametrize(("head", "C"), [("start_end", 0.1), ("span", 0.03)])
def test_solve_a_head_for_questions_puts_the_scale_into_its_weights(head, C) -> None:
    """A span head has a hidden layer, so that its scale is put into three matrices."""
    task = SpanQA([], small_tokenizer(), 20, head=head, d_span=4, stride=2, max_question_tokens=4)
    model, batches = probed(task, "encoder", number=24)
    before = mean_loss(model, task, batches[0], CPU)
    solution = solved(model, task, batches, C)
    assert solution.train_loss < 0.9 * before
    assert solution.converged or head == "span"  # a span head may take long
    assert mean_loss(model, task, batches[0], CPU) == pytest.approx(solution.train_loss, rel=1e-4)
    assert all(weight.dtype == torch.float32 for weight in model.parameters())


@pytest.mark.slow
def test_solve_a_mix_of_layers_is_no_worse_than_their_mean() -> None:
    task = Tagging([*TAGS], small_tokenizer(), 32)
    model, batches = probed(task, "encoder", layers="mix")
    backbone: Any = model.backbone
    solution = solved(model, task, batches, 1.0)
    assert solution.converged and float(backbone.mix.s.detach().abs().max()) > 0.01
    again, batches = probed(task, "encoder", layers="mix")
    fixed: Any = again.backbone
    fixed.mix.s.requires_grad_(False)
    alone = solved(again, task, batches, 1.0)
    penalised = [
        each.train_loss * len(read(task, one, batches[0])[1]) + _penalty(one) / 2
        for each, one in ((solution, model), (alone, again))
    ]
    assert penalised[0] < penalised[1]


def _penalty(model: ModelWithHead) -> float:
    """The squared norm of the head for states standardised by the scale of the layers' mean."""
    task = Tagging([*TAGS], small_tokenizer(), 32)
    start, batches = probed(task, "encoder", layers="mix")
    std = torch.from_numpy(read(task, start, batches[0])[0].std(axis=0))
    return float((model.head.linear.weight.detach().double() * std).square().sum())


@pytest.mark.slow
def test_solve_keeps_the_penalty_that_is_best_on_validation() -> None:
    task = Tagging([*TAGS], small_tokenizer(), 32)
    model, batches = probed(task, "encoder")
    alone = {C: solved(probed(task, "encoder")[0], task, batches, C) for C in (1e-4, 0.01, 100.0)}
    lowest = min(alone, key=lambda C: alone[C].validation_loss)
    solution = solved(model, task, batches, *alone)
    assert solution.C in alone and alone[solution.C] is alone[lowest]
    # The solver started from the minimum of the previous penalty.
    assert solution.validation_loss == pytest.approx(alone[lowest].validation_loss, rel=1e-4)
    merits = iter([1.0, 3.0, 2.0])
    best = solve(
        model,
        task,
        *batches,
        inverse_strengths=[*alone],
        merit=lambda: next(merits),
        device=CPU,
    )
    assert best.C == 0.01


def test_linear_probe_remembers_states_of_each_model() -> None:
    """Runs from scratch may have other weights for each seed, but one method object for all."""
    task = Classification(["a", "b"], small_tokenizer(), 32)
    method, seen = LinearProbe(), []
    for seed in (1, 2, 1):
        backbone = small_model("encoder", seed=seed)
        model = ModelWithHead(backbone, task.head(backbone))
        method.apply(model, generator=torch_stream(1, "method"))
        batch = task.collate(task.encode(rows()[:4]), rngs=[])
        method.remember(model, [batch])
        seen.append(model.backbone(batch))
        torch.testing.assert_close(seen[-1], backbone.eval()(batch) * (seen[-1] != 0))
    assert torch.equal(seen[0], seen[2]) and not torch.equal(seen[0], seen[1])
