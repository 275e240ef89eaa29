"""Multiple choice: which of several texts goes with a text."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from stages.core.artifacts import Json
from stages.kinds._cells import Row
from stages.kinds.multiple_choice import TextWithChoices
from stages.models._backbone import Backbone, Pooling
from stages.models._heads import ModelWithHead, PooledHead
from stages.tasks._pooled import PooledTask, Reading
from stages.tasks._task import Example, Predicted, example_of
from stages.text.batch import IGNORE_INDEX, Batch, pad

ABSENT = -1  # marks absent choices of rows with fewer choices than others


class MultipleChoice(PooledTask):
    """Reads ``<bos> text <eos> choice <eos>`` for each choice, or the tokenizer's own special
    tokens. One state gives the choice's logit; the softmax is over the choices of a row (BERT on
    SWAG; Devlin et al. 2019, section 4.4). A question about the text follows the text.

    The choices of a row are always in one batch, so ``batch_examples`` counts rows.
    """

    kind = TextWithChoices()

    def __init__(
        self,
        *from_code: Any,
        pooling: Literal["auto", "mean", "first", "last"] = "auto",
        dropout: float = 0.1,
    ) -> None:
        super().__init__(*from_code, reading=Reading(pooling=pooling, dropout=dropout))

    def head(self, backbone: Backbone) -> PooledHead:
        pooling = super().head(backbone).pooling
        return _ChoiceHead(backbone.d_model, dropout=self.dropout, pooling=pooling)

    def encode(self, rows: Sequence[Row]) -> list[Example]:
        read = [" ".join([row["text"], row.get("question", "")]).strip() for row in rows]
        texts = self.tokenizer.encode(read)
        choices = iter(self.tokenizer.encode([one for row in rows for one in row["choices"]]))
        return [
            self._example(row, text, [next(choices) for _ in row["choices"]])
            for row, text in zip(rows, texts, strict=True)
        ]

    def _example(self, row: Row, text: list[int], choices: list[list[int]]) -> "_Choices":
        label = np.array([int(row["label"]) if "label" in row else IGNORE_INDEX])
        examples = [
            example_of(row["id"], self.wrap(text, choice), label, window=number)
            for number, choice in enumerate(choices)
        ]
        tokens = np.concatenate([example.tokens for example in examples])
        num_cut = sum(example.num_cut for example in examples)
        return _Choices(row["id"], tokens, label, num_cut=num_cut, choices=tuple(examples))

    def collate(self, examples: list[Example], *, rngs: list[np.random.Generator]) -> Batch:
        """Returns one padded row per choice, with the choices of a row next to each other."""
        # A copy of an example may have a new id, which its choices take over here.
        choices = [replace(one, id=row.id) for row in examples for one in choices_of(row)]
        return super().collate(choices, rngs=rngs)

    def targets(self, examples: list[Example]) -> Json:
        """Returns which examples (here choices) belong to one row, and which of them is right."""
        firsts = [i for i, example in enumerate(examples) if example.window == 0]
        ends = [*firsts[1:], len(examples)]
        labels = torch.from_numpy(np.array([examples[i].labels[0] for i in firsts]))
        choices = [np.arange(*each) for each in zip(firsts, ends, strict=True)]
        return {
            "labels": labels,
            "choices": pad(choices, ABSENT, length=max(map(len, choices))),
            "num_targets": {"multiple_choice": int((labels != IGNORE_INDEX).sum())},
        }

    def loss(self, model: ModelWithHead, batch: Batch) -> dict[str, tuple[float, Tensor]]:
        assert batch.labels is not None
        logits = self._logits(model, batch)
        loss = F.cross_entropy(logits, batch.labels, ignore_index=IGNORE_INDEX, reduction="sum")
        return {"multiple_choice": (1.0, loss)}

    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Example]) -> list[str]:
        return [each.prediction for each in self.predict_scored(model, batch, examples)]

    def predict_scored(
        self, model: ModelWithHead, batch: Batch, examples: list[Example]
    ) -> list[Predicted]:
        logits = self._logits(model, batch)
        best, probabilities = logits.argmax(dim=-1), logits.softmax(dim=-1)
        return [
            Predicted(str(i), {str(j): row[j] for j in range(len(choices_of(example)))})
            for i, row, example in zip(best.tolist(), probabilities.tolist(), examples, strict=True)
        ]

    def _logits(self, model: ModelWithHead, batch: Batch) -> Float[Tensor, "R C"]:
        assert batch.choices is not None
        logits = self.outputs(model, batch)[batch.choices.clamp(min=0)]
        return logits.masked_fill(batch.choices == ABSENT, -torch.inf)


class _ChoiceHead(PooledHead):
    """A logit for each choice, without a bias, which a softmax over choices would ignore."""

    def __init__(self, d_model: int, *, dropout: float, pooling: Pooling) -> None:
        super().__init__(d_model, 1, dropout=dropout, pooling=pooling)
        self.linear = nn.Linear(d_model, 1, bias=False)


@dataclass(frozen=True)
class _Choices(Example):
    """A row with its choices. Its tokens are those of all choices, each together with the text."""

    choices: tuple[Example, ...] = ()


def choices_of(example: Example) -> tuple[Example, ...]:
    assert isinstance(example, _Choices)
    return example.choices
