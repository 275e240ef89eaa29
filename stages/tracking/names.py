"""Names of runs in MLflow's list: short enough for its column, and never two alike."""

from collections import Counter
from collections.abc import Iterable

LIMIT = 18  # characters
LETTERS = 3  # that are left of a word


def short_names(names: Iterable[str]) -> dict[str, str]:
    """``encoder_decoder_denoising`` -> ``enc_dec_denoising``: of long names, the first letters of
    all words but the last. Names that would become equal stay as they are."""
    shortened = {name: _short(name) for name in names}
    counts = Counter(shortened.values())
    return {name: short if counts[short] == 1 else name for name, short in shortened.items()}


def _short(name: str) -> str:
    *words, last = name.split("_")
    return name if len(name) <= LIMIT else "_".join([*(word[:LETTERS] for word in words), last])
