"""Multiple choice: which of several texts goes with a text."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from stages.core.artifacts import Json
from stages.tasks._cells import Row, folded
from stages.tasks._pooled import PooledTask, Pooling, Reading
from stages.tasks._task import (
    Batch,
    CellSetting,
    Example,
    ModelWithHead,
    Predicted,
    Tensor,
    example_of,
)
from stages.tasks._text_form import NO_LABEL, TextForm
from stages.text.ignored import IGNORE_INDEX

ABSENT = -1  # marks absent choices of rows with fewer choices than others


class MultipleChoice(PooledTask):
    """Rows of ``text``, maybe a ``question`` about it, ``choices``, and ``label``, the number of
    the right choice. The choices may be several columns, and rows may differ in their number.

    ``first_choice`` is the number or letter of the first choice in the data.

    Reads each choice as the second text of a pair; the first is the text with its question. One
    state gives the choice's logit (``PooledTask``); the softmax is over the choices of a row (BERT
    on SWAG; Devlin et al. 2019, section 4.4).

    The choices of a row are always in one batch, so ``batch_examples`` counts rows.
    """

    inputs = ("text", "choices")
    optional = ("question",)
    target = "label"
    shared = "text"  # rows about one text may share their right choices
    lists = gathered = ("choices",)
    metrics = ("accuracy",)
    right_if = "accuracy"
    has_text_form = True
    cell_settings = {"first_choice": CellSetting(Literal[0, 1, "A"], 0)}
    has_bias = False  # which a softmax over choices would ignore

    def __init__(self, *from_code: Any, pooling: Pooling = "mean", dropout: float = 0.1) -> None:
        super().__init__(*from_code, reading=Reading(pooling=pooling, dropout=dropout))

    def checked(self, row: Json, place: str) -> Json:
        """Replaces ``label`` by the number of the right choice, counted from 0."""
        label, first = row["label"].strip().upper(), self.cells.first_choice
        if (num := len(row["choices"])) < 2:
            raise ValueError(f"{place}: there must be at least 2 choices")
        names = [chr(ord("A") + i) if first == "A" else str(first + i) for i in range(num)]
        if label not in names:
            raise ValueError(
                f"{place}: label {row['label']!r} is none of its {num} choices, the first of which "
                f"is {first} (first_choice)"
            )
        return row | {"label": str(names.index(label))}

    def shown(self, row: Row, prediction: str) -> str:
        """Returns the text of the predicted choice."""
        is_choice = prediction.isdigit() and int(prediction) < len(row["choices"])
        return row["choices"][int(prediction)] if is_choice else prediction

    def named_texts(self, row: Row) -> dict[str, str]:
        columns = {c: row[c] for c in ("text", "question") if c in row}
        return columns | {f"choice{i}": c for i, c in enumerate(row["choices"], start=1)}

    def written(self, row: Row, form: TextForm) -> str:
        return row["choices"][int(row["label"])]

    def meaning(self, row: Row, text: str, form: TextForm) -> str:
        matches = [i for i, choice in enumerate(row["choices"]) if folded(choice) == folded(text)]
        return str(matches[0]) if matches else NO_LABEL

    def predicted_columns(self, row: Row, prediction: str) -> Json:
        return {"label": prediction, "choice": self.shown(row, prediction)}

    def encode(self, rows: Sequence[Row]) -> list[Example]:
        read = [" ".join([row["text"], row.get("question", "")]).strip() for row in rows]
        encoded = iter(self.tokenizer.encode([one for row in rows for one in row["choices"]]))
        examples = list[Example]()
        for row, text in zip(rows, self.tokenizer.encode(read), strict=True):
            label = np.array([int(row["label"]) if "label" in row else IGNORE_INDEX])
            pairs = [self.wrap(text, next(encoded)) for _ in row["choices"]]
            choices = tuple(example_of(row, p, label, window=i) for i, p in enumerate(pairs))
            tokens = np.concatenate([choice.tokens for choice in choices])
            num_cut = sum(pair.num_cut for pair in pairs)
            examples.append(Example(row["id"], tokens, label, num_cut=num_cut, choices=choices))
        return examples

    def collate(self, examples: list[Example], *, rngs: list[np.random.Generator]) -> Batch:
        """Returns one padded row per choice, with the choices of a row next to each other."""
        # A copy of an example may have a new id, which its choices take over here.
        choices = [replace(one, id=row.id) for row in examples for one in row.choices]
        return super().collate(choices, rngs=rngs)

    def targets(self, examples: list[Example]) -> Json:
        """Returns which examples (here choices) belong to one row, and which of them is right."""
        from stages.text.batch import pad

        firsts = [i for i, example in enumerate(examples) if example.window == 0]
        choices = np.split(np.arange(len(examples)), firsts[1:])
        extra = pad(choices, ABSENT, length=max(map(len, choices)))
        return super().targets([examples[i] for i in firsts]) | {"extra": extra}

    def outputs(self, model: ModelWithHead, batch: Batch) -> Float[Tensor, "R C"]:
        """Returns a logit for each choice of each row."""
        import torch

        assert batch.extra is not None
        logits = self.numbers(model, batch)[batch.extra.clamp(min=0)]
        return logits.masked_fill(batch.extra == ABSENT, -torch.inf)

    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Example]) -> list[Any]:
        logits = self.outputs(model, batch)
        best, probabilities = logits.argmax(dim=-1), logits.softmax(dim=-1)
        return [
            Predicted(str(i), {str(j): row[j] for j in range(len(example.choices))})
            for i, row, example in zip(best.tolist(), probabilities.tolist(), examples, strict=True)
        ]
