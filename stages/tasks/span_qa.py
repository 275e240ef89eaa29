"""Extractive question answering: the span of a context that answers a question, if any does."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stages.core.artifacts import Json
from stages.kinds._cells import Row
from stages.kinds.span_qa import AnsweredQuestion
from stages.models._backbone import Backbone
from stages.models._heads import ModelWithHead, SpanHead, StartEndHead
from stages.tasks._task import Example, Task, window_starts
from stages.text.batch import IGNORE_INDEX, Batch, pad

NO_ANSWER = 0  # class of both ends; 1 + t is the class of token t
FEWEST_MARKS = 2  # fewest special tokens around a question and a context: GPT-2's
# Weights of the terms of the loss.
WEIGHTS = {"start_end": {"start": 0.5, "end": 0.5}, "span": {"span": 1.0}}


class SpanQA(Task):
    """Reads ``<bos> question <eos> context <eos>``, or the tokenizer's own special tokens; predicts
    the first and the last token of the answer (BERT; Devlin et al. 2019, sections 4.2 and 4.3).

    A context that is too long is read in windows, and neighbouring windows share ``stride`` tokens.
    A window without the whole answer is trained to have no answer. If there are several right
    answers, the first with at most ``max_answer_tokens`` tokens is trained. ``head: start_end``
    scores the two ends independently, ``head: span`` scores each span by a hidden layer of
    ``d_span`` units.

    In a causal model the state of a span's last token has read the question and the whole span, but
    the state of its first token has not read what follows.

    A span's score is its logit minus the logit of no answer in its window, since a softmax fixes
    the logits of a window only up to a constant. The span with the highest score in all windows is
    the prediction (Alberti et al. 2019). With ``no_answer``, nothing is predicted if this score is
    below a threshold, which each trial chooses on its validation rows (``trials/validation.py``).

    Raises ValueError for lengths that leave no room for the context.
    """

    kind = AnsweredQuestion()
    tried: ClassVar[tuple[str, ...]] = ("head", "dropout")
    tried_by_head: ClassVar[tuple[str, ...]] = ("head", "dropout")

    def __init__(
        self,
        *from_code: Any,
        head: Literal["start_end", "span"] = "start_end",
        no_answer: bool = False,
        stride: int = 32,
        max_question_tokens: int = 64,
        max_answer_tokens: int = 30,
        d_span: int = 64,
        dropout: float = 0.1,
        metric: Literal["squad_f1", "exact_match"] = "squad_f1",
    ) -> None:
        super().__init__(*from_code)
        marks = len(self.tokenizer.wrap([], []))
        _check_room(self.max_tokens, stride, max_question_tokens, marks)
        self.head_name: Literal["start_end", "span"] = head
        self.no_answer, self.stride = no_answer, stride
        self.max_question_tokens, self.max_answer_tokens = max_question_tokens, max_answer_tokens
        self.d_span, self.dropout = d_span, dropout

    @classmethod
    def check(  # type: ignore[override]
        cls,
        max_tokens: int,
        *,
        stride: int,
        max_question_tokens: int,
        max_answer_tokens: int,
        d_span: int,
        **others: object,
    ) -> None:
        for name, least, given in (
            ("stride", 0, stride),
            ("max_question_tokens", 1, max_question_tokens),
            ("max_answer_tokens", 1, max_answer_tokens),
            ("d_span", 1, d_span),
        ):
            if given < least:
                raise ValueError(f"{name} must be at least {least}, not {given}")
        _check_room(max_tokens, stride, max_question_tokens, FEWEST_MARKS)

    def states_read(self, backbone: Backbone) -> str:
        parts = {"start_end": "start and end of a span", "span": "start, end and mean of a span"}
        return parts[self.head_name]

    def head(self, backbone: Backbone) -> StartEndHead | SpanHead:
        # The score of no answer is read at the first token, as in BERT; in a decoder at the last
        # token, the only one that has read the whole input.
        no_answer = "last" if backbone.is_causal else "first"
        settings: Any = {"dropout": self.dropout, "no_answer": no_answer}
        if self.head_name == "start_end":
            return StartEndHead(backbone.d_model, self.max_answer_tokens, **settings)
        return SpanHead(backbone.d_model, self.max_answer_tokens, d_span=self.d_span, **settings)

    def encode(self, rows: Sequence[Row]) -> list[Example]:
        questions = self.tokenizer.encode([row["question"] for row in rows])
        contexts = list(dict.fromkeys(row["context"] for row in rows))  # some have many questions
        encoded = self.tokenizer.encode_with_offsets(contexts)
        encoded_by_context = dict(zip(contexts, encoded, strict=True))
        return [
            window
            for row, question in zip(rows, questions, strict=True)
            for window in self._windows(row, question, *encoded_by_context[row["context"]])
        ]

    def _windows(
        self,
        row: Row,
        question: list[int],
        context: list[int],
        offsets: list[tuple[int, int]],
    ) -> list[Example]:
        num_cut = max(len(question) - self.max_question_tokens, 0)
        question = question[: self.max_question_tokens]
        characters = np.array(offsets, dtype=np.int64).reshape(-1, 2)
        answers = [
            covering(characters, one["answer_start"], one["answer_start"] + len(one["text"]))
            for one in row.get("answers", [])
        ]
        pair_start = len(self.tokenizer.wrap(question, [])) - len(self.tokenizer.after)
        room = self.max_tokens - pair_start - len(self.tokenizer.after)
        windows = []
        for start in window_starts(len(context), room, overlap=self.stride):
            tokens = self.tokenizer.wrap(question, context[start : start + room])
            here = characters[start : start + room]
            inside = np.zeros((len(tokens), 2), dtype=np.int64)
            inside[pair_start : pair_start + len(here)] = here
            labels = np.array([IGNORE_INDEX, IGNORE_INDEX])
            if "answers" in row:
                labels = self._labels(answers, range(start, start + len(here)), pair_start - start)
            windows.append(
                Example(
                    row["id"],
                    np.array(tokens),
                    labels,
                    pair_start=pair_start,
                    offsets=inside,
                    window=len(windows),
                    num_cut=0 if windows else num_cut,
                )
            )
        return windows

    def _labels(self, answers: list[range], window: range, shift: int) -> np.ndarray:
        """Returns the classes of both ends of the first short enough answer that is entirely in the
        window. Without one they are IGNORE_INDEX if a longer answer is in it, else NO_ANSWER."""
        whole = [one for one in answers if one and one[0] in window and one[-1] in window]
        short = [one for one in whole if len(one) <= self.max_answer_tokens]
        if short:
            return 1 + shift + np.array([short[0][0], short[0][-1]])
        return np.full(2, IGNORE_INDEX if whole else NO_ANSWER)

    def targets(self, examples: list[Example]) -> Json:
        labels = torch.from_numpy(np.stack([example.labels for example in examples]))
        counted = int((labels[:, 0] != IGNORE_INDEX).sum())
        return {
            "labels": labels,
            "candidates": pad([_has_characters(example) for example in examples], 0).bool(),
            "num_targets": dict.fromkeys(WEIGHTS[self.head_name], counted),
        }

    def loss(self, model: ModelWithHead, batch: Batch) -> dict[str, tuple[float, Tensor]]:
        assert batch.labels is not None
        logits = self._logits(model, batch)
        classes = model.head.classes(batch.labels, batch.input_ids.shape[1])
        return {
            term: (
                weight,
                F.cross_entropy(
                    logits[term], classes[term], ignore_index=IGNORE_INDEX, reduction="sum"
                ),
            )
            for term, weight in WEIGHTS[self.head_name].items()
        }

    def predict(
        self, model: ModelWithHead, batch: Batch, examples: list[Example]
    ) -> list[tuple[float, int, int]]:
        """Returns for each window the score of its best span, and the characters of the context at
        which the span begins and ends. Among equal spans the first one is best, then the
        shortest."""
        no_answer, spans = model.head.scores(self._logits(model, batch), batch.input_ids.shape[1])
        scores = (spans - no_answer[:, None, None]).cpu().numpy()
        predictions = []
        for score, example in zip(scores, examples, strict=True):
            assert example.offsets is not None
            first, more = np.unravel_index(score.argmax(), score.shape)
            best = float(score[first, more])  # minus infinity where nothing is a candidate
            begin, end = (0, 0)
            if np.isfinite(best):
                begin, end = example.offsets[first, 0], example.offsets[first + more, 1]
            predictions.append((best, int(begin), int(end)))
        return predictions

    def combine(self, row: Row, predictions: list[Any]) -> str:
        """Returns the text of the best span of all windows. Ties go to the first window."""
        _, begin, end = max(predictions, key=lambda prediction: prediction[0])
        return row["context"][begin:end]

    def margin(self, predictions: list[Any]) -> float | None:
        return max(score for score, _, _ in predictions) if self.no_answer else None

    def longest_as_text(self, longest_class: int) -> int:
        return self.max_answer_tokens

    @staticmethod
    def _logits(model: ModelWithHead, batch: Batch) -> Json:
        return model.head(model.backbone(batch), batch.document_ids, batch.candidates)


def covering(offsets: np.ndarray, begin: int, end: int) -> range:
    """Returns the range of the tokens that contain any of the characters ``begin`` to ``end``,
    without ``end``."""
    touched = (offsets[:, 0] < end) & (offsets[:, 1] > begin) & (offsets[:, 0] < offsets[:, 1])
    touching = np.flatnonzero(touched).tolist()
    return range(touching[0], touching[-1] + 1) if touching else range(0)


def _check_room(max_tokens: int, stride: int, max_question_tokens: int, marks: int) -> None:
    if max_tokens <= stride + max_question_tokens + marks:
        raise ValueError(
            f"stride {stride} and max_question_tokens {max_question_tokens} leave no room for the "
            f"context: with {marks} marks they must be less than finetune.max_tokens, {max_tokens}"
        )


def _has_characters(example: Example) -> np.ndarray:
    assert example.offsets is not None
    return example.offsets[:, 0] < example.offsets[:, 1]
