"""Any task of reading as one of writing: no head, the answer is text (T5; Raffel et al. 2020)."""

from collections.abc import Mapping
from typing import Any

from stages.kinds._kind import plain_text
from stages.kinds._text_form import TextForm
from stages.tasks._task import Task
from stages.tasks._writing import Writing


class TextToText(Writing):
    """A task's rows as ``stages.kinds._text_form`` has them, its answers written greedily.

    ``max_target_tokens`` is what the longest answer takes: of classes the longest, of a text's tags
    one for each token, of a question ``max_answer_tokens``. Texts are cut to ``max_tokens``, a
    context with its question to what is left for it: there are no windows.

    Raises ValueError for a class that the tokenizer cannot write.
    """

    def __init__(self, key: str, record: Mapping[str, Any], task: Task) -> None:
        self._task, self._form = task, TextForm(key, record)
        encoded = task.tokenizer.encode([*self._form.words.values()])
        for words, ids in zip(self._form.words.values(), encoded, strict=True):
            if (written := task.tokenizer.decode(ids)) != plain_text(words):
                raise ValueError(
                    f"the tokenizer cannot write {words!r}, which it makes {written!r}"
                )
        longest = max(map(len, encoded), default=0)
        most = {
            "classification": longest,
            "tagging": task.max_tokens * longest,
            "span_qa": getattr(task, "max_answer_tokens", 0),
        }
        end = len(task.tokenizer.target([]))
        self.shortest_answer = max(longest, 1) + end  # one label, or a word
        super().__init__(
            task.labels,
            task.tokenizer,
            task.max_tokens,
            max_target_tokens=most[record["task"]["name"]] + end,
        )

    def text_of(self, row: Mapping[str, Any]) -> str:
        return self._form.input(row)

    def target_of(self, row: Mapping[str, Any]) -> str | None:
        return self._form.answer(row)

    def combine(self, row: Mapping[str, Any], predictions: list[Any]) -> str:
        (text,) = predictions
        return self._form.prediction(row, text)

    def columns(self, row: Mapping[str, Any], prediction: str) -> dict[str, Any]:
        return self._task.columns(row, prediction)
