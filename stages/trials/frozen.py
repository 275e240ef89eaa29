"""States of a frozen backbone that are computed once."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from stages.models._heads import LinearHead, ModelWithHead, PooledHead
from stages.tasks._task import Example, Task
from stages.text.batch import IGNORE_INDEX, Batch
from stages.training.device import Device
from stages.training.finetuning import in_order_of_length

PREDICTED_AT_ONCE = 64  # examples in a batch


class FrozenStates:
    """What the linear layer of a head reads of each example: one pooled state [D], or the states of
    its tokens [T D]. They are computed once for each example, in float32."""

    def __init__(self, task: Task, device: Device) -> None:
        assert device.precision == "float32", "states of new texts would differ"
        self.task, self.device = task, device
        self._known = dict[str, Tensor]()  # by the key of the example

    @torch.no_grad()
    def compute(
        self, model: ModelWithHead, examples: Sequence[Example], *, anew: bool = False
    ) -> None:
        """Computes the states of the examples that are not known or, with ``anew``, of all: padding
        changes the last bit of a state, and nothing may depend on which trials ran before."""
        model.eval()
        missing = [each for each in examples if anew or each.key not in self._known]
        given = list[Tensor]()
        keep = model.head.linear.register_forward_pre_hook(
            lambda _, inputs: given.append(inputs[0])
        )
        try:
            for part in in_order_of_length(missing, batch_examples=PREDICTED_AT_ONCE):
                given.clear()
                self.task.loss(model, self.task.collate(part, rngs=[]).to(self.device.torch))
                for example, states in zip(part, given[0], strict=True):
                    size = len(example.tokens) if states.dim() == 2 else len(states)
                    self._known[example.key] = states[:size].clone()
        finally:
            keep.remove()

    def of(self, examples: Sequence[Example]) -> Float[Tensor, "R T D"]:
        """Returns the states of computed examples, padded with 0; T is 1 if they are pooled."""
        states = [self._known[example.key] for example in examples]
        if states[0].dim() == 1:
            return torch.stack(states).unsqueeze(1)
        return nn.utils.rnn.pad_sequence(states, batch_first=True)

    def labelled(
        self, examples: Sequence[Example]
    ) -> tuple[Float[np.ndarray, "N D"], np.ndarray, Float[np.ndarray, " N"]]:
        """Returns the states that have a label, the labels (classes [N], numbers [N], or the labels
        that each text has [N L]) and the weights of the labels in the loss."""
        states, labels, weights = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
        for example in examples:
            own = self._known[example.key].cpu().numpy()
            own = own.reshape(-1, own.shape[-1])
            of_states = example.labels
            if self.task.kind.name == "multi_label":
                of_states = of_states[None]
            is_number = of_states.dtype.kind == "f"
            known = ~np.isnan(of_states) if is_number else of_states != IGNORE_INDEX
            known = known.reshape(len(own), -1).all(axis=1)
            states.append(own[known])
            labels.append(of_states[known])
            of_labels = np.ones(len(own)) if example.weights is None else example.weights
            weights.append(of_labels[known])
        return np.concatenate(states), np.concatenate(labels), np.concatenate(weights)


class OnStates(nn.Module):
    """The linear layer of a head, for states of ``FrozenStates``."""

    def __init__(self, head: LinearHead) -> None:
        super().__init__()
        self.linear, self.is_pooled = head.linear, isinstance(head, PooledHead)

    def forward(self, states: Float[Tensor, "R T D"], *others: Tensor) -> Tensor:
        return self.linear(states[:, 0] if self.is_pooled else states)


@contextmanager
def computed_once(backbone: nn.Module, known: Tensor | None = None) -> Iterator[None]:
    """Within this context the backbone computes the states of a batch only once or, with ``known``
    states, not at all. Other batches (a decoder's input and target) are computed each time."""
    compute, first = backbone.forward, list[tuple[Batch, Tensor]]()

    def forward(batch: Batch) -> Tensor:
        if known is not None:
            return known
        if not first:
            first.append((batch, compute(batch)))
        read, states = first[0]
        return states if read is batch else compute(batch)

    backbone.forward = forward
    try:
        yield
    finally:
        del backbone.forward  # the method of the class is used again
