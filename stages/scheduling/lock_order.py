"""The order of the entries of dvc.lock.

DVC adds an entry when its stage ends, so the order after stages that ran in parallel is random.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stages.core import paths
from stages.core.artifacts import read_json, replacing, write_json

LOCK = Path("dvc.lock")
NOTE = paths.SCRATCH / "dvc_lock_order.json"  # the order that a running or killed call should leave
ENTRY = re.compile(r"^  (?=[^ ])", re.MULTILINE)


def entries() -> list[str]:
    """Returns the stages of dvc.lock, in its order."""
    return [*_blocks()[1]]


@contextmanager
def of_one_run(stages: Sequence[str]) -> Iterator[None]:
    """Orders the entries, when the context ends, as one ``dvc repro`` would: earlier entries first,
    then the new ones in the order of ``stages``. If calls were killed, the earlier entries are
    those from before the first killed call."""
    before = read_json(NOTE)["order"] if NOTE.exists() else entries()
    order = [*before, *(stage for stage in stages if stage not in before)]
    with replacing(NOTE) as path:
        write_json(path, {"order": order})
    try:
        yield
    finally:
        _put_in_order(order)
        NOTE.unlink(missing_ok=True)


def _put_in_order(order: Sequence[str]) -> None:
    head, blocks = _blocks()
    placed = sorted(blocks, key=lambda name: order.index(name) if name in order else len(order))
    if placed != [*blocks]:
        with replacing(LOCK) as path:
            path.write_text(head + "".join(blocks[name] for name in placed), encoding="utf-8")


def _blocks() -> tuple[str, dict[str, str]]:
    """Returns the text before the entries, and the lines of each entry."""
    if not LOCK.exists():
        return "", {}
    head, *blocks = ENTRY.split(LOCK.read_text(encoding="utf-8"))
    return head, {block.partition(":\n")[0].strip("'\""): f"  {block}" for block in blocks}
