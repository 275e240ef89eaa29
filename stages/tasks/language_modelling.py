"""Language modelling: the likelihood of held-out text, in bits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from stages.core.artifacts import Json
from stages.tasks._cells import Row
from stages.tasks._plain_text import plain_text
from stages.tasks._task import Example, Task
from stages.text.ignored import IGNORE_INDEX

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stages.models._backbone import Backbone
    from stages.models._heads import ModelWithHead
    from stages.text.batch import Batch


class LanguageModelling(Task):
    """Rows of ``text``, both input and answer. A prediction is the text's number of bits.

    Predicts each token of a text from the tokens before it; training continues the causal
    objective.

    The prediction of a row is the number of bits of its text. ``bits_per_byte`` and
    ``word_perplexity`` divide it by the text's bytes and words, so they do not depend on the
    tokenizer. The first token of a text is predicted from the token that begins texts or, if the
    tokenizer has none, the token that ends them. The end of the text is not predicted.

    A text of more than ``max_tokens`` tokens is read in windows, each half a window after the one
    before. Each token is predicted once, and from at least half a window of earlier tokens if that
    many precede it. The bits of all windows are added up; padding adds none.

    Raises ValueError for a text with characters that the tokenizer does not know, because the
    unknown token would not encode them and so would take too few bits.
    """

    inputs = ("text",)
    target = "text"
    metrics = ("bits_per_byte", "word_perplexity")
    scores_text = True
    architectures = ("decoder",)

    def __init__(
        self,
        *from_code: Any,
        metric: Literal["bits_per_byte", "word_perplexity"] = "bits_per_byte",
    ) -> None:
        super().__init__(*from_code)
        self.start = list(self.tokenizer.before or self.tokenizer.after[-1:])

    def prepared(self, row: Json) -> Json:
        return {"text": plain_text(row["text"])}

    def answer(self, row: Row) -> str:
        """Returns the numbers of bytes and words that the bits of the text are divided by."""
        return f"{len(row['text'].encode())} {len(row['text'].split())}"

    def states_read(self, backbone: Backbone) -> str:
        return "every token"

    def head(self, backbone: Backbone) -> nn.Module:
        """Returns a head without weights, since a backbone itself has the vocabulary's logits."""
        from torch import nn

        return nn.Identity()

    def encode(self, rows: Sequence[Row]) -> list[Example]:
        examples = []
        for row, ids in zip(rows, self.tokenizer.encode([r["text"] for r in rows]), strict=True):
            if self.tokenizer.unk_id in ids:
                raise ValueError(
                    f"row {row['id']}: the run's tokenizer does not know all of its characters, "
                    "so its bits would not encode them; use one that knows bytes"
                )
            examples += self._windows(row["id"], np.array([*self.start, *ids]))
        return examples

    def _windows(self, id: str, tokens: np.ndarray) -> list[Example]:
        """Cuts a text into windows. Nothing is predicted at the last token of the text."""
        inputs, labels = tokens[:-1], tokens[1:].copy()
        labels[: len(self.start) - 1] = IGNORE_INDEX
        stride = max(self.max_tokens // 2, 1)
        windows: list[Example] = []
        done = 0
        while done < len(inputs):
            end = min(done + stride if windows else self.max_tokens, len(inputs))
            begin = max(end - self.max_tokens, 0)
            counted = labels[begin:end].copy()
            counted[: done - begin] = IGNORE_INDEX
            windows.append(Example(id, inputs[begin:end], counted, window=len(windows)))
            done = end
        return windows

    def targets(self, examples: list[Example]) -> Json:
        from stages.text.batch import label_places, pad

        labels = pad([example.labels for example in examples], IGNORE_INDEX)
        places = label_places(labels)
        return {
            "labels": labels,
            "label_places": places,
            "num_targets": {"language_modelling": places.shape[1]},
        }

    def loss(self, model: ModelWithHead, batch: Batch) -> dict[str, tuple[float, Tensor]]:
        from stages.models._likelihood import log_likelihoods

        return {"language_modelling": (1.0, -log_likelihoods(model.backbone, batch).sum())}

    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Example]) -> list[float]:
        from stages.models._likelihood import log_likelihoods

        nats = log_likelihoods(model.backbone, batch).tolist()
        return [-each / math.log(2) for each in nats]

    def combine(self, row: Row, predictions: list[float]) -> str:
        return f"{sum(predictions):.4f}"
