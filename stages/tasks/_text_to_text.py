"""Any task as text to text: no head, and the answer is written (T5; Raffel et al. 2020)."""

from __future__ import annotations

from typing import Any

from stages.core.components import Settings
from stages.tasks._cells import Row
from stages.tasks._plain_text import plain_text
from stages.tasks._task import Task
from stages.tasks._writing import Writing


class TextToText(Writing):
    """A task's rows in their text form (``Task.as_text``), with answers decoded greedily.

    ``max_target_tokens`` is ``Task.longest_as_text`` plus the end token. Inputs are cut to
    ``max_tokens``: the longest of their texts is cut first, and the names of texts are never cut.
    There are no windows.

    Raises ValueError for a class that the tokenizer cannot write.
    """

    def __init__(self, key: str, record: Settings, task: Task) -> None:
        self._form = task.as_text(key, record)
        encoded = task.tokenizer.encode([*self._form.words.values()])
        for words, ids in zip(self._form.words.values(), encoded, strict=True):
            if (written := task.tokenizer.decode(ids)) != plain_text(words):
                raise ValueError(
                    f"the tokenizer cannot write {words!r}: it decodes it as {written!r}"
                )
        longest = max(map(len, encoded), default=0)
        end = len(task.tokenizer.target([]))
        self.shortest_answer = max(longest, 1) + end  # for any class, or a token of free text
        super().__init__(task.labels, task.tokenizer, task.max_tokens)
        self.kind = task
        self.max_target_tokens = task.longest_as_text(longest) + end

    def text_of(self, row: Row) -> str:
        return self._form.input(row)

    def shortened(self, row: Row, text: list[int], room: int) -> list[int]:
        from stages.text.tokenizer import longest_first

        parts = self._form.parts(row)
        encoded = self.tokenizer.encode_running([piece for part in parts for piece in part])
        names, texts = encoded[::2], encoded[1::2]
        try:
            lengths = longest_first([*map(len, texts)], room - sum(map(len, names)))
        except ValueError as error:
            raise ValueError(
                f"finetune.max_tokens: {self.max_tokens} {error} next to their names in {row['id']}"
            ) from None
        pairs = zip(names, zip(texts, lengths, strict=True), strict=True)
        return [i for name, (ids, length) in pairs for i in (*name, *ids[:length])]

    def target_of(self, row: Row) -> str | None:
        return self._form.answer(row)

    def combine(self, row: Row, predictions: list[Any]) -> str:
        (text,) = predictions
        return self._form.prediction(row, text)
