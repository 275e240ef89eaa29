"""Texts with several choices each, of which one is right (COPA, SWAG, HellaSwag)."""

from typing import Literal

from stages.core.artifacts import Json
from stages.kinds._kind import Kind, Row
from stages.kinds._plain_text import folded
from stages.kinds._text_form import NO_LABEL, TextForm


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


class TextWithChoices(Kind):
    """Rows of ``text``, maybe a ``question`` about it, ``choices``, and ``label``, the number of
    the right choice. The choices may be several columns, and rows may differ in their number.

    ``first_choice`` is the number or letter of the first choice in the data.
    """

    inputs = ("text", "choices")
    optional = ("question",)
    target = "label"
    lists = gathered = ("choices",)
    metrics = ("accuracy",)
    right_if = "accuracy"
    form = _AsText

    def __init__(self, *, first_choice: Literal[0, 1, "A"] = 0) -> None:
        self.first_choice: Literal[0, 1, "A"] = first_choice

    def checked(self, row: Json, place: str) -> Json:
        """Replaces ``label`` by the number of the right choice, counted from 0."""
        number, choices = self._number(row["label"].strip()), row["choices"]
        if len(choices) < 2:
            raise ValueError(f"{place}: there must be at least 2 choices")
        if number not in range(len(choices)):
            raise ValueError(
                f"{place}: label {row['label']!r} is none of its {len(choices)} choices, the first "
                f"of which is {self.first_choice} (first_choice)"
            )
        return row | {"label": str(number)}

    def _number(self, label: str) -> int:
        """Returns a label's number from 0; for an invalid label, a number that no choice has."""
        if self.first_choice == "A":
            return ord(label.upper()) - ord("A") if len(label) == 1 else -1
        return int(label) - self.first_choice if label.isascii() and label.isdigit() else -1

    def split_key(self, row: Row) -> str:
        """Returns the text, since rows about one text may share their right choices."""
        return folded(row["text"])

    def shown(self, row: Row, prediction: str) -> str:
        """Returns the text of the predicted choice."""
        is_choice = prediction.isdigit() and int(prediction) < len(row["choices"])
        return row["choices"][int(prediction)] if is_choice else prediction

    def predicted_columns(self, row: Row, prediction: str) -> Json:
        return {"label": prediction, "choice": self.shown(row, prediction)}
