"""Texts whose likelihood is measured."""

from stages.core.artifacts import Json
from stages.kinds._kind import Kind, Row
from stages.kinds._plain_text import plain_text


class PlainText(Kind):
    """Rows of ``text``, both input and answer. A prediction is the text's number of bits."""

    inputs = ("text",)
    target = "text"
    metrics = ("bits_per_byte", "word_perplexity")

    def prepared(self, row: Json) -> Json:
        return {"text": plain_text(row["text"])}

    def answer(self, row: Row) -> str:
        """Returns the numbers of bytes and words that the bits of the text are divided by."""
        return f"{len(row['text'].encode())} {len(row['text'].split())}"
