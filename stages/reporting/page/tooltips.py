"""Tooltips of the page: each term of the glossary is explained at its first use."""

import re
from collections.abc import Mapping
from html import escape

TOKENS = re.compile(r"(<[^>]*>)")
TAG = re.compile(r"<(/?)([a-z0-9]+)", re.IGNORECASE)
VOID = {"br", "img", "input", "link", "meta"}
# Elements whose text is no prose, or that already react when a pointer is on them.
SKIPPED = {"a", "code", "option", "pre", "script", "select", "style", "summary", "svg", "title"}


def with_tooltips(html: str, terms: Mapping[str, str]) -> str:
    """Marks the first use of each term, in the singular or plural, in text that is not hidden."""
    waiting = {
        term: re.compile(rf"\b{re.escape(escape(term))}s?\b", re.IGNORECASE) for term in terms
    }
    parts, skipped, depth = TOKENS.split(html), "", 0
    for i, part in enumerate(parts):
        if not waiting:
            break
        if match := TAG.match(part):
            closes, name = bool(match[1]), match[2].lower()
            if skipped:
                depth += 0 if name != skipped or part.endswith("/>") else -1 if closes else 1
                skipped = skipped if depth else ""
            elif not closes and name not in VOID and (name in SKIPPED or " hidden" in part):
                skipped, depth = name, 1
        elif not skipped and part.strip() and not part.startswith("<"):
            parts[i] = _marked(part, waiting, terms)
    return "".join(parts)


def _marked(text: str, waiting: dict[str, re.Pattern[str]], terms: Mapping[str, str]) -> str:
    """Marks each waiting term that a text without tags has, and takes it out of ``waiting``."""
    first_uses = {
        term: match for term, pattern in waiting.items() if (match := pattern.search(text))
    }
    end = len(text)
    for term, match in sorted(first_uses.items(), key=lambda item: -item[1].start()):
        if match.end() > end:  # part of a longer term
            continue
        end = match.start()
        mark = f'<abbr title="{escape(terms[term].replace("`", ""))}">{match[0]}</abbr>'
        text = text[: match.start()] + mark + text[match.end() :]
        del waiting[term]
    return text
