"""Tasks that write a text, token by token, after reading one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from stages.core.artifacts import Json
from stages.tasks._cells import Row
from stages.tasks._task import Example, Task
from stages.text.ignored import IGNORE_INDEX

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stages.models._backbone import Backbone
    from stages.models._heads import ModelWithHead
    from stages.text.batch import Batch


class Writing(Task):
    """Predicts the target token by token, from the text and the target's earlier tokens.

        encoder-decoder   <bos> text <eos>    <bos> target          -> target <eos>
        decoder           <bos> text <eos> target                   -> target <eos>

    The tokenizer defines the tokens that begin and end a text. There is no head: the logits of the
    vocabulary are those of pretraining.

    Up to ``max_target_tokens`` of a target are learnt and written, <eos> included. A longer target
    is cut and has no <eos>, since it does not end there. A text that is too long is cut at its end.
    """

    generates: ClassVar[bool] = True
    num_beams: int = 1
    length_penalty: float = 1.0
    label_smoothing: float = 0.0

    @abstractmethod
    def text_of(self, row: Row) -> str:
        """Returns the text to read."""

    @abstractmethod
    def target_of(self, row: Row) -> str | None:
        """Returns the text to write, or None if it is unknown."""

    def shortened(self, row: Row, text: list[int], room: int) -> list[int]:
        """Returns ``room`` tokens of a text that has more."""
        return text[:room]

    def states_read(self, backbone: Backbone) -> str:
        return "written as text"

    def head(self, backbone: Backbone) -> nn.Module:
        from torch import nn

        return nn.Identity()

    def encode(self, rows: Sequence[Row]) -> list[Example]:
        texts = self.tokenizer.encode([self.text_of(row) for row in rows])
        row_targets = [self.target_of(row) for row in rows]
        targets = self.tokenizer.encode([target or "" for target in row_targets])
        return [
            self._example(row, text, None if known_target is None else target)
            for row, text, target, known_target in zip(
                rows, texts, targets, row_targets, strict=True
            )
        ]

    def _example(self, row: Row, text: list[int], target: list[int] | None) -> Example:
        whole, wrapped = self.tokenizer.wrap(text), self.wrap(text)
        if wrapped.num_cut:
            room = len(text) - wrapped.num_cut
            wrapped = self.wrap(self.shortened(row, text, room))
        answer = [IGNORE_INDEX] if target is None else self.tokenizer.target(target)
        learnt = answer[: self.max_target_tokens]
        return Example(
            row["id"],
            np.array(wrapped.ids),
            np.array(learnt),
            num_cut=len(whole) - len(wrapped.ids) + len(answer) - len(learnt),
        )

    def targets(self, examples: list[Example]) -> Json:
        from stages.text.batch import PADDING, pad

        start = self.tokenizer.start_id
        before = [np.concatenate([[start], example.labels[:-1]]) for example in examples]
        counted = sum(int((example.labels != IGNORE_INDEX).sum()) for example in examples)
        return {
            "decoder_input_ids": pad(before, self.tokenizer.pad_id),
            "decoder_document_ids": pad([np.ones(len(ids)) for ids in before], PADDING),
            "labels": pad([example.labels for example in examples], IGNORE_INDEX),
            "num_targets": {"target": counted},
        }

    def loss(self, model: ModelWithHead, batch: Batch) -> dict[str, tuple[float, Tensor]]:
        import torch.nn.functional as F

        assert batch.labels is not None
        loss = F.cross_entropy(
            model.backbone.logits(batch).flatten(0, 1).float(),
            batch.labels.flatten(),
            ignore_index=IGNORE_INDEX,
            reduction="sum",
            label_smoothing=self.label_smoothing,
        )
        return {"target": (1.0, loss)}

    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Example]) -> list[str]:
        from stages.models._generation import Decoding

        decoding = Decoding(
            max_new_tokens=self.max_target_tokens,
            num_beams=self.num_beams,
            length_penalty=self.length_penalty,
            start_id=self.tokenizer.start_id,
            eos_id=self.tokenizer.eos_id,
        )
        return [self.tokenizer.decode(ids) for ids in model.backbone.generate(batch, decoding)]
