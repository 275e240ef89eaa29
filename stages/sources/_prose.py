"""Prose from documentation markup: reStructuredText, Markdown, and the numpy, Google and Sphinx
conventions for parameters.

Code, doctests, tables, formulas and references are dropped, and sentences remain. ``_uncode``
blanks lines that are not text, ``_Reader`` finds sections and entries, ``_inline`` strips markup
and ``_sentences`` splits text into sentences. The rules are heuristics: no docstring is refused,
and a sentence that still looks like code is dropped.
"""

import inspect
import re
from collections.abc import Iterator
from typing import NamedTuple

from stages.sources._sentences import BEGIN, END, sentences

SECTIONS = ("summary", "body", "params", "returns", "raises", "notes")


class Sentence(NamedTuple):
    """A sentence; ``section`` is one of SECTIONS or ``""``, ``spans`` are the (begin, end) of
    inline code."""

    text: str
    section: str
    spans: list[tuple[int, int]]


class Parameter(NamedTuple):
    """A parameter; ``type`` is as in the docstring, ``description`` has no markup."""

    type: str
    description: str


class Prose(NamedTuple):
    sentences: list[Sentence]
    parameters: list[Parameter]


def prose(docstring: str) -> Prose:
    """Returns the sentences of a docstring and the parameters whose types it names."""
    prose_sentences: list[Sentence] = []
    parameters: list[Parameter] = []
    lines = inspect.cleandoc(docstring).expandtabs().split("\n")
    for paragraph in _Reader(_uncode(lines)).paragraphs:
        text = " ".join(_inline(paragraph.text).split())
        paragraph_sentences = list(_sentences(text, paragraph.section))
        if paragraph.type and paragraph_sentences:
            description = " ".join(s.text for s in paragraph_sentences[:2])
            parameters.append(Parameter(_bare(_inline(paragraph.type)), description))
        opens = not prose_sentences and paragraph.section == "body"  # perhaps after a signature
        if opens and paragraph_sentences and _bare(text).startswith(paragraph_sentences[0].text):
            paragraph_sentences[0] = paragraph_sentences[0]._replace(section="summary")
        prose_sentences += paragraph_sentences
    return Prose(prose_sentences, parameters)


# Pass 1: lines that are no text ---------------------------------------------------------------

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
    """Returns the lines with code, doctests, tables, directives and comments blanked.

    An admonition becomes a section in Google's style: ``Note:`` and its indented text.
    """
    text_lines: list[str] = []
    i = 0
    while i < len(lines):
        line = lines[i]
        if _FENCE.match(line):
            i += 1
            while i < len(lines) and not _FENCE.match(lines[i]):
                i += 1
            text_lines.append("")
        elif _DOCTEST.match(line):
            while i + 1 < len(lines) and lines[i + 1].strip():
                i += 1
            text_lines.append("")
        elif line.lstrip().startswith("..") and (match := _DIRECTIVE.match(line)):
            name, rest = match.groups()
            if name in _ADMONITIONS:
                text_lines += ["", " " * _indent(line) + "Note:"]
                if rest.strip() and name != "admonition":
                    text_lines.append(" " * (_indent(line) + 4) + rest.strip())
            else:
                i = _end_of_block(lines, i)
                text_lines.append("")
        elif _TABLE_BORDER.match(line):
            while i + 1 < len(lines) and lines[i + 1].strip():
                i += 1
            text_lines.append("")
        elif _TABLE_ROW.match(line) or _PLACEHOLDER.match(line):
            text_lines.append("")
        elif line.rstrip().endswith("::"):
            i = _end_of_block(lines, i)
            text = line.rstrip()[:-1]
            text_lines += [text if re.search(r"\w:$", text) else text[:-1].rstrip(), ""]
        else:
            text_lines.append(line.rstrip())
        i += 1
    return text_lines


def _end_of_block(lines: list[str], start: int) -> int:
    """Returns the index of the last line of the block that is indented deeper than line
    ``start``."""
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
    type: str  # type of the parameter that the text describes


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
_FIELD = re.compile(r"\s*:(\w+)((?:\s+[^:\s]+)*)\s*:(?:\s+(.*)|)$")
_FIELDS = {
    **dict.fromkeys(("param", "parameter", "arg", "argument", "key", "keyword"), "params"),
    **dict.fromkeys(("return", "returns", "yield", "yields"), "returns"),
    **dict.fromkeys(("raise", "raises", "except", "exception"), "raises"),
    **dict.fromkeys(("ivar", "cvar", "var"), ""),
}
# ``name (type): text``; in Hugging Face's style the text is on the next line.
_TYPED = re.compile(r"\s*[*`]*[\w, *./]+?[*`]* \(((?:[^()]|\([^()]*\))+)\)\s*(?::|--)(?:\s+(.*)|)$")
_NAMED = re.compile(r"\s*(?:[-*] )?[*`]*[\w.]+[*`]*\s*(?::| -- | - )\s*(.*)$")  # ``name: text``
_NUMPY = re.compile(r"\s*[*`]*[\w.*]+[*`]*(?:, [\w.*`]+|, \.\.\.)*\s*(?::\s*(.*)|)$")
_ITEM = re.compile(r"\s*(?:[-*+•]|\(?(?:\d+|[a-z]|[ivx]+)[.)]|#\.)\s+(?=\S)")


