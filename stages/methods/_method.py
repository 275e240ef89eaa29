"""What a method is."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

import torch

from stages.models._heads import Headed
from stages.text.batch import Batch


class Method(ABC):
    """Transforms a model and says, by ``requires_grad``, what of it trains."""

    freezes_backbone: ClassVar[bool]  # then trials of one method share its states

    @abstractmethod
    def apply(self, model: Headed, *, generator: torch.Generator) -> None:
        """Prepare the model in place; new weights are drawn from ``generator``."""

    def before_training(  # noqa: B027 (most methods have nothing to do)
        self, model: Headed, batches: Iterable[Batch]
    ) -> None:
        """See every batch that will be trained on or predicted, once, in a fixed order."""
