"""Sequence to sequence: a text is written from a text (translation, summarisation)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch.nn.functional as F
from torch import nn

from stages.models._backbone import Backbone
from stages.models._generation import Decoding
from stages.models._heads import Headed
from stages.tasks._task import Example, Task
from stages.text.batch import IGNORE_INDEX, PADDING, Batch, pad
from stages.text.tokenizer import TaskTokenizer

NONE = "none"


class Seq2Seq(Task):
    """The target is predicted token by token, from the text and the target's tokens before.

        encoder-decoder   <bos> text <eos>    <bos> target          -> target <eos>
        decoder           <bos> text <eos> target                   -> target <eos>

    What begins and ends a text is the tokenizer's. There is no head: the vocabulary's logits are
    those of pretraining. ``prefix`` stands before every text (T5's "translate English to German: ",
    Raffel et al. 2020, section 2.4).

    Of a target ``max_target_tokens`` are learnt and written, <eos> one of them; one that is longer
    is cut and has no <eos>, since it does not end there. ``num_beams`` and ``length_penalty`` hold
    for validation as for the test (``stages.models._generation.Decoding``).
    """

    generates: ClassVar[bool] = True

    def __init__(
        self,
        labels: list[str],
        tokenizer: TaskTokenizer,
        max_tokens: int,
        *,
        max_target_tokens: int,
        num_beams: int = 1,
        length_penalty: float = 1.0,
        prefix: str = NONE,
        label_smoothing: float = 0.0,
        metric: Literal["bleu", "chrf", "rouge_l"] = "bleu",
    ) -> None:
        super().__init__(labels, tokenizer, max_tokens)
        self.check(
            max_tokens,
            max_target_tokens=max_target_tokens,
            num_beams=num_beams,
            label_smoothing=label_smoothing,
        )
        self.max_target_tokens, self.label_smoothing = max_target_tokens, label_smoothing
        self.prefix = "" if prefix == NONE else prefix
        self.decoding = Decoding(
            max_new_tokens=max_target_tokens,
            num_beams=num_beams,
            length_penalty=length_penalty,
            start_id=tokenizer.start_id,
            eos_id=tokenizer.eos_id,
        )

    @classmethod
    def check(
        cls,
        max_tokens: int,
        *,
        max_target_tokens: int,
        num_beams: int,
        label_smoothing: float,
        **others: Any,
    ) -> None:
        for name, given in (("max_target_tokens", max_target_tokens), ("num_beams", num_beams)):
            if given < 1:
                raise ValueError(f"{name} must be at least 1, not {given}")
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing must be in [0, 1), not {label_smoothing}")

    def head(self, backbone: Backbone) -> nn.Module:
        return nn.Identity()

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> list[Example]:
        texts = self.tokenizer.encode([self.prefix + row["text"] for row in rows])
        targets = self.tokenizer.encode([row.get("target", "") for row in rows])
        room = max(self.max_tokens - len(self.tokenizer.wrap([])), 0)
        return [
            Example(
                row["id"],
                np.array(self.tokenizer.wrap(text[:room])[: self.max_tokens]),
                np.array(
                    self.tokenizer.target(target)[: self.max_target_tokens]
                    if "target" in row
                    else [IGNORE_INDEX]
                ),
            )
            for row, text, target in zip(rows, texts, targets, strict=True)
        ]

    def targets(self, examples: list[Example]) -> dict[str, Any]:
        start = self.tokenizer.start_id
        before = [np.concatenate([[start], example.labels[:-1]]) for example in examples]
        counted = sum(int((example.labels != IGNORE_INDEX).sum()) for example in examples)
        return {
            "decoder_input_ids": pad(before, self.tokenizer.pad_id),
            "decoder_document_ids": pad([np.ones(len(ids)) for ids in before], PADDING),
            "labels": pad([example.labels for example in examples], IGNORE_INDEX),
            "num_targets": {"seq2seq": counted},
        }

    def loss(self, model: Headed, batch: Batch) -> dict[str, tuple[float, Any]]:
        assert batch.labels is not None
        loss = F.cross_entropy(
            model.backbone.logits(batch).flatten(0, 1).float(),
            batch.labels.flatten(),
            ignore_index=IGNORE_INDEX,
            reduction="sum",
            label_smoothing=self.label_smoothing,
        )
        return {"seq2seq": (1.0, loss)}

    def flops(self, model: Headed, batch: Batch) -> int:
        assert batch.labels is not None
        return model.backbone.flops(batch) + model.backbone.unembed_flops(batch.labels.numel())

    def predict(self, model: Headed, batch: Batch, examples: list[Example]) -> list[str]:
        found = model.backbone.generate(batch, self.decoding)
        return [self.tokenizer.decode(ids) for ids in found]
