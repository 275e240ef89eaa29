"""The epoch of a trial that is best on validation, with its weights."""

import math

from torch import Tensor

from stages.evaluation import metrics
from stages.models._heads import ModelWithHead


class BestEpoch:
    """The epoch with the best validation metric, of all learning rates of a trial; of equal ones
    the first."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._merit, self._weights = -math.inf, dict[str, Tensor]()
        self.lr, self.epoch, self.threshold = 0.0, 0, 0.0

    def update(
        self, model: ModelWithHead, value: float, *, lr: float, epoch: int, threshold: float
    ) -> None:
        """Keep the trained weights of ``model`` if ``value`` is the best so far."""
        merit = metrics.merit(self._metric, value)
        if merit > self._merit:
            self._merit, self.lr, self.epoch, self.threshold = merit, lr, epoch, threshold
            named = model.named_parameters()
            self._weights = {name: w.detach().clone() for name, w in named if w.requires_grad}

    def restore(self, model: ModelWithHead) -> None:
        """Put the kept weights into ``model``."""
        model.load_state_dict(self._weights, strict=False)
