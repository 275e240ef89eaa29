"""Questions about a context; the answers are spans of it."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from stages.core.artifacts import Json
from stages.core.components import Settings
from stages.kinds._cells import short, unprinted
from stages.kinds._kind import Kind, Row
from stages.kinds._plain_text import folded
from stages.kinds._text_form import TextForm


class _AsText(TextForm):
    """Writes the first right answer, or an empty text if there is none."""

    def answer(self, row: Row) -> str | None:
        if "answers" not in row:
            return None
        return row["answers"][0]["text"] if row["answers"] else ""


class AnsweredQuestion(Kind):
    """Rows of ``question``, ``context`` and ``answers``: ``[{"text", "answer_start"}]``, as in
    SQuAD; an empty list if the context has no answer.

    The answers may be two columns of the data: an answer's text, and the number of its first
    character in the context. Both are empty where there is no answer.

    ``unanswerable`` says whether rows without an answer are kept.
    """

    inputs = ("question", "context")
    target = "answers"
    gathered = ("answers",)
    metrics = ("squad_f1", "exact_match")
    right_if = "exact_match"
    form = _AsText

    def __init__(self, *, unanswerable: Literal["keep", "drop"] = "keep") -> None:
        self.unanswerable = unanswerable

    def read(self, column: str, value: Any, row: Row, place: str) -> Any:
        if column == "answers":
            return _answers(value, row["context"], place)
        return super().read(column, value, row, place)

    def checked(self, row: Json, place: str) -> Json | None:
        return None if self.unanswerable == "drop" and not row["answers"] else row

    def check_rows(self, rows: Iterable[tuple[str, Row]], settings: Settings) -> None:
        if settings.get("no_answer", False):
            return
        for id, row in rows:
            if not row["answers"]:
                raise ValueError(
                    f"no_answer: the question of row {id} has no answer; set no_answer: true to "
                    "allow unanswerable questions, or unanswerable: drop in the source to leave "
                    "them out"
                )

    def split_key(self, row: Row) -> str:
        """Returns the context, of which the answers to all questions about it are parts."""
        return folded(row["context"])

    def answer(self, row: Row) -> str:
        """Returns a JSON list of the right answers. A prediction is one text, "" for no answer."""
        return json.dumps([one["text"] for one in row["answers"]], ensure_ascii=False)

    def answer_parts(self, row: Row) -> list[str]:
        return [one["text"] for one in row["answers"][:1]] or [""]

    def right_answers(self, answer: str) -> list[str]:
        return json.loads(answer) or [""]


def _answers(value: Any, context: str, place: str) -> list[Json]:
    """Returns answers as ``[{"text", "answer_start"}]``. Converts the hub's form, ``{"text": [],
    "answer_start": []}``, and two columns of the data, even if a csv file has them as text."""
    value = unprinted(value)
    if isinstance(value, Mapping):
        names = ["text", "answer_start"]
        keys = names if {*names} <= value.keys() else [*value]
        value = _paired(*(value[key] for key in keys)) if len(keys) == 2 else value
    if not _are_answers(value):
        expected = '{"text": a text, "answer_start": its first character in the context}'
        raise ValueError(
            f"{place} must be a list of {expected}, or these two in columns of their own "
            f"(`answers: [answer, answer_start]`), not {short(value)}"
        )
    answers = []
    for answer in value:
        text, start = answer["text"], answer["answer_start"]
        if not text or start < 0 or context[start : start + len(text)] != text:
            raise ValueError(
                f"{place}: {short(text)} is not in the context at character {start}; "
                f"the context has {short(context[max(start, 0) : start + max(len(text), 1)])}"
            )
        answers.append({"text": text, "answer_start": start})
    return answers


def _paired(text: Any, start: Any) -> list[Json]:
    """Returns the answers from their texts and starts: two lists, or one text and one number."""
    texts, starts = unprinted(text), unprinted(start)
    if not (isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts)):
        if all(cell in ("", None, -1, "-1") or cell != cell for cell in (text, start)):
            return []
        number = str(start).removesuffix(".0")  # pandas writes 5.0 if other cells are empty
        texts, starts = [text], [int(number) if number.isdecimal() else start]
    return [{"text": t, "answer_start": s} for t, s in zip(texts, starts, strict=True)]


def _are_answers(value: Any) -> bool:
    return isinstance(value, Iterable) and all(
        isinstance(each, Mapping)
        and isinstance(each.get("text"), str)
        and type(each.get("answer_start")) is int
        for each in value
    )
