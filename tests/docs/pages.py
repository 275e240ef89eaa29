"""The Markdown files that people read, and what stands in them."""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^(?P<fence>```+)(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=fence)$", re.M | re.S)
NOT_RUN = "Not run in the tests."


def pages() -> list[Path]:
    top = (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))
    return sorted(chain(top, ROOT.glob("docs/*.md"), ROOT.glob("benchmarks/*.md")))


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


class Block(NamedTuple):
    """A fenced block, the paragraph before it and the one behind it."""

    info: str
    body: str
    before: str
    after: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    text = text_of(page)
    for found in FENCE.finditer(text):
        before = text[: found.start()].rstrip().rpartition("\n\n")[2]
        after = text[found.end() :].lstrip().partition("\n\n")[0]
        line = text.count("\n", 0, found.start()) + 1
        yield Block(found["info"].strip(), found["body"], before, after, line)


def prose(page: Path) -> str:
    """The text without fenced blocks."""
    return FENCE.sub("", text_of(page))
