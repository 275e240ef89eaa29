"""Distillation: what the student begins with and learns, and that the teacher stays as it is."""

import math
from copy import deepcopy
from typing import Any

import pytest
import torch

from stages.models._backbone import Backbone
from stages.objectives._objective import Terms
from stages.objectives.distillation import Distillation, soft_cross_entropy
from stages.text.batch import IGNORE_INDEX
from stages.text.tokenizer import Vocabulary
from tests.objectives.rows import collated, row_of
from tests.small import VOCAB_SIZE, headless, small_model

ROWS = [row_of(30, seed=i) for i in range(3)]


def weighted(terms: Terms) -> torch.Tensor:
    return torch.stack([weight * total for weight, total in terms.values()]).sum()


def taught_by(teacher: Backbone, **settings) -> Distillation:
    """Returns the objective of a student that begins in its own way."""
    objective = Distillation(Vocabulary(VOCAB_SIZE), 32, **settings)
    objective.teacher = teacher.requires_grad_(False).eval()
    return objective


def test_soft_loss_of_a_case_by_hand() -> None:
    """The teacher's logits (ln 9, 0) give 3/4 and 1/4 at T = 2, the student's (0, 0) 1/2 each: the
    cross-entropy is ln 2, times T^2 4 ln 2. A position that does not count adds nothing."""
    teacher = torch.tensor([[[math.log(9), 0.0], [5.0, -5.0]]])
    student = torch.tensor([[[0.0, 0.0], [1.0, 2.0]]])
    first = torch.tensor([[True, False]])
    loss = soft_cross_entropy(student, teacher, first, temperature=2.0)
    assert loss.item() == pytest.approx(4 * math.log(2))


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_a_student_that_is_its_teacher_has_nothing_to_learn(temperature) -> None:
    """The soft loss is T^2 times the entropy, with gradient 0; the cosine distance is 0."""
    student, teacher = small_model("encoder").eval(), small_model("encoder")
    objective = taught_by(teacher, temperature=temperature)
    batch: Any = collated(objective, ROWS)
    terms = objective.loss(headless(student), batch)
    states = student(batch).gather(1, batch.target_positions[..., None].expand(-1, -1, 32))
    scores = (student.unembed(states) / temperature).log_softmax(-1)
    entropies = -(scores.exp() * scores).sum(-1)[batch.labels != IGNORE_INDEX]
    torch.testing.assert_close(terms["soft"][1], temperature**2 * entropies.sum())
    assert terms["cosine"][1].item() == pytest.approx(0, abs=1e-4)
    terms["soft"][1].backward()
    assert all(p.grad is None or p.grad.abs().max() < 1e-4 for p in student.parameters())


def test_only_the_student_learns() -> None:
    """The teacher gets no gradient and stays as it is, bit by bit."""
    student, teacher = small_model("encoder"), small_model("encoder")
    before = deepcopy(teacher.state_dict())
    objective = taught_by(teacher)
    weighted(objective.loss(headless(student).train(), collated(objective, ROWS))).backward()
    torch.optim.SGD(student.parameters(), lr=1.0).step()
    assert all(p.grad is None for p in teacher.parameters())
    assert all(torch.equal(weight, before[name]) for name, weight in teacher.state_dict().items())
    assert not torch.equal(student.token_embedding.weight, teacher.token_embedding.weight)


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_the_student_begins_with_every_second_layer(family) -> None:
    """The student copies blocks 0, 2 and 4 of five, and all weights outside blocks."""
    teacher = small_model(family, num_layers=5, seed=1)
    for weight in teacher.parameters():  # norms and biases are alike in fresh models
        torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(weight.numel()))
    student = small_model(family, num_layers=3, seed=2)
    Distillation(Vocabulary(VOCAB_SIZE), 32).learn_from(teacher, student)
    for block, theirs in zip(student.blocks, teacher.blocks[::2], strict=True):
        for own, copied in zip(block.parameters(), theirs.parameters(), strict=True):
            assert torch.equal(own, copied)
    in_blocks = {weight for block in student.blocks for weight in block.parameters()}
    theirs = dict(teacher.named_parameters())
    outside = [name for name, w in student.named_parameters() if w not in in_blocks]
    assert len(outside) > 2
    assert all(torch.equal(student.get_parameter(name), theirs[name]) for name in outside)
    assert student.token_embedding.weight is not teacher.token_embedding.weight


@pytest.mark.parametrize(
    ("theirs", "message"),
    [({"num_layers": 4, "d_ff": 32}, "all sizes"), ({"num_layers": 6}, "num_layers 3")],
)
def test_a_teacher_of_another_shape_is_refused(theirs, message) -> None:
    teacher = small_model("encoder", **theirs)
    with pytest.raises(ValueError, match=message):
        Distillation(Vocabulary(VOCAB_SIZE), 32).learn_from(teacher, small_model("encoder"))
