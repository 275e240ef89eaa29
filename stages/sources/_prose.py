"""Prose out of documentation markup: reStructuredText, Markdown, and the numpy, Google and Sphinx
conventions for parameters.

What is code, a doctest, a table, a formula or a reference is dropped; what is left is sentences.
Three passes: ``_uncode`` blanks what is no text, ``_paragraphs`` finds sections and entries,
``_inline`` strips markup and ``_sentences`` splits. It is a reader of habits, not of a grammar: no
docstring is refused, and a sentence that still looks like code is left out.
"""

import inspect
import re
from collections.abc import Iterator
from typing import NamedTuple

SECTIONS = ("summary", "body", "params", "returns", "raises", "notes")


class Sentence(NamedTuple):
    """``section`` is one of SECTIONS or ``""``; ``spans`` are the (begin, end) of inline code."""

    text: str
    section: str
    spans: list[tuple[int, int]]


class Parameter(NamedTuple):
    """``type`` as it stands in the docstring, ``description`` without markup."""

    type: str
    description: str


class Prose(NamedTuple):
    sentences: list[Sentence]
    parameters: list[Parameter]


def prose(docstring: str) -> Prose:
    """The sentences of a docstring and the parameters that it gives a type."""
    sentences: list[Sentence] = []
    parameters: list[Parameter] = []
    for paragraph in _paragraphs(_uncode(inspect.cleandoc(docstring).expandtabs().split("\n"))):
        text = " ".join(_inline(paragraph.text).split())
        found = list(_sentences(text, paragraph.section))
        if paragraph.type and found:
            description = " ".join(s.text for s in found[:2])
            parameters.append(Parameter(_bare(_inline(paragraph.type)), description))
        if found and not sentences and paragraph.section == "body":  # a signature may precede
            if _bare(text).startswith(found[0].text):
                found[0] = found[0]._replace(section="summary")
        sentences += found
    return Prose(sentences, parameters)


# Pass 1: what is no text ---------------------------------------------------------------------

_DOCTEST = re.compile(r"\s*(>>>|\.\.\. |In \[\d+\]:|Out\[\d+\]:|sage: |\$ |mysql> |% )")
_DIRECTIVE = re.compile(r"\s*\.\.\s+(?:([\w:-]+)::)?(.*)")
_FENCE = re.compile(r"\s*(```|~~~)")
_RULE = re.compile(r"\s*([=\-~*^\"'#+`.:_])\1{2,}\s*$")  # an underline or a transition
_TABLE_BORDER = re.compile(r"\s*(=+(\s+=+)+|-+(\s+-+)+|\+[-=+]+\+|\|[-|: ]+\|)\s*$")
_TABLE_ROW = re.compile(r"\s*(\|.*\||\+[-=+ ]+\+)\s*$")
_PLACEHOLDER = re.compile(r"\s*([%&]?[({]+\w*[)}]+s?|<\w[^>]*>|</\w+>|@\w+.*|\|\w+\|)\s*$")
_ADMONITIONS = {"note", "warning", "important", "tip", "hint", "caution", "attention", "admonition"}


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _uncode(lines: list[str]) -> list[str]:
    """The lines with code, doctests, tables, directives and comments blanked.

    An admonition becomes a section in Google's style: ``Note:`` and its indented text.
    """
    kept: list[str] = []
    i = 0
    while i < len(lines):
        line = lines[i]
        if _FENCE.match(line):
            i += 1
            while i < len(lines) and not _FENCE.match(lines[i]):
                i += 1
            kept.append("")
        elif _DOCTEST.match(line):
            while i + 1 < len(lines) and lines[i + 1].strip():
                i += 1
            kept.append("")
        elif line.lstrip().startswith("..") and (match := _DIRECTIVE.match(line)):
            name, rest = match.groups()
            if name in _ADMONITIONS:
                kept += ["", " " * _indent(line) + "Note:"]
                if rest.strip() and name != "admonition":
                    kept.append(" " * (_indent(line) + 4) + rest.strip())
            else:
                i = _end_of_block(lines, i)
                kept.append("")
        elif _TABLE_BORDER.match(line):
            while i + 1 < len(lines) and lines[i + 1].strip():
                i += 1
            kept.append("")
        elif _TABLE_ROW.match(line) or _PLACEHOLDER.match(line):
            kept.append("")
        elif line.rstrip().endswith("::"):
            i = _end_of_block(lines, i)
            text = line.rstrip()[:-1]
            kept += [text if re.search(r"\w:$", text) else text[:-1].rstrip(), ""]
        else:
            kept.append(line.rstrip())
        i += 1
    return kept


