"""Sequence to sequence: a text is written from a text (translation, summarisation)."""

from __future__ import annotations

from typing import Any, Literal

from stages.core.components import Settings
from stages.tasks._cells import Row
from stages.tasks._text_form import TextForm, Writing

NO_PREFIX = "none"


class _Prefixed(TextForm):
    """Writes the target text. The input begins with the task's ``prefix``, not the task's name."""

    def input(self, row: Row) -> str:
        prefix = self.settings.get("prefix", NO_PREFIX)
        return row["text"] if prefix == NO_PREFIX else prefix + row["text"]


class Seq2Seq(Writing):
    """Rows of ``text`` and ``target``, the text to write.

    Writes the row's target from its text, with ``prefix`` before every text (T5's "translate
    English to German: ", Raffel et al. 2020, section 2.4).

    ``num_beams`` and ``length_penalty`` apply to the predictions for validation and test rows
    (``stages.models._backbone.Backbone.generate``).
    """

    inputs = ("text",)
    target = "target"
    metrics = ("bleu", "chrf", "rouge_l")
    has_text_form = True

    def __init__(
        self,
        *from_code: Any,
        max_target_tokens: int,
        num_beams: int = 1,
        length_penalty: float = 1.0,
        prefix: str = NO_PREFIX,
        metric: Literal["bleu", "chrf", "rouge_l"] = "bleu",
    ) -> None:
        super().__init__(*from_code)
        self.max_target_tokens = max_target_tokens
        self.num_beams, self.length_penalty = num_beams, length_penalty
        self.text_form = self.as_text("", {"task": {"prefix": prefix}, "labels": []})

    def as_text(self, key: str, record: Settings) -> TextForm:
        return _Prefixed(self, key, record)

    @classmethod
    def check(cls, max_tokens: int, **settings: Any) -> None:
        for name in ("max_target_tokens", "num_beams"):
            if settings[name] < 1:
                raise ValueError(f"{name} must be at least 1, not {settings[name]}")
