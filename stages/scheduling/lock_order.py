"""The order of the entries of dvc.lock: DVC adds an entry when its stage ends, so that after stages
that ran side by side the order would be random."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stages.core.artifacts import replacing

LOCK = Path("dvc.lock")
ENTRY = re.compile(r"^  (?=[^ ])", re.MULTILINE)


@contextmanager
def of_one_run(stages: Sequence[str]) -> Iterator[None]:
    """Orders the entries, when the context ends, as one ``dvc repro`` would: earlier entries first,
    then the new ones in the order of ``stages``."""
    before = [*entries()[1]]
    try:
        yield
    finally:
        head, blocks = entries()
        order = [*before, *(stage for stage in stages if stage not in before), *blocks]
        placed = sorted(blocks, key=order.index)
        if placed != [*blocks]:
            with replacing(LOCK) as path:
                path.write_text(head + "".join(blocks[name] for name in placed), encoding="utf-8")


def entries() -> tuple[str, dict[str, str]]:
    """Returns the text before the entries, and the lines of each entry by its stage."""
    if not LOCK.exists():
        return "", {}
    head, *blocks = ENTRY.split(LOCK.read_text(encoding="utf-8"))
    return head, {block.partition(":\n")[0].strip("'\""): f"  {block}" for block in blocks}
