"""Types and shapes of calls are checked."""

from dataclasses import dataclass

import pytest
import torch
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Float, Int
from torch import Tensor

from stages.reporting.formats import percent
from tests import checker
from tests.checker import checked

TWO, THREE, SQUARE = torch.zeros(2), torch.zeros(3), torch.zeros(2, 2)


@checked()
def scaled(rows: Float[Tensor, "B T"], by: "Float[Tensor, ' B']") -> Float[Tensor, "B T"]:
    return rows * by[:, None] if by.any() else rows.sum(0, keepdim=True)


@checked()
@dataclass(frozen=True)
class Pair:
    a: Int[Tensor, " N"]
    b: Int[Tensor, " N"]


def test_checked_functions_and_dataclasses_refuse_other_types_and_shapes() -> None:
    for size in (2, 3):
        assert scaled(torch.zeros(size, 4), torch.ones(size)).shape == (size, 4)
    for rows, by in ((SQUARE, THREE), (TWO, TWO), (SQUARE.long(), TWO), (SQUARE, "two")):
        with pytest.raises(BeartypeCallHintViolation, match="parameter"):
            scaled(rows, by)
    with pytest.raises(BeartypeCallHintViolation, match="return"):
        scaled(SQUARE, TWO)
    with pytest.raises(BeartypeCallHintViolation, match="parameter"):
        Pair(TWO.long(), THREE.long())


def test_install_checks_stages_in_the_first_calls_of_each_test() -> None:
    for _ in range(checker.CHECKED_CALLS):
        assert percent(1)
    with pytest.raises(TypeError, match="not supported"):
        percent("1")  # type: ignore[arg-type]
    checker.calls.clear()  # as when the next test begins
    with pytest.raises(BeartypeCallHintViolation):
        percent("1")  # type: ignore[arg-type]
