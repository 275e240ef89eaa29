"""Makes labelled examples from documentation, with the labels taken from its markup.

Each annotation is a function from the prose of files to ``Annotated`` rows with unique keys.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from stages.sources._prose import SECTIONS, Prose, Sentence

Row = dict[str, Any]


class File(NamedTuple):
    """The prose of a source file, one Prose for each docstring."""

    path: str  # relative to the folder that the package is installed in
    package: str  # as params.yaml names it
    docs: list[Prose]


class Annotated(NamedTuple):
    """A labelled row; if the annotation masks words, ``original`` has the inputs unmasked."""

    key: str
    row: Row
    original: Row | None = None


def code_spans(files: Iterable[File], packages: list[str]) -> Iterator[Annotated]:
    """Labels a sentence's words: BIO tags of one type, CODE, mark the words in code markup.

    Only sentences with 5 to 40 words, at least one span of code and more than half of their words
    outside of spans are used.
    """
    for file in files:
        for number, sentence in enumerate(s for doc in file.docs for s in doc.sentences):
            if sentence.spans and (row := tagged(sentence)):
                yield Annotated(f"{file.path}:{number}", row)


def parameter_types(files: Iterable[File], packages: list[str]) -> Iterator[Annotated]:
    """Labels a parameter's description, in which words for types are masked, with the parameter's
    type."""
    for file in files:
        parameters = [p for doc in file.docs for p in doc.parameters]
        for number, parameter in enumerate(parameters):
            label = type_label(parameter.type)
            if label and len(parameter.description.split()) >= 3:
                row = {"text": mask_types(parameter.description), "label": label}
                original = {"text": parameter.description}
                yield Annotated(f"{file.path}:{number}", row, original)


def sections(files: Iterable[File], packages: list[str]) -> Iterator[Annotated]:
    """Labels a sentence with the section of the docstring that it is in.

    Only sentences of at least five words are used, and only from docstrings with sections, because
    without sections the body also describes parameters, return values and errors.
    """
    for file in files:
        number = 0
        for doc in file.docs:
            structured = any(s.section in ("params", "returns", "raises") for s in doc.sentences)
            for sentence in doc.sentences:
                number += 1
                long = len(sentence.text.split()) >= 5
                if structured and long and sentence.section in SECTIONS:
                    row = {"text": sentence.text, "label": sentence.section}
                    yield Annotated(f"{file.path}:{number}", row)


def libraries(files: Iterable[File], packages: list[str]) -> Iterator[Annotated]:
    """Labels a docstring's first sentence, in which names of packages are masked, with its
    package."""
    names = _package_names(packages)
    for file in files:
        for number, doc in enumerate(file.docs):
            first = doc.sentences[0] if doc.sentences else None
            if first and first.section == "summary" and len(first.text.split()) >= 4:
                row = {"text": names.sub("library", first.text), "label": file.package}
                yield Annotated(f"{file.path}:{number}", row, {"text": first.text})


ANNOTATIONS: dict[str, Callable[[Iterable[File], list[str]], Iterator[Annotated]]] = {
    "code_spans": code_spans,
    "parameter_types": parameter_types,
    "sections": sections,
    "libraries": libraries,
}


# code_spans ----------------------------------------------------------------------------------

_OPENING, _CLOSING = "([{\"'“‘", ")]}\"'”’.,;:!?"
_PARTNER = {")": "(", "]": "[", "}": "{"}
_CHUNK = re.compile(r"\S+")


def words(text: str) -> list[tuple[int, int]]:
    """Returns the (begin, end) of each word. Words are separated by blanks, and each punctuation
    mark at either end of a word is a word of its own.

    Code markup is ignored, so that the split reveals no tag: ``f(x),`` is ``f(x)`` and ``,``
    whether or not it is marked up. A closing bracket stays with a word that has the opening one.
    """
    places = []
    for chunk in _CHUNK.finditer(text):
        begin, end = chunk.span()
        tail: list[tuple[int, int]] = []
        while end - begin > 1 and text[begin] in _OPENING:
            places.append((begin, begin + 1))
            begin += 1
        while end - begin > 1 and text[end - 1] in _CLOSING:
            partner = _PARTNER.get(text[end - 1], "")
            inside = text[begin:end]
            if partner and inside.count(partner) >= inside.count(text[end - 1]):
                break
            tail.append((end - 1, end))
            end -= 1
        places += [(begin, end), *reversed(tail)]
    return places


def tagged(sentence: Sentence) -> Row | None:
    """Returns a sentence's words and BIO tags, or None if a span cuts a word, if there are too few
    or too many words, or if too many of them are in spans."""
    places = words(sentence.text)
    if not 5 <= len(places) <= 40:
        return None
    tags = ["O"] * len(places)
    for begin, end in sentence.spans:
        inside = [i for i, (a, b) in enumerate(places) if a < end and b > begin]
        if not inside or places[inside[0]][0] != begin or places[inside[-1]][1] != end:
            return None
        for i in inside:
            tags[i] = "I-CODE"
        tags[inside[0]] = "B-CODE"
    if tags.count("O") <= len(tags) / 2:
        return None
    return {"words": [sentence.text[a:b] for a, b in places], "tags": tags}


# parameter_types -----------------------------------------------------------------------------

_TYPE_NAMES = {
    "bool": "bool boolean",
    "int": "int integer",
    "float": "float double",
    "str": "str string",
    "callable": "callable function",
    "dict": "dict dictionary mapping",
    "list": "list tuple sequence iterable",
    "array": "array ndarray tensor array-like array_like arraylike matrix series dataframe"
    " longtensor floattensor booltensor",
}
_LABEL_OF = {name: label for label, row in _TYPE_NAMES.items() for name in row.split()}
# A word is masked if one of its parts is a short name of a type, or if it contains a long name.
_SHORT = re.compile(r"(bool|int|float|double|str|dict|list|func|fn)s?\d*|u?int\d*|nd")
_LONG = re.compile(
    r"boolean|integer|floating|string|callable|function|dictionar|mapping|tuple|sequence|iterable"
    r"|array|tensor|matrix|matrices|series|dataframe|callback"
)
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_PART = re.compile(r"[A-Z]?[a-z]+\d*|[A-Z]+(?![a-z])\d*")
MASK = "value"


def type_label(type: str) -> str | None:
    """Returns the label of a parameter's type; None for a union, a choice or an unlisted type.

    ``list of str`` is a list; ``int, optional`` and ``Optional[int]`` are an int.
    """
    text = re.sub(r"\([^()]*\)", " ", type.replace("`", "").replace("*", "")).lower()
    text = re.sub(r"\boptional\[(.*)\]", r"\1", text)
    text = re.sub(r"\b(optional|required|keyword[- ]only|default\w*\b.*)", " ", text)
    text = re.sub(r"\[.*\]|\b(of|with|from|shape)\b.*|[\"']", " ", text)
    labels = set()
    for part in re.split(r"[|,/]|\bor\b|\band\b", text):
        name = " ".join(part.split()).strip(" .:~=")
        name = name.removeprefix("a ").removeprefix("an ").rsplit(".", 1)[-1]
        if name not in ("", "none"):
            labels.add(_LABEL_OF.get(name, _LABEL_OF.get(name.removesuffix("s"))))
    return labels.pop() if len(labels) == 1 else None


def names_type(word: str) -> bool:
    """Returns whether a word reveals a type: ``strings``, ``int64``, ``input_list``,
    ``FloatTensor``."""
    if _LONG.search(word.lower()):
        return True
    return any(_SHORT.fullmatch(part.lower()) for part in _PART.findall(word))


def mask_types(text: str) -> str:
    return _IDENTIFIER.sub(lambda m: MASK if names_type(m[0]) else m[0], text)


# libraries -----------------------------------------------------------------------------------

_ALIASES = {
    "torch": "pytorch aten caffe2 libtorch",
    "transformers": "huggingface hugging transformer",
    "scikit-learn": "sklearn scikit",
    "numpy": "np ndarray",
    "pandas": "pd",
    "sqlalchemy": "sqla",
    "matplotlib": "mpl pyplot",
    "networkx": "nx",
}


def _package_names(packages: list[str]) -> re.Pattern[str]:
    """Returns a pattern that matches words with the name of a package in them. A name of at most
    three letters must be the whole word."""
    names = {n.lower() for p in packages for n in [p, *_ALIASES.get(p, "").split()]}
    long = "|".join(re.escape(n) for n in sorted(names) if len(n) > 3)
    short = "|".join(re.escape(n) for n in sorted(names) if len(n) <= 3) or r"(?!)"
    return re.compile(rf"\b[\w.-]*(?:{long})[\w.-]*\b|\b(?:{short})\b", re.IGNORECASE)
