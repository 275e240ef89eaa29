"""Language modelling: the likelihood of held-out text, in bits."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from stages.core.artifacts import Json
from stages.tasks._cells import Row, plain_text
from stages.tasks._task import Batch, Example, Losses, ModelWithHead, Task
from stages.text.ignored import IGNORE_INDEX


class LanguageModelling(Task):
    """Rows of ``text``, both input and answer. A prediction is the text's number of bits.

    Predicts each token of a text from the tokens before it; training continues the causal
    objective. ``bits_per_byte`` and ``word_perplexity`` divide the bits by the text's bytes and
    words, so they do not depend on the tokenizer. The first token of a text is predicted from the
    token that begins texts or, if the tokenizer has none, the token that ends them.

    A text of more than ``max_tokens`` tokens is read in windows, each half a window after the one
    before; each token is predicted once. Raises ValueError for a text with characters that the
    tokenizer does not know, whose bits would be too few.
    """

    inputs = ("text",)
    target = "text"
    metrics = ("bits_per_byte", "word_perplexity")
    is_own_answer = scores_text = labels_tokens = True
    architectures = ("decoder",)
    read_at = "every token"

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

    def encode(self, rows: Sequence[Row]) -> list[Example]:
        stride, examples = max(self.max_tokens // 2, 1), list[Example]()
        for row, ids in zip(rows, self.tokenizer.encode([r["text"] for r in rows]), strict=True):
            if self.tokenizer.unk_id in ids:
                raise ValueError(
                    f"row {row['id']}: the model's tokenizer does not know all of its characters, "
                    "so its bits would not encode them; use one that knows bytes"
                )
            tokens = np.array([*self.start, *ids])
            inputs, labels = tokens[:-1], tokens[1:]
            labels = np.where(np.arange(len(labels)) < len(self.start) - 1, IGNORE_INDEX, labels)
            done = window = 0
            while done < len(inputs):
                end = min(done + stride if window else self.max_tokens, len(inputs))
                begin = max(end - self.max_tokens, 0)
                counted = labels[begin:end].copy()
                counted[: done - begin] = IGNORE_INDEX
                examples.append(Example(row["id"], inputs[begin:end], counted, window=window))
                done, window = end, window + 1
        return examples

    def targets(self, examples: list[Example]) -> Json:
        from stages.text.batch import label_places

        fields = super().targets(examples)
        return fields | {"label_places": label_places(fields["labels"])}

    def loss(self, model: ModelWithHead, batch: Batch) -> Losses:
        from stages.models._heads import log_likelihoods

        return {self.name: (1.0, -log_likelihoods(model.backbone, batch).sum())}

    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Example]) -> list[float]:
        from stages.models._heads import log_likelihoods

        return [-nats / math.log(2) for nats in log_likelihoods(model.backbone, batch).tolist()]

    def combine(self, row: Row, predictions: list[float]) -> str:
        return f"{sum(predictions):.4f}"
