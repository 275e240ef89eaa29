"""Distillation: what the student begins with and learns, and that the teacher stays as it is."""

import math
from copy import deepcopy

import numpy as np
import pytest
import torch

from stages.core.seeding import stream
from stages.models._backbone import Backbone
from stages.objectives._objective import Terms
from stages.objectives.distillation import Distillation, cosine_distance, soft_cross_entropy
from stages.objectives.mlm import MLM
from stages.text.batch import IGNORE_INDEX, PADDING, Batch
from stages.text.packing import Row
from stages.text.tokenizer import BOS_ID, EOS_ID, NUM_SPECIAL, Vocabulary
from stages.training.flops import Counter
from tests.small import VOCAB_SIZE, headless, small_model

VOCABULARY = Vocabulary(VOCAB_SIZE)
LENGTH = 32


def rows(number: int = 3, *, length: int = LENGTH) -> list[Row]:
    texts = stream(0, "text").integers(NUM_SPECIAL, VOCAB_SIZE - 100, (number, length - 2))
    return [Row(np.array([BOS_ID, *text, EOS_ID]), np.ones(length, dtype=int)) for text in texts]


def batch_of(objective: Distillation | MLM) -> Batch:
    examples = rows()
    return objective.collate(examples, rngs=[stream(0, "mask", i) for i, _ in enumerate(examples)])


def weighted(terms: Terms) -> torch.Tensor:
    return torch.stack([weight * total for weight, total in terms.values()]).sum()


def frozen(teacher: Backbone) -> Backbone:
    return teacher.requires_grad_(False).eval()


def taught(student: Backbone, teacher: Backbone, **settings) -> Distillation:
    objective = Distillation(VOCABULARY, LENGTH, **settings)
    objective.learn_from(frozen(teacher), student)
    return objective


def test_soft_loss_of_a_case_by_hand() -> None:
    """The teacher's logits (ln 9, 0) give 3/4 and 1/4 at T = 2, the student's (0, 0) 1/2 each: the
    cross-entropy is ln 2, times T^2 4 ln 2. A position that does not count adds nothing."""
    teacher = torch.tensor([[[math.log(9), 0.0], [5.0, -5.0]]])
    student = torch.tensor([[[0.0, 0.0], [1.0, 2.0]]])
    first = torch.tensor([[True, False]])
    loss = soft_cross_entropy(student, teacher, first, temperature=2.0)
    assert loss.item() == pytest.approx(4 * math.log(2))
    # a student of 3/5 and 2/5 at T = 2
    student[0, 0] = torch.tensor([2 * math.log(3), 2 * math.log(2)])
    expected = -4 * (3 / 4 * math.log(3 / 5) + 1 / 4 * math.log(2 / 5))
    loss = soft_cross_entropy(student, teacher, first, temperature=2.0)
    assert loss.item() == pytest.approx(expected, rel=1e-6)


def test_the_square_of_the_temperature_keeps_gradients_of_one_magnitude() -> None:
    """The gradient for high T is the difference of centred logits, divided by their number (Hinton
    et al. 2015, section 2.1). It does not depend on T; without T^2 it would fall as 1 / T^2."""
    generator = torch.Generator().manual_seed(0)
    teacher, start = torch.randn(2, 1, 1, 8, generator=generator).unbind()
    counted = torch.ones(1, 1, dtype=torch.bool)
    centred = (start - start.mean()) - (teacher - teacher.mean())
    for temperature in (100.0, 1000.0):
        student = start.clone().requires_grad_()
        soft_cross_entropy(student, teacher, counted, temperature=temperature).backward()
        assert student.grad is not None
        torch.testing.assert_close(student.grad, centred / 8, atol=5e-3, rtol=0.05)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_a_student_that_is_its_teacher_has_nothing_to_learn(temperature) -> None:
    """The soft loss is T^2 times the entropy, with gradient 0; the cosine distance is 0."""
    student, teacher = small_model("encoder").eval(), small_model("encoder")
    objective = taught(student, teacher, temperature=temperature, student_init="random")
    batch = batch_of(objective)
    terms = objective.loss(headless(student), batch)
    assert batch.target_positions is not None and batch.labels is not None
    states = student(batch).gather(1, batch.target_positions[..., None].expand(-1, -1, 32))
    scores = (student.unembed(states) / temperature).log_softmax(-1)
    entropies = -(scores.exp() * scores).sum(-1)[batch.labels != IGNORE_INDEX]
    torch.testing.assert_close(terms["soft"][1], temperature**2 * entropies.sum())
    assert terms["cosine"][1].item() == pytest.approx(0, abs=1e-4)
    terms["soft"][1].backward()
    assert all(p.grad is None or p.grad.abs().max() < 1e-4 for p in student.parameters())


def test_terms_are_counted_each_by_its_own_targets() -> None:
    """4 of 30 tokens are masked; every token has a state. MLM's batch is the same."""
    student = small_model("encoder").eval()
    objective = taught(student, small_model("encoder", seed=2), student_init="random")
    batch, plain = batch_of(objective), batch_of(MLM(VOCABULARY, LENGTH))
    assert batch.num_targets == {"soft": 3 * 4, "mlm": 3 * 4, "cosine": 3 * LENGTH}
    assert torch.equal(batch.input_ids, plain.input_ids)
    own, other = (o.loss(headless(student), batch) for o in (objective, objective.for_validation()))
    assert {term: weight for term, (weight, _) in own.items()} == {
        "soft": 5.0,
        "mlm": 2.0,
        "cosine": 1.0,
    }
    assert torch.equal(own["mlm"][1], other["mlm"][1])


