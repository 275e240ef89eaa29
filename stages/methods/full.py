"""Full fine-tuning: every weight trains (GPT and BERT)."""

import torch

from stages.methods._method import TrainedMethod
from stages.models._heads import ModelWithHead


class Full(TrainedMethod):
    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        model.requires_grad_(True)
