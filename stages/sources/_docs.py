"""Sentences of the documentation in Python source, with their sections and their inline code.

Markup is reStructuredText, Markdown, and the numpy, Google and Sphinx conventions for parameters.
Code, doctests, tables, formulas and references are dropped. The rules are heuristics: no docstring
is refused, and a sentence that still looks like code is dropped.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from typing import NamedTuple

from stages.core.artifacts import Json
from stages.sources._source import BEGIN, END, sentences


class Sentence(NamedTuple):
    """A sentence; ``section`` is one of summary, body, params, returns, raises and notes, or
    empty; ``spans`` are the (begin, end) of inline code."""

    text: str
    section: str
    spans: list[tuple[int, int]]


_DOCUMENTING = re.compile(r"add_?(new)?doc(str)?")  # numpy's add_newdoc, torch's add_docstr
_SHORTEST = 15  # characters; a shorter argument of such a call is a name


def docstrings(source: bytes) -> list[str]:
    """Returns the docstrings of a module, its classes and functions, and the texts of
    ``add_newdoc`` and ``add_docstr`` calls, which document code written in C. Nothing is imported
    or run. A file that this Python cannot parse has none."""
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    return [inspect.cleandoc(text) for text in _documentation(module) if len(text) >= _SHORTEST]


def _documentation(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield ast.get_docstring(node, clean=False) or ""
    elif isinstance(node, ast.Expr | ast.Assign) and isinstance(node.value, ast.Call):
        match node.value.func:
            case ast.Name(id=name) | ast.Attribute(attr=name) if _DOCUMENTING.search(name):
                yield from map(_text, node.value.args)
    for block in ("body", "orelse", "handlers", "finalbody"):
        for statement in getattr(node, block, ()):
            yield from _documentation(statement)


def _text(node: ast.AST) -> str:
    """Returns the text of ``"..."``, ``"..." + "..."``, ``"...".format()`` and ``(name, "...")``,
    and an empty text for other code."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.BinOp(left=left, right=right):
            return _text(left) + _text(right)
        case ast.Call(func=ast.Attribute(value=inner)) | ast.Tuple(elts=[*_, inner]):
            return _text(inner)
    return ""


_FENCE = re.compile(r"\s*(```|~~~)")
_TO_BLANK = re.compile(  # a doctest or a table, up to the next blank line
    r"\s*(>>>|\.\.\. |In \[\d+\]:|sage: |\$ |% |\|.*\|\s*$|(=+(\s+=+)+|-+(\s+-+)+|\+[-=+]+\+)\s*$)"
)
_DIRECTIVE = re.compile(r"\s*\.\.\s+(?:([\w:-]+)::)?")
_RULE = re.compile(r"\s*([=\-~*^\"'#+`.:_])\1{2,}\s*$")  # an underline or a transition
_ADMONITIONS = {"note", "warning", "important", "tip", "hint", "caution", "attention"}
_TITLES = {
    "params": "args arguments parameters params keyword-arguments kwargs other-parameters"
    " arg argument parameter param keyword",
    "returns": "return returns yield yields",
    "raises": "raise raises warns except exception exceptions",
    "notes": "note notes",
    "dropped": "see-also seealso references reference routine-listings methods index citation"
    " functions classes author authors copyright license",
    "": "attributes warning warnings example examples usage inputs outputs shape important tip",
}
_SECTION_OF = {
    title.replace("-", " "): section for section, row in _TITLES.items() for title in row.split()
}
_FIELD = re.compile(r"\s*:(\w+)(?:\s+[^:]+)?:(?:\s+(.*)|)$")
_LISTED = ("params", "returns", "raises")  # sections with an entry for each thing
# ``name (type): text``; in Hugging Face's style the text is on the next line.
_TYPED = re.compile(r"\s*[*`]*[\w, *./]+?[*`]* ?\((?:[^()]|\([^()]*\))+\)\s*(?::|--)(?:\s+(.*)|)$")
_NAMED = re.compile(r"\s*(?:[-*] )?[*`]*[\w.*]+[*`]*(?:, [\w.*`]+)*\s*(?::| -- | - )\s*(.*)$")
_ITEM = re.compile(r"\s*(?:[-*+•]|\(?(?:\d+|[a-z]|[ivx]+)[.)]|#\.)\s+(?=\S)")


