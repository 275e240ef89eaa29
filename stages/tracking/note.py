"""The note that MLflow shows: the first lines of comparison.md, and where the rest is."""

import re
from collections.abc import Sequence

LIMIT = 1_500  # characters; MLflow shows a longer one, but nobody reads it
REST = "The rest: `reports/index.html` (a page for the browser) and `reports/comparison.md`."
# MLflow has no files beside the note: a picture or a relative link would show nothing.
PICTURE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
LINK = re.compile(r"\[([^\]]*)\]\((?!https?:)[^)]*\)")
TAG = re.compile(r"</?[a-zA-Z][^>]*>")


def note(comparison: str, links: Sequence[str] = ()) -> str:
    """The links as a list, the first whole lines of ``comparison`` that fit, and where the rest
    is."""
    found, folded = [*_listed(links)], 0
    room = LIMIT - len(REST) - 2 - sum(len(line) + 1 for line in found)
    for line in comparison.splitlines():
        folded += line.count("<details") - line.count("</details")
        shown = TAG.sub("", LINK.sub(r"\1", PICTURE.sub("", line))).rstrip()
        if folded > 0 or "</details" in line or (line.strip() and not shown.strip("[] ")):
            continue
        if len(shown) + 1 > room:
            break
        if shown or (found and found[-1]):
            found.append(shown)
            room -= len(shown) + 1
    while found and (not found[-1] or found[-1].startswith("#")):
        found.pop()  # a heading without its text
    return "\n".join([*found, "", REST])


def _listed(links: Sequence[str]) -> list[str]:
    """As many as leave a third of the room."""
    kept: list[str] = []
    for link in links:
        if sum(map(len, kept)) + len(link) < LIMIT * 2 / 3:
            kept.append(link)
    return [*(f"- {link}" for link in kept), ""] if kept else []