class _Reader:
    """Gathers the lines of a docstring into paragraphs.

    ``style`` decides where the current section ends: a numpy section ends where the next begins, a
    section of Google or Sphinx at a line indented like its heading (``margin``) or less.
    """

    def __init__(self, lines: list[str]) -> None:
        self.paragraphs: list[_Paragraph] = []
        self.section, self.title, self.style, self.margin = "body", "", "", 0
        self.text: list[str] = []  # the lines of the current paragraph
        self.type = ""  # the type of the parameter that the paragraph describes
        self.item = -1  # the paragraph's indent if it is an item of a list
        self.indent = 0  # the indent of the paragraph's last line
        fields = filter(None, map(_FIELD.match, lines))  # `:type name:` has the type of `name`
        self.types = {m[2].strip(): m[3] or "" for m in fields if m[1] == "type"}
        for line, following in zip(lines, [*lines[1:], ""], strict=True):
            self._read(line, following)
        self._finish()

    def _read(self, line: str, following: str) -> None:
        indent = _indent(line)
        name = line.strip().rstrip(":").strip("*# ").lower()
        if not line.strip() or _RULE.match(line) or line.startswith("#"):
            self._finish()
        elif not self.text and _RULE.match(following):
            self._enter(_SECTION_OF.get(name, "body"), name, "numpy", indent)
        elif name in _SECTION_OF and line.strip(" *").endswith(":"):
            self._enter(_SECTION_OF[name], name, "google", indent)
        elif match := _FIELD.match(line):
            self._enter(_FIELDS.get(match[1], "dropped"), match[1], "field", indent)
            words = match[2].split()
            self.text = [match[3]] if match[3] else []
            if words and self.section == "params":
                self.type = self.types.get(words[-1], " ".join(words[:-1]))
        else:
            unindented = self.title in ("note", "example", "examples") and not self.text
            if self.style in ("google", "field") and indent <= self.margin and not unindented:
                self._enter("body" if self.section != "dropped" else "", "", "", 0)
            self._read_text(line, indent, deeper=_indent(following) > indent)
            self.indent = indent

    def _read_text(self, line: str, indent: int, *, deeper: bool) -> None:
        """Reads a line of text. ``deeper`` says whether the next line is indented more, like a
        description below a name."""
        listed = self.section in ("params", "returns", "raises") or self.title == "attributes"
        if (listed or deeper) and self.item < 0 and (match := _TYPED.match(line)):
            if not listed and not self.style:  # Hugging Face's entries without a heading
                self._enter("params", "", "field", indent)
            self._begin(match[2], type=match[1])
        elif (
            listed
            and self.style == "numpy"
            and indent == self.margin
            and ((match := _NUMPY.match(line)) or deeper)
        ):
            after = (match and match[1]) or ""  # a type or a description
            if deeper and len(after.split()) <= 8:
                self._begin(None, type=after if self.section == "params" else "")
            else:
                self._begin(after or line.strip())
        elif (
            listed
            and self.style == "google"
            and (not self.text or indent <= self.indent)
            and (match := _NAMED.match(line))
        ):
            self._begin(match[1])
        elif match := _ITEM.match(line):
            self._begin(line[match.end() :], item=indent)
        elif self.text and (indent <= self.item or self._is_next_term(indent)):
            self._begin(line.strip())
        else:
            self.text.append(line.strip())

    def _is_next_term(self, indent: int) -> bool:
        """Returns whether a line begins a term of a definition list, or the meaning of a term."""
        meaning = self.section == "body" and len(self.text) == 1 and indent > self.indent
        return self.item < 0 and (indent < self.indent or meaning)

    def _enter(self, section: str, title: str, style: str, margin: int) -> None:
        self._finish()
        self.section, self.title, self.style, self.margin = section, title, style, margin

    def _begin(self, text: str | None, *, type: str = "", item: int = -1) -> None:
        self._finish()
        self.text, self.type, self.item = [text] if text else [], type, item

    def _finish(self) -> None:
        if self.text and self.section != "dropped":
            self.paragraphs.append(_Paragraph(" ".join(self.text), self.section, self.type))
        self.text, self.type, self.item = [], "", -1


# Pass 3: inline markup, sentences ------------------------------------------------------------

# Private characters: a blank in code, and a mark, as of a formula, that drops its sentence.
_SPACE, _POISON = "\ue002", "\ue003"
_EDGE = re.compile(f"[{BEGIN}{END}]")
_CODE_ROLES = frozenset(
    ("class", "func", "function", "meth", "method", "attr", "attribute", "mod", "module", "obj")
    + ("data", "exc", "const", "paramref", "py", "any", "code", "keyword", "token", "envvar")
    + ("option", "mimetype", "program", "file", "samp", "command", "kbd", "type")
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
    return BEGIN + content.replace(" ", _SPACE) + END


def _target(content: str) -> str:
    """Returns the text that a reference shows: ``text`` for ``text <target>``, and ``name`` for
    ``~module.name`` and ``!name``."""
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
    """Replaces markup by its text and puts code between private characters."""
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
    return _EDGE.sub("", text).replace(_SPACE, " ").replace(_POISON, "")


def _sentences(text: str, section: str) -> Iterator[Sentence]:
    for marked in sentences(text):
        if _POISON not in marked and _is_prose(sentence := _unmark(marked, section)):
            yield sentence


def _unmark(marked: str, section: str) -> Sentence:
    """Returns a sentence without BEGIN and END; its spans are the code that was between them."""
    pieces: list[str] = []
    spans: list[tuple[int, int]] = []
    length = 0
    for number, piece in enumerate(_EDGE.split(marked)):
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
    """Returns whether a sentence reads as English; code inside spans does not count."""
    text = sentence.text
    if not 12 <= len(text) <= 600 or not text.isprintable():
        return False
    outside = _outside(sentence)
    words = text.split()
    if not 3 <= len(words) <= 80 or _REFUSED.search(outside):
        return False
    if not (
        text[0].isalnum() or text[0] in "\"'([" or (sentence.spans and sentence.spans[0][0] == 0)
    ):
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
