"""Sequence to sequence: a text is written from a text (translation, summarisation)."""

from typing import Literal

from stages.kinds._cells import Row
from stages.kinds.seq2seq import NO_PREFIX, TextAndTarget
from stages.tasks._writing import Writing
from stages.text.tokenizer import TaskTokenizer


class Seq2Seq(Writing):
    """Writes the row's target from its text, with ``prefix`` before every text (T5's "translate
    English to German: ", Raffel et al. 2020, section 2.4).

    ``num_beams`` and ``length_penalty`` apply to validation and to the test
    (``stages.models._generation.Decoding``).

    Raises ValueError for a prefix that leaves no room for a text.
    """

    kind = TextAndTarget()

    def __init__(
        self,
        labels: list[str],
        tokenizer: TaskTokenizer,
        max_tokens: int,
        *,
        max_target_tokens: int,
        num_beams: int = 1,
        length_penalty: float = 1.0,
        prefix: str = NO_PREFIX,
        label_smoothing: float = 0.0,
        metric: Literal["bleu", "chrf", "rouge_l"] = "bleu",
    ) -> None:
        self.check(
            max_tokens,
            max_target_tokens=max_target_tokens,
            num_beams=num_beams,
            label_smoothing=label_smoothing,
        )
        super().__init__(
            labels,
            tokenizer,
            max_tokens,
            max_target_tokens=max_target_tokens,
            num_beams=num_beams,
            length_penalty=length_penalty,
            label_smoothing=label_smoothing,
        )
        self.prefix = "" if prefix == NO_PREFIX else prefix
        (ids,) = tokenizer.encode([self.prefix])
        if ids and len(ids) + len(tokenizer.wrap([])) >= max_tokens:
            raise ValueError(
                f"prefix: its {len(ids)} tokens leave no room for a text in "
                f"finetune.max_tokens, {max_tokens}"
            )

    @classmethod
    def check(  # type: ignore[override]
        cls,
        max_tokens: int,
        *,
        max_target_tokens: int,
        num_beams: int,
        label_smoothing: float,
        **others: object,
    ) -> None:
        for name, given in (("max_target_tokens", max_target_tokens), ("num_beams", num_beams)):
            if given < 1:
                raise ValueError(f"{name} must be at least 1, not {given}")
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing must be in [0, 1), not {label_smoothing}")

    def text_of(self, row: Row) -> str:
        return self.prefix + row["text"]

    def target_of(self, row: Row) -> str | None:
        return row.get("target")
