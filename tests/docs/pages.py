"""The Markdown files that people read, their blocks and their prose."""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^(?P<fence>```+)(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=fence)$", re.M | re.S)


def pages() -> list[Path]:
    top = (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"))
    return sorted(chain(top, ROOT.glob("docs/*.md"), ROOT.glob("benchmarks/*.md")))


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


class Block(NamedTuple):
    """A fenced block of a page."""

    info: str
    body: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    text = text_of(page)
    for fenced in FENCE.finditer(text):
        line = text.count("\n", 0, fenced.start()) + 1
        yield Block(fenced["info"].strip(), fenced["body"], line)


def prose(page: Path) -> str:
    """Returns the text without fenced blocks."""
    return FENCE.sub("", text_of(page))
