"""SetFit: contrastive fine-tuning on pairs of labelled rows, then logistic regression (Tunstall et
al. 2022)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from stages.methods._logistic import WIDE, LogisticHead
from stages.methods._method import Lesson, TrainedMethod
from stages.models._heads import ModelWithHead, pool
from stages.tasks._task import Example
from stages.text.batch import Batch

TERM = "similarity"


class SetFit(TrainedMethod):
    """Trains the model so that the cosine of the pooled states of two rows is 1 if they have the
    same label, else 0 (section 3; the loss is the squared error). After each epoch the head is
    fitted to the states, as ``linear_probe`` does with the same ``C``.

    A row is the first of ``num_pairs`` pairs, half with rows of its label and half with others,
    both drawn with replacement; a row that is alone in its class has only the latter. (The authors'
    code draws R of either kind, with R = 20.) If there are more than ``max_pairs``, which more than
    64 rows have by default, that many are drawn. Pairs are the same in all epochs; ``training``
    counts them as examples. The authors train for one epoch. Everything is in float32.
    """

    requires_head = True
    fits = ("classification",)

    def __init__(
        self, *, num_pairs: int = 20, max_pairs: int = 1280, C: Sequence[float] = WIDE
    ) -> None:
        if num_pairs < 2 or num_pairs % 2:
            raise ValueError(f"num_pairs must be even and at least 2, not {num_pairs}")
        if max_pairs < 1:
            raise ValueError(f"max_pairs must be at least 1, not {max_pairs}")
        self.num_pairs, self.max_pairs = num_pairs, max_pairs
        self.probe = LogisticHead(C=C)

    def epoch_size(self, num_rows: int) -> tuple[int, int]:
        return min(num_rows * self.num_pairs, self.max_pairs), 2

    def lesson(
        self, task: Lesson, examples: Sequence[Example], *, rng: np.random.Generator
    ) -> tuple[Lesson, list[Example]]:
        classes = np.concatenate([example.labels for example in examples])
        drawn = draw_pairs(classes, self.num_pairs, rng=rng)
        if not len(drawn):
            raise ValueError("label_budgets: a single labelled row makes no pair")
        if len(drawn) > self.max_pairs:
            drawn = drawn[np.sort(rng.choice(len(drawn), self.max_pairs, replace=False))]
        return _Similarity(task), [_pair(examples[a], examples[b]) for a, b in drawn]


def draw_pairs(
    classes: Int[np.ndarray, " N"], num_pairs: int, *, rng: np.random.Generator
) -> Int[np.ndarray, "P 2"]:
    """Returns, for each row, up to ``num_pairs`` pairs with another row: half of its class, half of
    other classes."""
    pairs, numbers = list[np.ndarray](), np.arange(len(classes))
    for row, own in enumerate(classes):
        for others in (numbers[(classes == own) & (numbers != row)], numbers[classes != own]):
            if len(others):
                second = rng.choice(others, num_pairs // 2)
                pairs.append(np.stack([np.full_like(second, row), second], axis=1))
    return np.concatenate(pairs) if pairs else np.empty((0, 2), dtype=np.int64)


def _pair(a: Example, b: Example) -> Example:
    """Returns a pair as one example, whose label is the cosine and whose length the longer one."""
    longer = max(a.tokens, b.tokens, key=len)
    same = (a.labels == b.labels).astype(np.float32)
    return Example(f"{a.id} {b.id}", longer, same, choices=(a, b))


class _Similarity:
    """The squared error of the cosines of pairs."""

    def __init__(self, task: Lesson) -> None:
        self.task, self.max_tokens = task, task.max_tokens

    def collate(self, examples: list[Example], *, rngs: list[np.random.Generator]) -> Batch:
        """Returns the first rows of all pairs, then the second ones."""
        rows = [
            row for column in zip(*(e.choices for e in examples), strict=True) for row in column
        ]
        same = torch.from_numpy(np.concatenate([example.labels for example in examples]))
        counted, batch = {TERM: len(examples)}, self.task.collate(rows, rngs=rngs)
        return replace(batch, labels=same, label_weights=None, num_targets=counted)

    def loss(self, model: ModelWithHead, batch: Batch) -> dict[str, tuple[float, Tensor]]:
        states = pool(model.backbone(batch), batch.document_ids, model.head.pooling).float()
        assert batch.labels is not None
        cosines = F.cosine_similarity(*states.chunk(2), dim=-1)
        return {TERM: (1.0, (cosines - batch.labels).square().sum())}