def _end_of_block(lines: list[str], start: int) -> int:
    """The last line of the block that is indented deeper than line ``start``."""
    last = start
    for i in range(start + 1, len(lines)):
        if lines[i].strip():
            if _indent(lines[i]) <= _indent(lines[start]):
                break
            last = i
    return last


# Pass 2: sections, entries, paragraphs -------------------------------------------------------


class _Paragraph(NamedTuple):
    text: str
    section: str
    type: str  # of the parameter that it describes


_TITLES = {
    "params": "args arguments parameters params keyword-arguments keyword-args kwargs"
    " other-parameters keyword-parameters",
    "returns": "return returns yield yields",
    "raises": "raise raises warns exceptions",
    "notes": "note notes",
    "dropped": "see-also seealso references reference routine-listings methods index literature"
    " citations citation functions classes author authors bibliography copyright license",
    "": "attributes warning warnings example examples usage inputs outputs shape important tip"
    " algorithm receives receive todo",
}
_SECTION_OF = {
    title.replace("-", " "): section for section, row in _TITLES.items() for title in row.split()
}
_ENTRIES = ("params", "attributes")
_FIELD = re.compile(r"\s*:(\w+)((?:\s+[^:\s]+)*)\s*:(?:\s+(.*)|)$")
_FIELDS = {
    **dict.fromkeys(("param", "parameter", "arg", "argument", "key", "keyword"), "params"),
    **dict.fromkeys(("return", "returns", "yield", "yields"), "returns"),
    **dict.fromkeys(("raise", "raises", "except", "exception"), "raises"),
    **dict.fromkeys(("ivar", "cvar", "var"), ""),
}
# ``name (type): text`` and, in Hugging Face's style, the same with the text below.
_TYPED = re.compile(
    r"\s*[*`]*[\w, *./]+?[*`]* \(((?:[^()]|\([^()]*\))+)\)\s*(?::|--)(?:\s+(.*)|)$"
)
_NAMED = re.compile(r"\s*(?:[-*] )?[*`]*[\w.]+[*`]*\s*(?::| -- | - )\s*(.*)$")  # ``name: text``
_NUMPY = re.compile(r"\s*[*`]*[\w.*]+[*`]*(?:, [\w.*`]+|, \.\.\.)*\s*(?::\s*(.*)|)$")
_ITEM = re.compile(r"\s*(?:[-*+•]|\(?(?:\d+|[a-z]|[ivx]+)[.)]|#\.)\s+(?=\S)")