def _paragraphs(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yields the text and the section of each paragraph, each item of a list and each entry."""
    section, style, margin = "body", "", 0  # a numpy section ends where the next one begins
    text: list[str] = []
    skipped: int | str | None = None  # lines up to a fence or a blank line, or deeper than this
    is_closed = False  # no line may be added to the text
    for line, following in zip([*lines, ""], [*lines[1:], "", ""], strict=True):
        indent, bare = _indent(line), line.strip()
        if skipped == "fence" or (skipped == "blank" and bare):
            skipped = None if skipped == "fence" and _FENCE.match(line) else skipped
            continue
        if isinstance(skipped, int) and (not bare or indent > skipped):
            continue
        skipped = None
        deeper = _indent(following) > indent
        name = bare.rstrip(":").strip("*# ").lower()
        directive, field, item = (find.match(line) for find in (_DIRECTIVE, _FIELD, _ITEM))
        is_admonition = directive is not None and directive[1] in _ADMONITIONS
        is_title = bool(bare and not text and _RULE.match(following))
        is_heading = name in _SECTION_OF and line.strip(" *").endswith(":")
        is_left = style == "google" and bool(bare) and indent <= margin
        is_listed = section in _LISTED and not is_left
        entry = _TYPED.match(line) if deeper or (is_listed and style != "numpy") else None
        if not entry and is_listed and indent <= margin + 4 * (style == "google"):
            entry = _NAMED.match(line)
        is_name = is_listed and style == "numpy" and indent == margin and deeper
        starts = is_title or is_heading or is_left or is_name or directive or field or item or entry
        if not bare or starts or is_closed or _RULE.match(line) or _TO_BLANK.match(line):
            if text and section != "dropped":
                yield " ".join(text), section
            text, is_closed = [], False
        if is_title:
            section, style, margin = _SECTION_OF.get(name, "body"), "numpy", indent
        elif is_heading or is_admonition:
            section = _SECTION_OF.get(name, "notes" if is_admonition else "")
            style, margin = "google", indent
        elif field:
            section, style, margin = _SECTION_OF.get(field[1], "dropped"), "google", indent
            text = [field[2]] if field[2] else []
        elif directive:
            skipped = indent
        elif _FENCE.match(line):
            skipped = "fence"
        elif _TO_BLANK.match(line):
            skipped = "blank"
        elif bare and not _RULE.match(line):
            if entry and not is_listed and style != "numpy":  # Hugging Face's, without a heading
                section, style, margin = "params", "google", indent
            elif is_left:
                section, style = "body" if section != "dropped" else "", ""
            begun = entry[1] or "" if entry else line[item.end() :] if item else bare
            if is_name:
                begun = ""  # a name or a type, above its description
            if bare.endswith("::"):
                begun, skipped, is_closed = begun[:-2].rstrip(" :") + ":", indent, True
            text += [begun.strip()] if begun.strip() else []


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


# Private characters: a blank in code, and a mark, as of a formula, that drops its sentence.
_SPACE, _POISON = "\ue002", "\ue003"
_EDGE = re.compile(f"[{BEGIN}{END}]")
_PROSE_ROLES = {"ref", "doc", "term", "numref", "eq", "cite", "pep", "rfc", "std"}
_CODE = re.compile(  # ``literal``, :role:`text`, `text`, `link`_
    r"``(?P<literal>.+?)``(?!`)|(?::(?P<role>[\w:+.-]+):)?`(?P<text>[^`]+)`(?P<link>__?(?!\w))?"
)
_MARKUP = [
    (re.compile(r"!?\[([^\]]+)\]\([^)\s]+\)"), r"\1"),  # a link of Markdown
    (re.compile(r"\s*\[(?:\d+|#\w*|[A-Z][A-Za-z+]*\d+\w*)\]_?(?=[\s.,;:)]|$)"), ""),  # a footnote
    (re.compile(r"\*\*(?=\S)([^*]+?)(?<=\S)\*\*"), r"\1"),
    (re.compile(r"(?<![\w*])\*(?=[^\s*])([^*]+?)(?<=\S)\*(?![\w*])"), r"\1"),
    (re.compile(r"\$[^$]+\$"), _POISON),
    (re.compile(r"\\(?:(?=[*_`|<>])| )"), ""),
    (re.compile(r"(?<=\w)__?(?=[\s.,;:)]|$)"), ""),
]


def _marked_up(match: re.Match[str]) -> str:
    if match["literal"]:
        return _code(match["literal"])
    role, shown = (match["role"] or "").rsplit(":", 1)[-1], match["text"]
    if role == "math":
        return _POISON
    has_target = re.search(r"(^|\s)<[^>]+>$", shown)
    shown = re.sub(r"(^|\s+)<[^>]*>$", "", shown)  # ``text <target>``
    if shown.startswith(("~", "!")):
        shown = shown[1:].rsplit(".", 1)[-1] if shown[0] == "~" else shown[1:]
    shown = re.sub(r"^\.?_\w+\.(?=\w)|^\.", "", shown)  # sqlalchemy's _orm.Session, .name
    is_prose = role in _PROSE_ROLES or match["link"] or (has_target and not role)
    return shown or _POISON if is_prose or len(shown.split()) > 4 else _code(shown)


def _code(content: str) -> str:
    content = content.strip()
    if not content or re.search(r"\\|\^\{|_\{|\$", content):
        return _POISON
    return BEGIN + content.replace(" ", _SPACE) + END


_WORD = re.compile(r"[a-z]{2,}")
_REFUSED = re.compile(
    r"::|>>>|`|%[(sdr]|\{\{|==|\\|https?:|www\.|\ue003|[<>|{}@#$^~=]|->|\.\.\.|//|__|\*\*|\(\)|\s[*_]"
)


def prose(docstring: str) -> list[Sentence]:
    """Returns the sentences of a docstring; the first one of its body is its summary. None has a
    section unless the docstring lists parameters, results or errors, since the body of another one
    describes them, too."""
    result: list[Sentence] = []
    for text, section in _paragraphs(docstring.expandtabs().split("\n")):
        if "`" in text:  # code is put between private characters
            text = _CODE.sub(_marked_up, re.sub(r"\[(`[^`\]]+`)\](?:\([^)\s]*\))?", r"\1", text))
        for pattern, replacement in _MARKUP:
            text = pattern.sub(replacement, text)
        for marked in sentences(" ".join(text.split())):
            plain, spans = "", list[tuple[int, int]]()
            for number, piece in enumerate(_EDGE.split(marked)):
                piece = piece.replace(_SPACE, " ")
                if number % 2 and piece:  # code stands between every other pair of marks
                    spans.append((len(plain), len(plain) + len(piece)))
                plain += piece
            is_summary = not result and section == "body"
            sentence = Sentence(plain, "summary" if is_summary else section, spans)
            result += [sentence] if _is_prose(sentence) else []
    is_structured = any(sentence.section in _LISTED for sentence in result)
    return result if is_structured else [each._replace(section="") for each in result]


def _is_prose(sentence: Sentence) -> bool:
    """Whether a sentence reads as English; code inside spans does not count."""
    text, words = sentence.text, sentence.text.split()
    outside = text
    for begin, end in reversed(sentence.spans):
        outside = outside[:begin] + " " + outside[end:]
    letters = sum(map(str.isalpha, outside)) + outside.count(" ")
    return (
        12 <= len(text) <= 600
        and text.isprintable()
        and 3 <= len(words) <= 80
        and not _REFUSED.search(outside)
        and (text[0].isalnum() or text[0] in "\"'([" or (0, len(words[0])) in sentence.spans[:1])
        and (text[-1].isalnum() or text[-1] in ".!?:)\"'")
        and not (text[-1] == ":" and len(words) < 5)
        and len(_WORD.findall(outside)) >= max(2, 0.4 * len(words))
        and letters >= 0.85 * len(outside)
    )


# A call or an index is one word, and so is what begins and ends with a letter or a digit; any other
# sign is a word. Code markup is ignored, so that the split reveals no tag.
_WORDS = re.compile(r"\w[^\s()\[\]]*(?:\([^\s()]*\)|\[[^\s\[\]]*\])|\w\S*\w|\S")


def tagged(sentence: Sentence) -> Json | None:
    """Returns a sentence's words and BIO tags of one type, CODE, for the words in code markup. None
    without code, if markup cuts a word, for under 5 or over 40 words, or if half of them are code.
    """
    places = [match.span() for match in _WORDS.finditer(sentence.text)]
    tags = ["O"] * len(places)
    for begin, end in sentence.spans:
        inside = [i for i, (a, b) in enumerate(places) if a < end and b > begin]
        if not inside or places[inside[0]][0] != begin or places[inside[-1]][1] != end:
            return None
        tags[inside[0] : inside[-1] + 1] = ["B-CODE", *["I-CODE"] * (len(inside) - 1)]
    if not sentence.spans or not 5 <= len(tags) <= 40 or tags.count("O") <= len(tags) / 2:
        return None
    return {"words": [sentence.text[a:b] for a, b in places], "tags": tags}


def with_section(sentence: Sentence) -> Json | None:
    """Returns a sentence of at least five words and its section, or None."""
    has_label = sentence.section and len(sentence.text.split()) >= 5
    return {"text": sentence.text, "label": sentence.section} if has_label else None
