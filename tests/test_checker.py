"""What checks all others: types and shapes of each call, also of what is made in a function."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Float, Int
from torch import Tensor

from stages.reporting.number_format import percent
from tests import checker
from tests.checker import checked

TWO, THREE, SQUARE = torch.zeros(2), torch.zeros(3), torch.zeros(2, 2)


@checked()
def scaled(rows: Float[Tensor, "B T"], by: "Float[Tensor, ' B']") -> Float[Tensor, "B T"]:
    return rows * by[:, None] if by.any() else rows.sum(0, keepdim=True)


@checked()
def pieces(rows: Float[Tensor, "B T"], by: Float[Tensor, " B"]) -> Iterator[Float[Tensor, " T"]]:
    for row in rows:
        yield scaled(row[None], by[:1])[0]


def made(number: int) -> tuple[Callable[..., object], Callable[..., object]]:
    """Anew in each call."""

    @checked()
    def first(rows: Float[Tensor, "B T"], *, to: int = number) -> Float[Tensor, "T B"]:
        return rows.T if to else rows

    @checked()
    def counted(to: int) -> Iterator[int]:
        yield from range(number, to)

    return first, counted


@checked()
@dataclass(frozen=True)
class Pair:
    a: Int[Tensor, " N"]
    b: Int[Tensor, " N"]
    share: float = 0.0

    @property
    @checked()
    def first(self) -> int:
        return self.share  # type: ignore[return-value]


def test_one_letter_is_one_size_in_a_call_and_any_in_the_next() -> None:
    for size in (2, 3):
        assert scaled(torch.zeros(size, 4), torch.ones(size)).shape == (size, 4)
    for rows, by in ((SQUARE, THREE), (TWO, TWO), (SQUARE.long(), TWO), (SQUARE, "two")):
        with pytest.raises(BeartypeCallHintViolation, match="parameter"):
            scaled(rows, by)


def test_the_answer_has_the_sizes_of_the_arguments() -> None:
    with pytest.raises(BeartypeCallHintViolation, match="return"):
        scaled(SQUARE, TWO)


def test_a_generator_does_not_fix_the_sizes_of_others() -> None:
    found = pieces(torch.ones(3, 2), THREE + 1)
    assert [next(found).shape, scaled(SQUARE, TWO + 1).shape] == [(2,), (2, 2)]
    assert len([*found]) == 2
    with pytest.raises(BeartypeCallHintViolation, match="parameter"):
        pieces(SQUARE, THREE)


@pytest.mark.parametrize("number", [1, 2])
def test_functions_made_in_a_function_are_checked_each_for_itself(number) -> None:
    (first, counted), (other, _) = made(number), made(0)
    assert (first(torch.ones(2, 3)) == torch.ones(3, 2)).all()  # type: ignore[attr-defined]
    with pytest.raises(BeartypeCallHintViolation, match="return"):
        other(torch.ones(2, 3))
    with pytest.raises(BeartypeCallHintViolation, match="parameter"):
        first(SQUARE, to="1")
    assert [*counted(4)] == [*range(number, 4)]  # type: ignore[not-iterable]
    with pytest.raises(BeartypeCallHintViolation, match="parameter"):
        next(counted("4"))  # type: ignore[arg-type]


def test_fields_and_properties_are_checked() -> None:
    a, b = torch.zeros(2, dtype=torch.long), torch.zeros(3, dtype=torch.long)
    assert Pair(a, a, 1).first == 1  # as pyright, where a float is asked for
    with pytest.raises(BeartypeCallHintViolation, match="parameter"):
        Pair(a, b)
    with pytest.raises(BeartypeCallHintViolation, match="return"):
        _ = Pair(a, a, 0.5).first


def test_stages_are_checked() -> None:
    assert percent(1)
    with pytest.raises(BeartypeCallHintViolation):
        percent("1")  # type: ignore[arg-type]


def test_in_each_test_the_first_calls_of_a_function_are_checked() -> None:
    for _ in range(checker.CHECKED_CALLS):
        scaled(SQUARE, torch.ones(2))
    wrong = SQUARE.long(), torch.ones(2).long()
    assert scaled(*wrong).dtype == torch.long
    checker.calls.clear()  # as the next test begins
    with pytest.raises(BeartypeCallHintViolation, match="parameter"):
        scaled(*wrong)
