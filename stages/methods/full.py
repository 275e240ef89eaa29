"""Full fine-tuning: every weight trains (GPT and BERT)."""

import torch

from stages.methods._method import Method
from stages.models._heads import ModelWithHead


class Full(Method):
    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        model.requires_grad_(True)