def test_cosine_leaves_padding_out() -> None:
    states = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]])
    taught_states = torch.tensor([[[3.0, 0.0], [0.0, 2.0], [-1.0, 0.0]]])
    counted = torch.tensor([[1, 1, PADDING]]) != PADDING
    assert cosine_distance(states, taught_states, counted).item() == pytest.approx(0 + 1)


def test_only_the_student_learns() -> None:
    """The teacher gets no gradient, stays as it is bit by bit, and has no dropout."""
    student, teacher = small_model("encoder", dropout=0.5), small_model("encoder", dropout=0.5)
    before = deepcopy(teacher.state_dict())
    objective = taught(student, teacher, student_init="random")
    model, batch = headless(student).train(), batch_of(objective)
    assert torch.equal(objective.teacher(batch), objective.teacher(batch))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    weighted(objective.loss(model, batch)).backward()
    optimizer.step()
    assert all(p.grad is not None and p.grad.any() for p in student.embedding.parameters())
    assert all(p.grad is None for p in teacher.parameters())
    assert all(torch.equal(weight, before[name]) for name, weight in teacher.state_dict().items())
    assert not torch.equal(student.embedding.tokens.weight, before["embedding.tokens.weight"])


@pytest.mark.parametrize(
    "settings", [{}, {"positions": "relative", "output_transform": True, "tied": False}]
)
def test_the_student_begins_with_every_second_layer(settings) -> None:
    """The student copies blocks 0, 2 and 4 of five, and all weights outside blocks."""
    teacher = small_model("encoder", num_layers=5, seed=1, **settings)
    for weight in teacher.parameters():  # norms and biases are alike in fresh models
        torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(weight.numel()))
    student = small_model("encoder", num_layers=3, seed=2, **settings)
    taught(student, teacher)
    for i, block in enumerate(student.stack.blocks):
        theirs = teacher.stack.blocks[2 * i].state_dict()
        assert all(torch.equal(weight, theirs[name]) for name, weight in block.state_dict().items())
    outside = [name for name, _ in student.named_parameters() if "blocks" not in name]
    assert {"embedding.tokens.weight", "stack.norm.weight"} < set(outside)
    theirs = teacher.state_dict()
    assert all(torch.equal(student.state_dict()[name], theirs[name]) for name in outside)
    assert student.embedding.tokens.weight is not teacher.embedding.tokens.weight


def test_a_random_student_keeps_its_own_weights() -> None:
    student, teacher = small_model("encoder", num_layers=3), small_model("encoder", seed=2)
    before = deepcopy(student.state_dict())
    taught(student, teacher, student_init="random")
    assert all(torch.equal(weight, before[name]) for name, weight in student.state_dict().items())


@pytest.mark.parametrize(
    ("theirs", "settings", "message"),
    [
        ({"num_layers": 4, "d_ff": 32}, {}, "d_ff is 32 there and 64 here"),
        ({"num_layers": 4, "activation": "relu"}, {}, "activation is relu there"),
        ({"num_layers": 6}, {}, "every second of 6 layers: num_layers must be 3, not 2"),
        ({"d_model": 64}, {}, "cosine_weight compares states: d_model is 64 there and 32 here"),
        ({"d_model": 64}, {"cosine_weight": 0.0}, "d_model is 64 there and 32 here"),
        ({"d_model": 64}, {"student_init": "random"}, "d_model is 64 there and 32 here"),
    ],
)
def test_a_teacher_of_another_shape_is_refused(theirs, settings, message) -> None:
    with pytest.raises(ValueError, match=message):
        taught(small_model("encoder"), small_model("encoder", **theirs), **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 0.0}, "temperature must be more than 0, not 0.0"),
        ({"mlm_weight": -1.0}, "mlm_weight must be at least 0, not -1.0"),
        ({"soft_weight": 0.0, "cosine_weight": 0.0}, "the teacher would have no effect"),
        ({"mask_prob": 1.0}, "mask_prob must lie between 0 and 1"),
    ],
)
def test_impossible_settings_are_refused(settings, message) -> None:
    with pytest.raises(ValueError, match=message):
        Distillation(VOCABULARY, LENGTH, **settings)


ONE_TERM = {"soft_weight": 0.0, "mlm_weight": 0.0, "cosine_weight": 0.0}


@pytest.mark.parametrize(
    ("settings", "terms", "unembeds"),
    [
        ({}, {"soft", "mlm", "cosine"}, (1, 1)),
        ({"mlm_weight": 0.0}, {"soft", "cosine"}, (1, 1)),
        ({"soft_weight": 0.0}, {"mlm", "cosine"}, (1, 0)),
        ({"cosine_weight": 0.0}, {"soft", "mlm"}, (1, 1)),
        (ONE_TERM | {"cosine_weight": 1.0}, {"cosine"}, (0, 0)),
    ],
)
def test_work_is_that_of_the_terms_that_count(settings, terms, unembeds) -> None:
    """The student runs forward and backward, the teacher only forward. A model computes logits
    only if a term needs them."""
    student, teacher = small_model("encoder", num_layers=1), small_model("encoder", num_layers=4)
    objective = taught(student, teacher, student_init="random", **settings)
    model, batch = headless(student), batch_of(objective)
    with Counter() as of_step:
        losses = objective.loss(model, batch)
        weighted(losses).backward()
    with Counter() as of_student:
        student(batch)
    with Counter() as of_teacher:
        teacher(batch)
    assert set(losses) == terms
    assert batch.labels is not None
    logits = 2 * batch.labels.numel() * student.d_model * student.vocab_size
    own, teachers = (logits * count for count in unembeds)
    assert of_step.total == 3 * (of_student.total + own) + of_teacher.total + teachers
