"""Normal forms of texts, in which texts are compared."""

import unicodedata


def folded(text: str) -> str:
    """Returns the text without differences of case and white space."""
    return " ".join(text.split()).casefold()


def plain_text(text: str) -> str:
    """Returns the text in NFKC with single blanks. Every tokenizer keeps this form, so that bits
    per byte are comparable between tokenizers."""
    return " ".join(unicodedata.normalize("NFKC", text).split())