def _paragraphs(lines: list[str]) -> Iterator[_Paragraph]:
    section, title, style, margin = "body", "", "", 0  # where we are
    text: list[str] = []  # the paragraph that is being read
    kind, last_indent, hanging = "", 0, -1  # its type; hanging: the indent of a list item
    types: dict[str, str] = {}  # of Sphinx fields, whose description and type stand apart

    def finished() -> Iterator[_Paragraph]:
        nonlocal text, kind, hanging
        if text and section != "dropped":
            yield _Paragraph(" ".join(text), section, kind)
        text, kind, hanging = [], "", -1

    for match in map(_FIELD.match, lines):
        if match and match[1] == "type":
            types[match[2].strip()] = match[3] or ""

    i = 0
    while i < len(lines):
        line, indent = lines[i], _indent(lines[i])
        following = lines[i + 1] if i + 1 < len(lines) else ""
        bare = line.strip().rstrip(":").strip("*# ").lower()
        if not line.strip():
            yield from finished()
        elif _RULE.match(following) and len(following.strip()) >= min(3, len(bare)) and not text:
            yield from finished()
            section, title, style, margin = _SECTION_OF.get(bare, "body"), bare, "numpy", indent
            i += 1
        elif _RULE.match(line) or line.startswith("#"):
            yield from finished()
        elif bare in _SECTION_OF and (
            line.rstrip().endswith(":") or line.strip().startswith("**")
        ):
            yield from finished()
            section, title, style, margin = _SECTION_OF[bare], bare, "google", indent
        elif match := _FIELD.match(line):
            yield from finished()
            name = match[1]
            section, title, style, margin = _FIELDS.get(name, "dropped"), name, "field", indent
            if match[3]:
                text = [match[3]]
            words = match[2].split()
            kind = types.get(words[-1], " ".join(words[:-1])) if words else ""
            kind = kind if section == "params" else ""
        else:
            if style in ("google", "field") and indent <= margin and not (
                style == "google" and not text and title in ("note", "example", "examples")
            ):
                yield from finished()
                section, title, style = ("body" if section != "dropped" else ""), "", ""
            deeper = bool(following.strip()) and _indent(following) > indent
            listed = section in ("params", "returns", "raises") or title == "attributes"
            if match := _TYPED.match(line) if (listed or deeper) and hanging < 0 else None:
                yield from finished()
                kind, text = match[1] if listed or deeper else "", [match[2]] if match[2] else []
                if not listed and style == "":
                    section = "params"
                    style, margin = "field", indent
            elif style == "numpy" and listed and indent == margin and deeper:
                yield from finished()
                match = _NUMPY.match(line)
                kind = (match[1] or "") if match and section == "params" else ""
            elif style == "google" and listed and indent > margin and (
                (not text or indent <= last_indent) and (match := _NAMED.match(line))
            ):
                yield from finished()
                text = [match[1]] if match[1] else []
            elif match := _ITEM.match(line):
                yield from finished()
                text, hanging = [line[match.end() :]], indent
            elif text and hanging >= 0 and indent <= hanging:
                yield from finished()
                text = [line.strip()]
            else:
                text.append(line.strip())
            last_indent = indent
        i += 1
    yield from finished()


# Pass 3: inline markup, sentences ------------------------------------------------------------

# Private characters mark code in the text while it is being read.
_BEGIN, _END, _SPACE, _POISON = "\ue000", "\ue001", "\ue002", "\ue003"
_CODE_ROLES = set(
    "class func function meth method attr attribute mod module obj data exc const paramref py any"
    " code keyword token envvar option mimetype program file samp command kbd type".split()
)
_LITERAL = re.compile(r"``(.+?)``(?!`)")
_ROLE = re.compile(r":([\w:+.-]+):`([^`]+)`(?:__?)?")
_BRACKETED = re.compile(r"\[(`[^`\]]+`)\](?:\([^)\s]*\))?")
_TICKED = re.compile(r"`([^`]+)`(__?\b)?(__?(?!\w))?")
_LINK = re.compile(r"!?\[([^\]]+)\]\([^)\s]+\)")
_BOLD = re.compile(r"\*\*(?=\S)([^*]+?)(?<=\S)\*\*")
_EMPHASIS = re.compile(r"(?<![\w*])\*(?=[^\s*])([^*]+?)(?<=\S)\*(?![\w*])")
_FOOTNOTE = re.compile(r"\s*\[(?:\d+|#\w*|[A-Z][A-Za-z+]*\d+\w*)\]_?(?=[\s.,;:)]|$)")
_FORMULA = re.compile(r"\$[^$]+\$")


def _code(content: str) -> str:
    content = content.strip()
    if not content or re.search(r"\\|\^\{|_\{|\$", content):
        return _POISON
    return _BEGIN + content.replace(" ", _SPACE) + _END


def _target(content: str) -> str:
    """``text <target>`` is text, ``~module.name`` is name, ``!name`` is name."""
    content = re.sub(r"(^|\s+)<[^>]*>$", "", content)
    if content.startswith(("~", "!")):
        content = content[1:].rsplit(".", 1)[-1] if content[0] == "~" else content[1:]
    return re.sub(r"^\.?_\w+\.(?=\w)|^\.", "", content)  # sqlalchemy's _orm.Session, .name


def _role(match: re.Match[str]) -> str:
    name, content = match[1].rsplit(":", 1)[-1], match[2]
    if name == "math":
        return _POISON
    shown = _target(content)
    return _code(shown) if name in _CODE_ROLES else shown or _POISON


