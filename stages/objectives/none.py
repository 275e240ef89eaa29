"""No objective: the weights stay as initialised, from scratch or from a public checkpoint."""

import numpy as np

from stages.models._heads import ModelWithHead
from stages.objectives._objective import Objective, Terms
from stages.text.batch import Batch
from stages.text.packing import Row


class NoObjective(Objective):
    trains = False

    def collate(self, examples: list[Row], *, rngs: list[np.random.Generator]) -> Batch:
        raise AssertionError("nothing is trained without an objective")

    def loss(self, model: ModelWithHead, batch: Batch) -> Terms:
        raise AssertionError("nothing is trained without an objective")
