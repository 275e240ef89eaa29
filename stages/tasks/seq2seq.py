"""Sequence to sequence: a text is written from a text (translation, summarisation)."""

from __future__ import annotations

from typing import Any, Literal

from stages.tasks._cells import Row
from stages.tasks._text_form import TextForm
from stages.tasks._writing import Writing

NO_PREFIX = "none"


class _AsText(TextForm):
    """Writes the target text. The input begins with the task's ``prefix``, not the task's name."""

    def input(self, row: Row) -> str:
        prefix = self.settings.get("prefix", NO_PREFIX)
        return row["text"] if prefix == NO_PREFIX else prefix + row["text"]

    def answer(self, row: Row) -> str | None:
        return row.get("target")


class Seq2Seq(Writing):
    """Rows of ``text`` and ``target``, the text to write.

    Writes the row's target from its text, with ``prefix`` before every text (T5's "translate
    English to German: ", Raffel et al. 2020, section 2.4).

    ``num_beams`` and ``length_penalty`` apply to the predictions for validation and test rows
    (``stages.models._generation.Decoding``).

    Raises ValueError for a prefix that leaves no room for a text.
    """

    inputs = ("text",)
    target = "target"
    metrics = ("bleu", "chrf", "rouge_l")
    form = _AsText

    def __init__(
        self,
        *from_code: Any,
        max_target_tokens: int,
        num_beams: int = 1,
        length_penalty: float = 1.0,
        prefix: str = NO_PREFIX,
        label_smoothing: float = 0.0,
        metric: Literal["bleu", "chrf", "rouge_l"] = "bleu",
    ) -> None:
        super().__init__(*from_code)
        self.check(
            self.max_tokens,
            max_target_tokens=max_target_tokens,
            num_beams=num_beams,
            label_smoothing=label_smoothing,
        )
        self.max_target_tokens, self.label_smoothing = max_target_tokens, label_smoothing
        self.num_beams, self.length_penalty = num_beams, length_penalty
        self.prefix = "" if prefix == NO_PREFIX else prefix
        (ids,) = self.tokenizer.encode([self.prefix])
        if ids and len(ids) + len(self.tokenizer.wrap([])) >= self.max_tokens:
            raise ValueError(
                f"prefix: its {len(ids)} tokens leave no room for a text in "
                f"finetune.max_tokens, {self.max_tokens}"
            )

    @classmethod
    def check(  # type: ignore[override]
        cls,
        max_tokens: int,
        *,
        max_target_tokens: int,
        num_beams: int,
        label_smoothing: float,
        **others: object,
    ) -> None:
        for name, given in (("max_target_tokens", max_target_tokens), ("num_beams", num_beams)):
            if given < 1:
                raise ValueError(f"{name} must be at least 1, not {given}")
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing must be in [0, 1), not {label_smoothing}")

    def text_of(self, row: Row) -> str:
        return self.prefix + row["text"]

    def target_of(self, row: Row) -> str | None:
        return row.get("target")
