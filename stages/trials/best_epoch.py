"""The choice of the epoch whose weights a trial keeps."""

import math
from collections.abc import Sequence

from torch import Tensor

from stages.core.params import Adaptation
from stages.evaluation import metrics
from stages.evaluation.records import EpochRecord
from stages.models._heads import ModelWithHead
from stages.training.finetuning import warmup_epochs

LATE = 0.25  # share of the epochs at the end that count as late
LOWER = 0.01  # share of the first epoch's validation loss; a smaller fall may be noise
UNFITTED = 0.05  # share of the training loss's fall; if more of it is late, the model is not fitted


class BestEpoch:
    """The epoch with the best validation metric among the epochs passed to ``update``. Ties go to
    the epoch with the lowest validation loss, then to the first.

    The loss alone does not decide: with few labels it rises, because the model becomes
    overconfident, long before the metric is at its best.
    """

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self._merit, self._weights = (-math.inf, -math.inf), dict[str, Tensor]()
        self.lr, self.epoch, self.threshold = 0.0, 0, 0.0

    def update(self, model: ModelWithHead, epoch: EpochRecord, *, threshold: float) -> None:
        """Keeps the trained weights of ``model`` if ``epoch`` is the best so far."""
        merit = metrics.merit(self.metric, epoch.validation_metric), -epoch.validation_loss
        if merit > self._merit:
            self._merit, self.threshold = merit, threshold
            self.lr, self.epoch = epoch.lr, epoch.epoch
            named = model.named_parameters()
            self._weights = {name: w.detach().clone() for name, w in named if w.requires_grad}

    def put_into(self, model: ModelWithHead) -> None:
        """Puts the kept weights into ``model``."""
        model.load_state_dict(self._weights, strict=False)


class Patience:
    """Decides when training at one learning rate ends early."""

    def __init__(self, settings: Adaptation, metric: str, *, num_examples: int) -> None:
        self._metric, self._patience = metric, settings.patience
        self._warmup = warmup_epochs(settings, num_examples)
        self._merit, self._loss, self._improved = -math.inf, math.inf, 0

    def is_over(self, epoch: EpochRecord) -> bool:
        """Takes the next ``epoch``. Returns whether neither the metric nor the loss has improved in
        the last ``patience`` epochs, all after the warm-up."""
        merit = metrics.merit(self._metric, epoch.validation_metric)
        if merit > self._merit or epoch.validation_loss < self._loss or epoch.epoch <= self._warmup:
            self._improved = epoch.epoch
        self._merit = max(merit, self._merit)
        self._loss = min(epoch.validation_loss, self._loss)
        return isinstance(self._patience, int) and epoch.epoch - self._improved >= self._patience


def best_on_validation(curve: Sequence[EpochRecord], metric: str) -> int:
    """Returns the number of the epoch with the best validation metric, even if the trial keeps
    another. Ties go to the epoch with the lowest loss, then to the first."""
    best = max(
        curve, key=lambda e: (metrics.merit(metric, e.validation_metric), -e.validation_loss)
    )
    return best.epoch


def still_improving(curve: Sequence[EpochRecord], metric: str) -> bool:
    """Returns whether training ended too early.

    It did if the validation loss, in the last quarter of the epochs, fell clearly (``LOWER``) below
    its earlier minimum. It also did if the epoch with the best ``metric`` on validation is in the
    last quarter and more than ``UNFITTED`` of the training loss's whole fall is in that quarter. A
    best last epoch alone is no sign: on a plateau, any epoch may be the best.
    """
    late = math.ceil(LATE * len(curve))
    before, after = curve[:-late], curve[-late:]
    if not before:
        return True  # a single epoch
    lowest = min(epoch.validation_loss for epoch in before)
    new = min(epoch.validation_loss for epoch in after)
    if lowest - new > LOWER * abs(curve[0].validation_loss):
        return True
    fall = curve[0].train_loss - curve[-1].train_loss
    late_fall = before[-1].train_loss - curve[-1].train_loss
    return best_on_validation(curve, metric) >= after[0].epoch and late_fall > UNFITTED * abs(fall)
