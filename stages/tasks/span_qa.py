"""Extractive question answering: the span of a context that answers a question, if any does."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from stages.core.artifacts import Json
from stages.core.components import Settings
from stages.tasks._cells import Row, short, structured, unprinted
from stages.tasks._task import (
    Backbone,
    Batch,
    CellSetting,
    Example,
    Losses,
    ModelWithHead,
    Predicted,
    Task,
    Tensor,
    cross_entropy,
    nn,
)
from stages.tasks._text_form import TextForm
from stages.text.ignored import IGNORE_INDEX

NO_ANSWER = 0  # class of both ends; 1 + t is the class of token t
MOST_MARKS = 4  # most special tokens around a question and a context: RoBERTa's


class SpanQA(Task):
    """Rows of ``question``, ``context`` and ``answers``: ``[{"text", "answer_start"}]``, as in
    SQuAD; an empty list if the context has no answer.

    The answers may be two columns of the data: an answer's text, and the number of its first
    character in the context. Both are empty where there is no answer.

    ``unanswerable`` says whether rows without an answer are kept.

    Reads ``<bos> question <eos> context <eos>``, or the tokenizer's own special tokens; predicts
    the first and the last token of the answer (BERT; Devlin et al. 2019, sections 4.2 and 4.3).

    A context that is too long is read in windows, and neighbouring windows share ``stride`` tokens.
    A window without the whole answer is trained to have no answer. If there are several right
    answers, the first with at most ``max_answer_tokens`` tokens is trained.

    A span's score is its logit minus the logit of no answer in its window. The span with the
    highest score in all windows is the prediction (Alberti et al. 2019). With ``no_answer``,
    nothing is predicted if this score is below a threshold, which each trial chooses on its
    validation rows (``trials/validation.py``).
    """

    inputs = ("question", "context")
    target = "answers"
    shared = "context"  # the answers to all questions about it are parts of it
    gathered = ("answers",)
    metrics = ("squad_f1", "exact_match")
    right_if = "exact_match"
    has_text_form = True
    cell_settings = {"unanswerable": CellSetting(Literal["keep", "drop"], "keep")}
    read_at = "start and end of a span"

    def __init__(
        self,
        *from_code: Any,
        no_answer: bool = False,
        stride: int = 32,
        max_question_tokens: int = 64,
        max_answer_tokens: int = 30,
        dropout: float = 0.1,
        metric: Literal["squad_f1", "exact_match"] = "squad_f1",
    ) -> None:
        super().__init__(*from_code)
        self.no_answer, self.stride = no_answer, stride
        self.max_question_tokens, self.max_answer_tokens = max_question_tokens, max_answer_tokens
        self.dropout = dropout

    @classmethod
    def check(cls, max_tokens: int, **settings: Any) -> None:
        stride, question = settings["stride"], settings["max_question_tokens"]
        if max_tokens <= stride + question + MOST_MARKS:
            raise ValueError(
                f"stride {stride} and max_question_tokens {question} leave no room for the "
                f"context: with {MOST_MARKS} marks they must be less than finetune.max_tokens, "
                f"{max_tokens}"
            )

    def read(self, column: str, value: Any, row: Row, place: str) -> Any:
        if column != "answers":
            return super().read(column, value, row, place)
        answers = _listed(value)
        if answers is None:
            expected = '{"text": a text, "answer_start": its first character in the context}'
            raise ValueError(
                f"{place} must be a list of {expected}, or these two in columns of their own "
                f"(`answers: [answer, answer_start]`), not {short(unprinted(value))}; with pandas, "
                "data['answer_start'] = [c.find(a) for c, a in zip(data.context, data.answer)]"
            )
        for text, start in map(dict.values, answers):
            context, end = row["context"], start + len(text)
            if not text or start < 0 or context[start:end] != text:
                raise ValueError(
                    f"{place}: {short(text)} is not in the context at character {start}; the "
                    f"context has {short(context[max(start, 0) : start + max(len(text), 1)])}"
                )
        return answers

    def checked(self, row: Json, place: str) -> Json | None:
        return None if self.cells.unanswerable == "drop" and not row["answers"] else row

    def check_rows(self, rows: Iterable[tuple[str, Row]], settings: Settings) -> None:
        empty = (id for id, row in rows if not row["answers"])
        if not settings.get("no_answer") and (id := next(empty, None)) is not None:
            raise ValueError(
                f"no_answer: the question of row {id} has no answer; set no_answer: true to allow "
                "unanswerable questions, or unanswerable: drop in the source to leave them out"
            )

    def answer(self, row: Row) -> str:
        """Returns a JSON list of the right answers. A prediction is one text, "" for no answer."""
        return json.dumps([one["text"] for one in row["answers"]], ensure_ascii=False)

    def answer_parts(self, row: Row) -> list[str]:
        return [one["text"] for one in row["answers"][:1]] or [""]

    def written(self, row: Row, form: TextForm) -> str:
        return self.answer_parts(row)[0]

    def right_answers(self, answer: str) -> list[str]:
        return json.loads(answer) or [""]

    def longest_as_text(self, longest_class: int, row: Row | None = None) -> int:
        return self.max_answer_tokens

    def head(self, backbone: Backbone) -> nn.Module:
        from stages.models._heads import StartEndHead

        # The score of no answer is read at the first token, as in BERT; in a decoder at the last
        # token, the only one that has read the whole input.
        no_answer = "last" if backbone.is_causal else "first"
        return StartEndHead(backbone.d_model, dropout=self.dropout, no_answer=no_answer)

    def encode(self, rows: Sequence[Row]) -> list[Example]:
        questions = self.tokenizer.encode([row["question"] for row in rows])
        contexts = list(dict.fromkeys(row["context"] for row in rows))  # some have many questions
        encoded = dict(zip(contexts, self.tokenizer.encode_with_offsets(contexts), strict=True))
        examples, after = list[Example](), len(self.tokenizer.after)
        for row, question in zip(rows, questions, strict=True):
            cut, (context, offsets) = question[: self.max_question_tokens], encoded[row["context"]]
            characters = np.array(offsets, dtype=np.int64).reshape(-1, 2)
            answers = [_ends_of(one, characters) for one in row.get("answers", [])]
            pair_start = len(self.tokenizer.wrap(cut, [])) - after
            room = self.max_tokens - pair_start - after
            starts = range(0, max(len(context) - self.stride, 1), room - self.stride)
            for window, start in enumerate(starts):
                tokens = np.array(self.tokenizer.wrap(cut, context[start : start + room]))
                here = characters[start : start + room]
                inside = np.zeros((len(tokens), 2), dtype=np.int64)
                inside[pair_start : pair_start + len(here)] = here
                # The first short enough answer that is entirely in the window. Without one the
                # labels are IGNORE_INDEX if a longer answer is in it, else NO_ANSWER.
                whole = [a for a in answers if a and start <= a[0] and a[1] < start + len(here)]
                labels = np.full(2, IGNORE_INDEX if whole or "answers" not in row else NO_ANSWER)
                if fitting := [a for a in whole if a[1] - a[0] < self.max_answer_tokens]:
                    labels = np.array(fitting[0]) + 1 + pair_start - start
                num_cut = 0 if window else len(question) - len(cut)
                places: Json = {"pair_start": pair_start, "offsets": inside, "window": window}
                examples.append(Example(row["id"], tokens, labels, num_cut=num_cut, **places))
        return examples

    def targets(self, examples: list[Example]) -> Json:
        import torch

        from stages.text.batch import pad

        labels = torch.from_numpy(np.stack([example.labels for example in examples]))
        counted = int((labels[:, 0] != IGNORE_INDEX).sum())
        offsets = [example.offsets for example in examples if example.offsets is not None]
        return {
            "labels": labels,
            "extra": pad([each[:, 0] < each[:, 1] for each in offsets], 0).bool(),
            "num_targets": {"start": counted, "end": counted},
        }

    @staticmethod
    def _logits(model: ModelWithHead, batch: Batch) -> tuple[Tensor, Tensor]:
        return model.head(model.backbone(batch), batch.document_ids, batch.extra)

    def loss(self, model: ModelWithHead, batch: Batch) -> Losses:
        assert batch.labels is not None
        ends = zip(("start", "end"), self._logits(model, batch), batch.labels.T, strict=True)
        return {name: (0.5, cross_entropy(logits, labels)) for name, logits, labels in ends}

    def predict(
        self, model: ModelWithHead, batch: Batch, examples: list[Example]
    ) -> list[tuple[float, int, int]]:
        """Returns for each window the score of its best span, and the characters of the context at
        which the span begins and ends. Among equal spans the first is best, then the shortest."""
        scores = span_scores(*self._logits(model, batch), self.max_answer_tokens).cpu().numpy()
        predictions = []
        for score, example in zip(scores, examples, strict=True):
            assert example.offsets is not None
            first, more = np.unravel_index(score.argmax(), score.shape)
            best = float(score[first, more])  # minus infinity where nothing is a candidate
            begin, end = example.offsets[first, 0], example.offsets[first + more, 1]
            predictions.append((best, int(begin), int(end)) if np.isfinite(best) else (best, 0, 0))
        return predictions

    def combine(self, row: Row, predictions: list[Any]) -> Predicted:
        """Returns the text of the best span of all windows. Ties go to the first window."""
        best, begin, end = max(predictions, key=lambda prediction: prediction[0])
        return Predicted(row["context"][begin:end], margin=best if self.no_answer else None)


def _listed(value: Any) -> list[Json] | None:
    """Returns answers as ``[{"text", "answer_start"}]``, or None for cells in another form. The hub
    has ``{"text": [], "answer_start": []}``, and a csv file may have two columns: two lists, or one
    text and one number."""
    value = unprinted(value)
    keys = [*value] if isinstance(value, Mapping) else []
    keys = ["text", "answer_start"] if {"text", "answer_start"} <= {*keys} else keys
    if len(keys) == 2:
        cells = [value[key] for key in keys]
        texts, starts = map(structured, cells)
        if not (isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts)):
            if all(cell in ("", None, -1, "-1") or cell != cell for cell in cells):
                return []
            number = str(cells[1]).removesuffix(".0")  # pandas writes 5.0 if other cells are empty
            texts, starts = cells[:1], [int(number) if number.isdecimal() else cells[1]]
        value = [{"text": t, "answer_start": s} for t, s in zip(texts, starts, strict=True)]
    try:
        answers = [{"text": one["text"], "answer_start": one["answer_start"]} for one in value]
    except (TypeError, KeyError):
        return None
    is_typed = all([*map(type, one.values())] == [str, int] for one in answers)
    return answers if is_typed else None


def span_scores(
    first: Float[Tensor, "B C"], last: Float[Tensor, "B C"], longest: int
) -> Float[Tensor, "B C-1 L"]:
    """Returns the scores of all spans: the sum of the logits of their two ends, less the score of
    no answer. Entry [t, l] is the span of 1 + l <= ``longest`` tokens that begins with token t; it
    is minus infinity if it ends beyond the row."""
    import torch
    import torch.nn.functional as F

    longest = min(longest, first.shape[1] - 1)
    ends = F.pad(last[:, 1:], (0, longest - 1), value=-torch.inf).unfold(1, longest, 1)
    return first[:, 1:, None] + ends - (first[:, 0] + last[:, 0])[:, None, None]


def _ends_of(answer: Json, characters: np.ndarray) -> tuple[int, int] | None:
    """Returns the first and the last token with a character of the answer, or None."""
    (begins, ends), start = characters.T, answer["answer_start"]
    touched = (begins < start + len(answer["text"])) & (ends > start) & (begins < ends)
    touching = np.flatnonzero(touched).tolist()
    return (touching[0], touching[-1]) if touching else None
