"""Texts that count as the same."""

import unicodedata


def folded(text: str) -> str:
    """Without differences of case and white space."""
    return " ".join(text.split()).casefold()


def plain_text(text: str) -> str:
    """The text in NFKC with one blank for each run of white space: what every tokenizer keeps, so
    that bits per byte of all tokenizers are comparable."""
    return " ".join(unicodedata.normalize("NFKC", text).split())
