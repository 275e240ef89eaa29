"""Texts with a target text each (translation, summarisation)."""

from stages.kinds._kind import Kind, Row
from stages.kinds._text_form import TextForm

NO_PREFIX = "none"


class _AsText(TextForm):
    """Writes the target text. The input begins with the task's ``prefix``, not the task's name."""

    def input(self, row: Row) -> str:
        prefix = self.settings.get("prefix", NO_PREFIX)
        return row["text"] if prefix == NO_PREFIX else prefix + row["text"]

    def answer(self, row: Row) -> str | None:
        return row.get("target")


class TextAndTarget(Kind):
    """Rows of ``text`` and ``target``, the text to write."""

    inputs = ("text",)
    target = "target"
    metrics = ("bleu", "chrf", "rouge_l")
    form = _AsText
