"""The likelihood of tokens under a causal model."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from stages.models._backbone import Backbone
from stages.models._heads import labelled
from stages.text.batch import Batch

POSITIONS_AT_ONCE = 1024  # number of positions whose logits are in memory


def log_likelihoods(model: Backbone, batch: Batch) -> Float[Tensor, " B"]:
    """Returns the log-probability, in nats, of each row's labels, which are the next tokens.

    Logits are computed only at positions with a label. Sums are in float32.
    """
    assert batch.labels is not None and batch.label_places is not None
    rows, _ = batch.label_places.clamp(min=0)
    states, labels = labelled(model(batch), batch.labels, batch.label_places)
    by_label = [
        -F.cross_entropy(model.unembed(some).float(), right, reduction="none")
        for some, right in zip(
            states.split(POSITIONS_AT_ONCE), labels.split(POSITIONS_AT_ONCE), strict=True
        )
    ]
    total = torch.zeros(len(batch.labels), device=rows.device)
    return total.index_add(0, rows, torch.cat(by_label)) if by_label else total
