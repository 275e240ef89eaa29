"""Texts, or pairs of texts, with one label each."""

from collections.abc import Sequence
from typing import Any

from stages.core.artifacts import Json
from stages.core.components import Settings, unknown
from stages.kinds._cells import structure_of
from stages.kinds._kind import Kind, Row
from stages.kinds._labels import ASK, LabelCase, NoLabel, read_label
from stages.kinds._metric import F1_OF
from stages.kinds._plain_text import folded, plain_text
from stages.kinds._text_form import NO_LABEL, TextForm, label_words

POSITIVE_F1 = "positive_f1"
BY_VALIDATION = "validation"  # chooses the threshold of two classes by the metric on validation


class _AsText(TextForm):
    """Writes the label's words; any other text is read as ``NO_LABEL``."""

    def words_of(self, labels: Sequence[str]) -> dict[str, str]:
        return label_words(labels, self.settings.get("verbalisers", ()))

    def answer(self, row: Row) -> str | None:
        return self.words[row["label"]] if "label" in row else None

    def prediction(self, row: Row, text: str) -> str:
        label_of = {plain_text(words): label for label, words in self.words.items()}
        return label_of.get(plain_text(text), NO_LABEL)


class LabelledText(Kind):
    """Rows of ``text``, maybe ``text_pair``, and ``label``, which may be in a list of one.

    Rows whose label is in ``no_label`` are left out. ``label_case`` says whether labels that differ
    in case alone are one class.
    """

    inputs = ("text",)
    optional = ("text_pair",)
    target = "label"
    metrics = ("macro_f1", "accuracy", "matthews")
    has_classes = stratified = True
    form = _AsText

    def __init__(self, *, no_label: NoLabel = ASK, label_case: LabelCase = ASK) -> None:
        self.no_label: NoLabel = no_label
        self.label_case: LabelCase = label_case

    def read(self, column: str, value: Any, row: Row, place: str) -> Any:
        if column != "label":
            return super().read(column, value, row, place)
        items = structure_of(value) if isinstance(value, str) else value
        if isinstance(items, list):
            if len(items) > 1:
                raise ValueError(f"{place} has {len(items)} labels; multi_label takes several")
            value = items[0] if items else None
        return read_label(value, place, self.no_label, self.label_case)

    def checked(self, row: Json, place: str) -> Json | None:
        return None if row["label"] is None else row

    def compared_by(self, settings: Settings) -> tuple[str, str]:
        """Replaces ``positive_f1`` by the F1 of the label that ``positive`` names."""
        chosen, other = super().compared_by(settings)
        return (F1_OF + settings["positive"], other) if chosen == POSITIVE_F1 else (chosen, other)

    def check_labels(self, labels: list[str], settings: Settings) -> None:
        positive = settings.get("positive", NO_LABEL)
        if settings.get("metric") == POSITIVE_F1 and positive not in labels:
            raise ValueError(f"positive: {unknown(positive, labels)}")
        if settings.get("threshold") == BY_VALIDATION and len(labels) != 2:
            raise ValueError(f"threshold: {BY_VALIDATION} is for two labels, not {len(labels)}")
        if verbalisers := settings.get("verbalisers"):
            label_words(labels, verbalisers)

    def group_key(self, row: Row) -> str:
        """Returns one key for all pairs with the same first text (hypotheses about one premise)."""
        return folded(row["text"]) if "text_pair" in row else self.split_key(row)

    def labels_of(self, row: Row) -> list[str]:
        return [row["label"]]

    def predicted_columns(self, row: Row, prediction: str) -> Json:
        return {"label": prediction}
