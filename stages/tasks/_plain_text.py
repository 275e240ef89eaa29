"""Normal forms in which texts are compared."""

import unicodedata

SPACELESS = 0x0E00  # first character of Thai; most scripts from there on have no blanks


def folded(text: str) -> str:
    """Returns the text casefolded, with each run of white space as one blank."""
    return " ".join(text.split()).casefold()


def plain_text(text: str) -> str:
    """Returns the text in NFKC with single blanks. Every tokenizer leaves this form unchanged, so
    that bits per byte are comparable between tokenizers."""
    return " ".join(unicodedata.normalize("NFKC", text).split())
