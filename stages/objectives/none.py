"""No objective: the weights stay as initialised, from scratch or from a public checkpoint."""

import numpy as np

from stages.objectives._objective import Objective
from stages.text.batch import Batch
from stages.text.packing import Row


class NoObjective(Objective):
    trains = False

    def collate(self, examples: list[Row], *, rngs: list[np.random.Generator]) -> Batch:
        raise AssertionError("nothing is trained without an objective")