def _ticked(match: re.Match[str]) -> str:
    content, link = match[1], match[2] or match[3]
    if link or re.search(r"(^|\s)<[^>]+>$", content):
        return _target(content) or _POISON
    return _code(_target(content)) if len(content.split()) <= 4 else content


def _inline(text: str) -> str:
    """Markup replaced by text, code put between private characters."""
    if "`" in text:
        text = _LITERAL.sub(lambda m: _code(m[1]), text)
        text = _ROLE.sub(_role, text)
        text = _BRACKETED.sub(r"\1", text)
        text = _TICKED.sub(_ticked, text)
    if "[" in text:
        text = _FOOTNOTE.sub("", _LINK.sub(r"\1", text))
    if "*" in text:
        text = _EMPHASIS.sub(r"\1", _BOLD.sub(r"\1", text))
    if "$" in text:
        text = _FORMULA.sub(_POISON, text)
    if "\\" in text:
        text = re.sub(r"\\ ", "", text)
        text = re.sub(r"\\(?=[*_`|<>])", "", text)
    return re.sub(r"(?<=\w)__?(?=[\s.,;:)]|$)", "", text) if "_" in text else text


def _bare(text: str) -> str:
    return re.sub(f"[{_BEGIN}{_END}{_POISON}]", "", text).replace(_SPACE, " ")


_SENTENCE_END = re.compile(rf"(?<=[.!?])(?:[\"')\]]|{_END})*(\s+)(?=[\"'(\[]?[A-Z0-9]|{_BEGIN})")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[\"'])(?:e\.g|i\.e|vs|cf|viz|resp|approx|Fig|Figs|Eq|Eqs|eq|Ref|Refs|Sec|Sect|Chap"
    r"|Ch|Dr|Mr|Mrs|Ms|Prof|St|No|no|vol|Vol|pp|p|ed|eds|al|incl|ca|Jr|a\.k\.a|w\.r\.t|[A-Z])\.$"
)


def _split(text: str) -> Iterator[str]:
    begin = 0
    for match in _SENTENCE_END.finditer(text):
        if not _ABBREVIATION.search(text[max(begin, match.start() - 12) : match.start()]):
            yield text[begin : match.start(1)]
            begin = match.end()
    yield text[begin:]


def _sentences(text: str, section: str) -> Iterator[Sentence]:
    for marked in _split(text):
        if _POISON not in marked and _is_prose(sentence := _unmark(marked, section)):
            yield sentence


def _unmark(marked: str, section: str) -> Sentence:
    """Private characters out, the places of code noted."""
    pieces: list[str] = []
    spans: list[tuple[int, int]] = []
    length = 0
    for number, piece in enumerate(re.split(f"[{_BEGIN}{_END}]", marked)):
        piece = piece.replace(_SPACE, " ")
        if number % 2 and piece:
            spans.append((length, length + len(piece)))
        pieces.append(piece)
        length += len(piece)
    return Sentence("".join(pieces), section, spans)


_WORD = re.compile(r"[a-z]{2,}")
_REFUSED = re.compile(
    r"::|>>>|`|%[(sdr]|\{\{|==|\\|https?:|www\.|\ue003|[<>|{}@#$^~=]|->|\.\.\.|//|__|\*\*|\(\)|\s[*_]"
)


def _is_prose(sentence: Sentence) -> bool:
    """Whether a sentence reads as English; code inside spans is not judged."""
    text = sentence.text
    if not 12 <= len(text) <= 600 or not text.isprintable():
        return False
    outside = _outside(sentence)
    words = text.split()
    if not 3 <= len(words) <= 80 or _REFUSED.search(outside):
        return False
    if not (text[0].isalnum() or text[0] in "\"'([" or (sentence.spans and sentence.spans[0][0] == 0)):
        return False
    if text[-1] not in ".!?:)\"'" and not text[-1].isalnum() or text[-1] == ":" and len(words) < 5:
        return False
    plain = len(_WORD.findall(outside))
    letters = sum(map(str.isalpha, outside)) + outside.count(" ")
    return plain >= max(2, 0.4 * len(words)) and letters >= 0.85 * len(outside)


def _outside(sentence: Sentence) -> str:
    begin, pieces = 0, []
    for a, b in sentence.spans:
        pieces.append(sentence.text[begin:a])
        begin = b
    return " ".join([*pieces, sentence.text[begin:]])
