"""Full fine-tuning: every weight trains (GPT and BERT)."""

import torch

from stages.methods._method import Method
from stages.models._heads import Headed


class Full(Method):
    def apply(self, model: Headed, *, generator: torch.Generator) -> None:
        model.requires_grad_(True)
