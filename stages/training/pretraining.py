"""The batches of pretraining: rows of a packed corpus, masked or corrupted by an objective."""

from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from stages.seeding import stream
from stages.text.batch import Batch
from stages.text.packing import Packing, Row

VALIDATION_ROWS = 256  # at most; the same of every run on a corpus
VALIDATION_SEED = 0


@runtime_checkable
class Collator(Protocol):
    """An Objective."""

    @property
    def compares_documents(self) -> bool: ...

    def collate(self, examples: list[Row], *, rngs: list[Any]) -> Batch: ...


class PretrainingData:
    """Step s takes rows s * batch_rows, ... of the packing, in micro-batches."""

    def __init__(
        self,
        packing: Packing,
        objective: Collator,
        *,
        batch_rows: int,
        micro_batch_rows: int,
        seed: int,
    ) -> None:
        self._packing, self._objective, self._seed = packing, objective, seed
        self._batch_rows, self._micro_batch_rows = batch_rows, micro_batch_rows

    def micro_batches(self, step: int) -> list[Batch]:
        rows = range(step * self._batch_rows, (step + 1) * self._batch_rows)
        return _collated(
            self._packing, self._objective, rows, self._micro_batch_rows, self._seed, "corruption"
        )


def validation_batches(packing: Packing, objective: Collator, *, batch_rows: int) -> list[Batch]:
    """The first rows of a validation split, corrupted alike for every run."""
    rows = range(min(packing.rows_per_epoch, VALIDATION_ROWS))
    return _collated(packing, objective, rows, batch_rows, VALIDATION_SEED, "validation")


def _collated(
    packing: Packing, objective: Collator, rows: range, batch_rows: int, seed: int, name: str
) -> list[Batch]:
    def row(i: int) -> Row:
        if not objective.compares_documents:
            return packing.row(i)
        other = int(stream(seed, f"{name} other", i).integers(packing.rows_per_epoch))
        return replace(packing.row(i), other=packing.row(other))

    return [
        objective.collate([row(i) for i in part], rngs=[stream(seed, name, i) for i in part])
        for part in (rows[at : at + batch_rows] for at in range(0, len(rows), batch_rows))
    ]
