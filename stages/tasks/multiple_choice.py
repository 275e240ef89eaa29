"""Multiple choice: which of several texts goes with a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from stages.core.artifacts import Json
from stages.tasks._cells import Row
from stages.tasks._kind import CellSettings
from stages.tasks._plain_text import folded
from stages.tasks._pooled import PooledTask, Pooling, Reading
from stages.tasks._task import Example, Predicted, example_of
from stages.tasks._text_form import NO_LABEL, TextForm
from stages.text.ignored import IGNORE_INDEX

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from stages.models._backbone import Backbone
    from stages.models._heads import ModelWithHead, PooledHead
    from stages.text.batch import Batch


class _AsText(TextForm):
    """Writes the text of the right choice; any other text is read as ``NO_LABEL``."""

    def parts(self, row: Row) -> list[tuple[str, str]]:
        texts = [(f"{c}:", row[c]) for c in self.columns if c in row and c != "choices"]
        choices = [(f"choice{i}:", one) for i, one in enumerate(row["choices"], start=1)]
        (before, text), *others = [*texts, *choices]
        return [(f"{self.key} {before}", text), *others]

    def answer(self, row: Row) -> str | None:
        return row["choices"][int(row["label"])] if "label" in row else None

    def prediction(self, row: Row, text: str) -> str:
        matches = [i for i, choice in enumerate(row["choices"]) if folded(choice) == folded(text)]
        return str(matches[0]) if matches else NO_LABEL


ABSENT = -1  # marks absent choices of rows with fewer choices than others


@dataclass(frozen=True, kw_only=True)
class _CellSettings(CellSettings):
    first_choice: Literal[0, 1, "A"] = 0


class MultipleChoice(PooledTask):
    """Rows of ``text``, maybe a ``question`` about it, ``choices``, and ``label``, the number of
    the right choice. The choices may be several columns, and rows may differ in their number.

    ``first_choice`` is the number or letter of the first choice in the data.

    Reads ``<bos> text <eos> choice <eos>`` for each choice, or the tokenizer's own special
    tokens. One state gives the choice's logit; the softmax is over the choices of a row (BERT on
    SWAG; Devlin et al. 2019, section 4.4). A question about the text follows the text.

    The choices of a row are always in one batch, so ``batch_examples`` counts rows.
    """

    inputs = ("text", "choices")
    optional = ("question",)
    target = "label"
    lists = gathered = ("choices",)
    metrics = ("accuracy",)
    right_if = "accuracy"
    form = _AsText
    cells = _CellSettings()

    def __init__(
        self,
        *from_code: Any,
        pooling: Pooling = "mean",
        dropout: float = 0.1,
    ) -> None:
        super().__init__(*from_code, reading=Reading(pooling=pooling, dropout=dropout))

    def checked(self, row: Json, place: str) -> Json:
        """Replaces ``label`` by the number of the right choice, counted from 0."""
        number, choices = self._number(row["label"].strip()), row["choices"]
        if len(choices) < 2:
            raise ValueError(f"{place}: there must be at least 2 choices")
        if number not in range(len(choices)):
            raise ValueError(
                f"{place}: label {row['label']!r} is none of its {len(choices)} choices, the first "
                f"of which is {self.cells.first_choice} (first_choice)"
            )
        return row | {"label": str(number)}

    def _number(self, label: str) -> int:
        """Returns a label's number from 0; for an invalid label, a number that no choice has."""
        if self.cells.first_choice == "A":
            return ord(label.upper()) - ord("A") if len(label) == 1 else -1
        return int(label) - self.cells.first_choice if label.isascii() and label.isdigit() else -1

    def split_key(self, row: Row) -> str:
        """Returns the text, since rows about one text may share their right choices."""
        return folded(row["text"])

    def shown(self, row: Row, prediction: str) -> str:
        """Returns the text of the predicted choice."""
        is_choice = prediction.isdigit() and int(prediction) < len(row["choices"])
        return row["choices"][int(prediction)] if is_choice else prediction

    def predicted_columns(self, row: Row, prediction: str) -> Json:
        return {"label": prediction, "choice": self.shown(row, prediction)}

    def head(self, backbone: Backbone) -> PooledHead:
        """Returns a head without a bias, which a softmax over choices would ignore."""
        from stages.models._heads import PooledHead

        self.check_read(is_causal=self.is_causal, pooling=self.pooling)
        settings = {"dropout": self.dropout, "pooling": self.pooling}
        return PooledHead(backbone.d_model, 1, **settings, bias=False)

    def encode(self, rows: Sequence[Row]) -> list[Example]:
        read = [" ".join([row["text"], row.get("question", "")]).strip() for row in rows]
        texts = self.tokenizer.encode(read)
        choices = iter(self.tokenizer.encode([one for row in rows for one in row["choices"]]))
        return [
            self._example(row, text, [next(choices) for _ in row["choices"]])
            for row, text in zip(rows, texts, strict=True)
        ]

    def _example(self, row: Row, text: list[int], choices: list[list[int]]) -> _Choices:
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
        import torch

        from stages.text.batch import pad

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
        import torch.nn.functional as F

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
        import torch

        assert batch.choices is not None
        logits = self.outputs(model, batch)[batch.choices.clamp(min=0)]
        return logits.masked_fill(batch.choices == ABSENT, -torch.inf)


@dataclass(frozen=True)
class _Choices(Example):
    """A row with its choices. Its tokens are those of all choices, each together with the text."""

    choices: tuple[Example, ...] = ()


def choices_of(example: Example) -> tuple[Example, ...]:
    assert isinstance(example, _Choices)
    return example.choices
