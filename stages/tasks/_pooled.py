"""Tasks that predict from one state of a text or of a pair of texts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from stages.kinds._cells import Row
from stages.models._backbone import Backbone, Pooling
from stages.models._heads import LinearHead, ModelWithHead, PooledHead, at_least_float32, pool
from stages.tasks._task import Example, Task, example_of, window_starts
from stages.text.batch import Batch, pad
from stages.text.tokenizer import TaskTokenizer, Wrapped, longest_first

MOST_WINDOWS = 16  # of a text; in training, all of them are in memory at once
ABSENT = -1  # marks absent windows of texts with fewer windows than others


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The settings of a ``PooledTask``, explained there."""

    pooling: Literal["auto", "mean", "first", "last"] = "auto"
    dropout: float = 0.1
    long_texts: Literal["cut", "head_tail", "windows"] = "cut"


USUAL = Reading()


class PooledTask(Task):
    """Predicts ``num_outputs`` numbers for each text, by a linear head on one state of the text.

    ``pooling: auto`` tries the mean of the text's states and the usual state of the architecture:
    in a decoder the last state, the only one that has read all of the text (GPT), and in a
    bidirectional transformer the first (BERT). In a biLSTM the usual state is the last, where the
    forward half has read all of the text, as in a recurrent classifier (Dai and Le 2015). If both
    are equally good, the mean is kept.

    If a pair is too long, the longer text is cut first. ``long_texts: cut`` reads the beginning of
    a text that is too long. ``head_tail`` reads the same number of tokens, half from the beginning
    and half from the end (Sun et al. 2019, section 5.3.1, who read 128 and 382 tokens of 512).

    ``long_texts: windows`` reads all of a text in windows, each of which shares half of its tokens
    with the next one. The logits of a text are the mean of the logits of its windows, in training
    as in prediction, so a text has one label and one loss. Of a pair, the longer text is read in
    windows, each with as much of the shorter text as ``cut`` reads. If a text has more than
    ``MOST_WINDOWS`` windows, only ``MOST_WINDOWS`` evenly spaced ones are read.
    """

    num_outputs = 1
    tried: ClassVar[tuple[str, ...]] = ("pooling", "dropout")
    tried_by_head: ClassVar[tuple[str, ...]] = ("pooling", "dropout")

    def __init__(
        self,
        labels: list[str],
        tokenizer: TaskTokenizer,
        max_tokens: int,
        reading: Reading = USUAL,
    ) -> None:
        super().__init__(labels, tokenizer, max_tokens)
        self.pooling: Pooling = "mean" if reading.pooling == "auto" else reading.pooling
        self.dropout = reading.dropout
        self.long_texts = reading.long_texts

    @classmethod
    def check_read(  # type: ignore[override]
        cls, *, is_causal: bool, pooling: str, **others: object
    ) -> None:
        if is_causal and pooling == "first":
            raise ValueError(
                "pooling: the first state of a causal model has read one token of the text; use "
                "auto, last or mean"
            )

    @classmethod
    def values(cls, setting: str, value: Any, backbone: Backbone) -> Sequence[Any]:
        if (setting, value) != ("pooling", "auto"):
            return [value]
        has_first = backbone.is_transformer and not backbone.is_causal
        return ["mean", "first" if has_first else "last"]

    def states_read(self, backbone: Backbone) -> str:
        return "mean of tokens" if self.pooling == "mean" else f"{self.pooling} token"

    def head(self, backbone: Backbone) -> PooledHead:
        self.check_read(is_causal=self.is_causal, pooling=self.pooling)
        of = _WindowsHead if self.long_texts == "windows" else PooledHead
        return of(backbone.d_model, self.num_outputs, dropout=self.dropout, pooling=self.pooling)

    def wrap(self, text: Sequence[int], pair: Sequence[int] | None = None) -> Wrapped:
        wrapped = super().wrap(text, pair)
        if self.long_texts != "head_tail" or not wrapped.num_cut:
            return wrapped
        texts = [text] if pair is None else [text, pair]
        shares = _shares(texts, wrapped)
        ends = [head_and_tail(each, share) for each, share in zip(texts, shares, strict=True)]
        return wrapped._replace(ids=self.tokenizer.wrap(*ends))

    def target_of(self, row: Row) -> np.ndarray:
        """Returns the label of a row, as an array [1], or IGNORE_INDEX or NaN if it is unknown."""
        raise AssertionError("a task whose rows are no texts or pairs encodes them itself")

    def encode(self, rows: Sequence[Row]) -> list[Example]:
        texts = self.tokenizer.encode([row["text"] for row in rows])
        pairs = self.tokenizer.encode([row.get("text_pair", "") for row in rows])
        return [
            self._encoded(row, text, pair if "text_pair" in row else None)
            for row, text, pair in zip(rows, texts, pairs, strict=True)
        ]

    def _encoded(self, row: Row, text: Sequence[int], pair: Sequence[int] | None) -> Example:
        wrapped, label = self.wrap(text, pair), self.target_of(row)
        if self.long_texts != "windows" or not wrapped.num_cut:
            return example_of(row["id"], wrapped, label)
        texts = [text] if pair is None else [text, pair]
        shares = _shares(texts, wrapped)
        longest = max(range(len(texts)), key=lambda i: (len(texts[i]), i))
        room, length = shares[longest], len(texts[longest])
        # The stride is half a window, rounded down: every second window alone would leave no gap.
        starts = _few(window_starts(length, room, overlap=room - max(room // 2, 1)))
        parts = [each[:share] for each, share in zip(texts, shares, strict=True)]
        is_read, windows = np.zeros(length, dtype=bool), list[Example]()
        for number, start in enumerate(starts):
            is_read[start : start + room] = True
            parts[longest] = texts[longest][start : start + room]
            windows.append(example_of(row["id"], self.wrap(*parts), label, window=number))
        # ``wrapped`` has ``room`` tokens of the longest text; the windows together may have more.
        num_cut = wrapped.num_cut - (int(is_read.sum()) - room)
        tokens = np.concatenate([window.tokens for window in windows])
        num_repeated = len(tokens) - (len(wrapped.ids) + wrapped.num_cut - num_cut)
        return Example(
            row["id"],
            tokens,
            label,
            num_cut=num_cut,
            num_repeated=num_repeated,
            windows=tuple(windows),
        )

    def collate(self, examples: list[Example], *, rngs: list[np.random.Generator]) -> Batch:
        """Returns one padded row per window, with the windows of a text next to each other."""
        # A copy of an example may have a new id and weights, which its windows take over here.
        rows = [
            replace(window, id=example.id, weights=example.weights)
            for example in examples
            for window in example.windows or (example,)
        ]
        batch = super().collate(rows, rngs=rngs)
        if len(rows) == len(examples):
            return batch
        ends = np.cumsum([example.num_windows for example in examples])
        starts = [0, *ends[:-1]]
        windows = [np.arange(*bounds) for bounds in zip(starts, ends, strict=True)]
        fields = vars(batch) | self.targets(examples)
        return WindowBatch(**fields, windows=pad(windows, ABSENT, length=max(map(len, windows))))

    def logits(self, model: ModelWithHead, batch: Batch) -> Float[Tensor, "R C"]:
        """Returns the outputs of the head for each text."""
        return _headed(model, model.backbone(batch), batch)

    def outputs(self, model: ModelWithHead, batch: Batch) -> Float[Tensor, " R"]:
        """Returns a number for each text, from a head with one output: in float64 if the states are
        in float64, else in float32, since bfloat16 would make different numbers equal."""
        states = at_least_float32(model.backbone(batch))
        with torch.autocast(states.device.type, enabled=False):
            return _headed(model, states, batch).squeeze(-1)


@dataclass(frozen=True, kw_only=True)
class WindowBatch(Batch):
    """A batch whose rows are windows of texts; its targets are those of the texts."""

    values: Float[Tensor, " R"] | None = None
    windows: Int[Tensor, "R W"]  # batch rows of a text's windows; -1: none


class _WindowsHead(PooledHead):
    """A linear head on the mean of the pooled states of a text's windows. As the head is linear,
    its outputs are the mean of the outputs of windows, and a probe reads one state per text."""

    def forward(  # type: ignore[override]
        self,
        states: Float[Tensor, "B T D"],
        document_ids: Int[Tensor, "B T"],
        windows: Int[Tensor, "R W"] | None = None,
    ) -> Float[Tensor, "R C"]:
        pooled = pool(states, document_ids, self.pooling)
        if windows is not None:
            is_there = (windows != ABSENT).unsqueeze(-1)
            of_texts = at_least_float32(pooled)[windows.clamp(min=0)] * is_there
            pooled = of_texts.sum(dim=1) / is_there.sum(dim=1)
        return LinearHead.forward(self, pooled)


def _headed(
    model: ModelWithHead, states: Float[Tensor, "B T D"], batch: Batch
) -> Float[Tensor, "R C"]:
    if isinstance(batch, WindowBatch):
        return model.head(states, batch.document_ids, batch.windows)
    return model.head(states, batch.document_ids)


def _shares(texts: Sequence[Sequence[int]], wrapped: Wrapped) -> list[int]:
    """Returns the number of tokens of each text in ``wrapped``."""
    lengths = [len(each) for each in texts]
    return longest_first(lengths, sum(lengths) - wrapped.num_cut)


def _few(starts: Sequence[int]) -> Sequence[int]:
    """Returns MOST_WINDOWS evenly spaced starts, including the first and the last, or all starts if
    there are fewer."""
    if len(starts) <= MOST_WINDOWS:
        return starts
    return [starts[i * (len(starts) - 1) // (MOST_WINDOWS - 1)] for i in range(MOST_WINDOWS)]


def head_and_tail(ids: Sequence[int], length: int) -> list[int]:
    """Returns ``length`` ids of a text that has at least as many: half from its beginning and half
    from its end. If ``length`` is odd, the beginning has one more."""
    tail = length // 2
    return [*ids[: length - tail], *ids[len(ids) - tail :]]
