"""What a method is."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import nn

from stages.models._backbone import Backbone
from stages.models._heads import Headed
from stages.text.batch import Batch


class Method(ABC):
    """Transforms a model and says, by ``requires_grad``, what of it trains.

    What requires a gradient after ``apply`` is what training may change, and all that is stored: a
    trial is its pretrained backbone, ``apply``, and the stored weights put in by their names.

    Not every method fits every model. Where a study has runs that a method does not fit
    (``misfit``), it has no trials of the two: the method is left out for those runs, the report
    shows no number there, and every other trial is made. What is refused, before anything runs, is
    a method that fits no run of the study, and a run that no method fits.
    """

    freezes_backbone: ClassVar[bool] = False  # then trials of one method share its states
    architectures: ClassVar[tuple[str, ...]] = ()  # those it fits; all if it names none
    num_added_tokens: int = 0  # by which each input grows inside the backbone
    states_only: ClassVar[bool] = False  # what a backbone generates does not pass what is added

    def misfit(self, backbone: Backbone) -> str | None:
        """Why the method cannot adapt this backbone; None if it can. Looks at no weights."""
        if self.architectures and backbone.architecture not in self.architectures:
            return f"fits {', '.join(self.architectures)}, not {backbone.architecture}"
        return None

    @abstractmethod
    def apply(self, model: Headed, *, generator: torch.Generator) -> None:
        """Prepare the model in place; new weights are drawn from ``generator``."""

    def before_training(  # noqa: B027 (most methods have nothing to do)
        self, model: Headed, batches: Iterable[Batch]
    ) -> None:
        """See every batch that will be trained on or predicted, once, in a fixed order."""

    def frozen(self, model: Headed, epoch: int) -> Iterable[nn.Parameter]:
        """What of that which ``apply`` lets train does not do so in this epoch, counted from 0; in
        each epoch none that trained in an earlier one."""
        return ()
