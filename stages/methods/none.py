"""No adaptation: the model as it was pretrained, where a task adds nothing that is to be learnt."""

import torch

from stages.methods._method import Method
from stages.models._heads import ModelWithHead


class NoAdaptation(Method):
    """Nothing trains, so that label budget and seed change nothing. It fits a text that is scored
    (``language_modelling``) or written: ``seq2seq``, and with ``text_to_text: true`` the others,
    which a run has learnt to write by ``multi_task``.
    """

    freezes_backbone = True
    trains = False

    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        model.requires_grad_(False)
