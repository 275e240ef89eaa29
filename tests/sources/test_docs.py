"""Sentences of documentation are kept as a reader sees them, without code, tables and markup, and
are always the same; labels are the authors' markup, which the text does not reveal."""

import inspect
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.core.study_file import load
from stages.sources._docs import Sentence, docstrings, prose, tagged, with_section
from stages.sources._source import SOURCES, Labelled, split_of
from stages.sources.installed_docs import InstalledDocs
from stages.tasks._task import TASKS
from tests.installed_package import install, module
from tests.smoke import ROOT

pytestmark = pytest.mark.slow
SOURCE = b'''
"""The whole module."""
LIMIT = 3
NAME = """not documentation at all"""

class Shelf:
    """The class of shelves."""
    width: int = 1

    def read(self):
        """The method of it."""
        def inner():
            """The function in it."""

if LIMIT:
    async def wait(): "The whole coroutine."
else:
    def wait(): """The other branch."""

add_newdoc("place", "name", """
    The documentation of what is written in C.
""")
add_newdoc("place", "name", ("method", "The documentation of its method."))
det = _add_docstr(_C.det, r"""
    The determinant, {note}.
""".format(note="x"))
'''


def test_docstrings_are_in_their_order_and_none_are_read_of_what_cannot_be_parsed() -> None:
    assert docstrings(b"print 'Python 2'") == []
    assert docstrings(SOURCE) == [
        "The whole module.",
        "The class of shelves.",
        "The method of it.",
        "The function in it.",
        "The whole coroutine.",
        "The other branch.",
        "The documentation of what is written in C.",
        "The documentation of its method.",
        "The determinant, {note}.",
    ]


NUMPY = """
    fit(X) -> Tensor

    Fit a line to the points. It uses `numpy.linalg`,
    e.g. for the :meth:`~Model.solve` of it.

    Parameters
    ----------
    X : array-like of shape (n, 2)
        The points that the line is fitted to.

        They may be in any order.
    deep, wide : bool, default=True
        Whether the fit is repeated *often*.

    Returns
    -------
    line : Line
        The line through the points.

    Raises
    ------
    ValueError
        If there is only one point.

    See Also
    --------
    other : A function that does something else.

    Notes
    -----
    The fit is stable [1]_.

    References
    ----------
    .. [1] Somebody, "A paper", 1999.
    """

GOOGLE = """Fit a line to the points.

    It is straight.

    Args:
        points (list[Point]): The points that
            the line is fitted to.
        deep (`bool`, *optional*, defaults to `True`):
            Whether the fit is repeated often.
        wide: How wide the line is drawn.

    Returns:
        The line through the points.

    Raises:
        ValueError: If there is only one point.

    The line has no end.
    """

SPHINX = """Fit a line to the points.

    :param points: The points that the line
        is fitted to.
    :type points: list
    :param bool deep: Whether the fit is repeated often.
    :return: The line through the points.
    :rtype: Line
    :raises ValueError: If there is only one point.
    """

POINTS, REPEATED = "The points that the line is fitted to.", "Whether the fit is repeated often."
IN_ALL = {
    "summary": ["Fit a line to the points."],
    "returns": ["The line through the points."],
    "raises": ["If there is only one point."],
}


def by_section(docstring: str) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    for sentence in prose(docstring):
        sections.setdefault(sentence.section, []).append(sentence.text)
    return sections


@pytest.mark.parametrize(
    ("docstring", "sections"),
    [
        (
            NUMPY,
            {
                "body": ["It uses numpy.linalg, e.g. for the solve of it."],
                "params": [POINTS, "They may be in any order.", REPEATED],
                "notes": ["The fit is stable."],
            },
        ),
        (
            GOOGLE,
            {
                "body": ["It is straight.", "The line has no end."],
                "params": [POINTS, REPEATED, "How wide the line is drawn."],
            },
        ),
        (SPHINX, {"params": [POINTS, REPEATED]}),
    ],
    ids=["numpy", "google", "sphinx"],
)
def test_prose_has_the_sections_of_each_convention(docstring: str, sections: dict) -> None:
    assert by_section(inspect.cleandoc(docstring)) == IN_ALL | sections


def test_prose_without_lists_of_parameters_has_no_sections() -> None:
    text = "Fit a line to it.\n\n.. note::\n    It is slow for many.\n\n.. versionadded:: 2"
    assert by_section(text) == {"": ["Fit a line to it.", "It is slow for many."]}
    assert not any(map(with_section, prose(text)))


@pytest.mark.parametrize(
    "block",
    [
        ">>> x = fit(1)\nThe fitted line is printed here.",
        "Called like this::\n\n    The code that is indented here.",
        "```python\nThe code between two fences.\n```",
        "=====  =====\nThe    first table of all\n=====  =====",
        "+-----+\n| The cell of a table. |\n+-----+",
        ".. [1] A paper that is cited here.\n   The second line of it.",
        "See https://example.org for all the rest of it.",
        "The value of `\\frac{a}{b}` is not a sentence for us.",
        "x = fit(points) + other(points)[0]",
    ],
)
def test_prose_drops_code_tables_and_markup(block: str) -> None:
    read = prose(f"Before it stands this sentence.\n\n{block}\n\nBehind it stands this sentence.")
    texts = [s.text for s in read if s.text != "Called like this:"]
    assert texts == ["Before it stands this sentence.", "Behind it stands this sentence."]


def test_prose_has_code_spans_where_the_markup_was() -> None:
    read = prose(
        "Call ``fit(x, y)`` of :class:`~lib.Model`, `Model.get`_ or [`Pipe`] as in the `guide"
        " <https://example.org>`_ and **never** [the other](https://example.org)."
    )
    (sentence,) = read
    assert sentence.text == (
        "Call fit(x, y) of Model, Model.get or Pipe as in the guide and never the other."
    )
    assert [sentence.text[a:b] for a, b in sentence.spans] == ["fit(x, y)", "Model", "Pipe"]


@given(st.text(alphabet="ab `*:\n->=|.[]()_\\$<A1#{}~\t", max_size=200))
def test_prose_refuses_no_docstring_and_keeps_no_markup(text: str) -> None:
    for sentence in prose(text):
        assert sentence.text.isprintable() and "`" not in sentence.text
        assert all(sentence.text[a:b].strip() for a, b in sentence.spans)
        assert all(0 <= a < b <= len(sentence.text) for a, b in sentence.spans)


@pytest.mark.parametrize("span", [(5, 9), (29, 33)])
def test_words_do_not_depend_on_markup(span: tuple[int, int]) -> None:
    row = tagged(Sentence('Call f(x), then (see "g[0]") stop.', "", [span]))
    assert row is not None
    assert " ".join(row["words"]) == 'Call f(x) , then ( see " g[0] " ) stop .'


def test_tagged_words_are_those_of_code_spans() -> None:
    text = "Pass ``axis=0, keep=True`` to `numpy.sum`, which gives ``None``."
    (sentence,) = prose(text)
    row = tagged(sentence)
    assert row is not None
    assert " ".join(row["words"]) == "Pass axis=0 , keep=True to numpy.sum , which gives None ."
    assert " ".join(row["tags"]) == "O B-CODE I-CODE I-CODE O B-CODE O O O B-CODE O"


def test_tagged_leaves_out_cut_words_and_sentences_of_little_prose() -> None:
    cases: list[tuple[str, list[tuple[int, int]]]] = [
        ("The many Tensors of this model.", [(9, 15)]),  # a span cuts a word
        ("See the Tensor.", [(8, 14)]),  # too short
        ("use a b c d or e", [(4, 11), (15, 16)]),  # hardly a word outside
        ("word " * 40 + "Tensor.", [(200, 206)]),  # too long
    ]
    for text, spans in cases:
        assert tagged(Sentence(text, "body", spans)) is None


# Installed packages

Installer = Callable[..., None]
CLASSIFICATION = TASKS["classification"]


def rooms(number: int, topic: str = "books") -> dict[str, str]:
    return {f"shelf/room_{i}.py": module(topic, i) for i in range(number)}


@pytest.fixture
def shelf(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Installer:
    """Installs files as the package ``shelf``."""
    return partial(install, folder / "site", monkeypatch)


def source(**settings: Any) -> InstalledDocs:
    settings = {"path": "requirements.lock", "packages": ["shelf"], **settings}
    entry = {"name": "installed_docs", **settings}
    return cast(InstalledDocs, SOURCES.build(entry, where="corpora.all.source"))


def annotated(annotation: str, **settings: Any) -> list[Labelled]:
    return list(source(annotation=annotation, **settings).examples(CLASSIFICATION))


def test_installed_docs_import_nothing(shelf: Installer) -> None:
    shelf(rooms(20))  # importing them would end this process
    before = set(sys.modules)
    assert list(source().documents()) and annotated("sections")
    assert not {name for name in set(sys.modules) - before if name.startswith("shelf")}


def test_documents_are_the_prose_of_files(shelf: Installer) -> None:
    shelf({"shelf/room_3.py": module("books", 3)})
    assert source().versions() == {"shelf": "1.2"}
    (document,) = source().documents()
    assert document.id == "shelf/room_3.py"
    assert document.split == split_of("shelf/room_3.py")
    assert document.sentences == [
        "Keep the books of shelf 3 in order, whatever a reader takes away.",
        "Sort the books on shelf 3 by their titles.",
        "A call of order_3 leaves the books of room 3 where they are.",
        "A list of strings, the titles of the books in room 3.",
        "Whether the last title of room 3 comes first.",
        "How many of the books are kept in room 3 at most.",
        "The titles of the books in the order of room 3.",
        "If room 3 has no books that could be sorted.",
        "The sort of the books in room 3 is stable.",
    ]


def test_a_package_is_read_once_and_again_when_a_file_of_it_has_changed(
    shelf: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf(rooms(3))
    first = [*source().documents()]
    with monkeypatch.context() as patched:
        patched.setattr("stages.sources.installed_docs.docstrings", lambda _: pytest.fail())
        assert [*source().documents()] == first
    shelf(rooms(3) | {"shelf/room_0.py": module("maps", 0)})
    assert [*source().documents()] != first


def test_documents_keep_their_split_when_files_are_added_and_are_not_of_tests(shelf) -> None:
    shelf(rooms(20))
    few = {d.id: d.split for d in source().documents()}
    more = {f"shelf/a_{i}.py": module("maps", i) for i in range(9)}
    copies = {f"shelf/{name}/a.py": module(name, 1) for name in ("tests", "_vendor", "externals")}
    shelf(rooms(20) | more | copies)
    many = {d.id: d.split for d in source().documents()}
    assert few.keys() == {*rooms(20)} and many.keys() == {*rooms(20), *more}
    assert few.items() <= many.items()


def test_documents_have_a_sentence_once_and_rather_in_test(shelf: Installer) -> None:
    same = dict.fromkeys(rooms(60), module("books", 0))
    assert {split_of(file) for file in same} == {"train", "validation", "test"}
    shelf(same)
    documents = list(source().documents())
    counts = Counter(s for d in documents for s in d.sentences)
    assert set(counts.values()) == {1}
    assert [d.split for d in documents] == ["test"]


def test_examples_of_a_class_are_as_many_as_the_median_and_no_input_comes_twice(
    shelf: Installer,
) -> None:
    shelf(rooms(90))
    examples = annotated("sections")
    counts = Counter(e.row["label"] for e in examples if e.split == "train")
    assert set(counts) == {"summary", "body", "params", "returns", "raises", "notes"}
    assert max(counts.values()) == counts["returns"]  # params has three times as many
    inputs = {(e.split, CLASSIFICATION.same_input(e.row)) for e in examples}
    assert len(inputs) == len(examples)


def test_examples_of_code_spans_have_bio_tags_and_clusters(shelf: Installer) -> None:
    shelf(rooms(20))
    shelf({"desk/a.py": module("pens", 77)}, name="desk")
    packages = source(annotation="code_spans", packages=["shelf", "desk"])
    examples = [*packages.examples(TASKS["tagging"])]
    assert {tag for e in examples for tag in e.row["tags"]} == {"B-CODE", "O"}
    assert {e.cluster for e in examples} == {"shelf", "desk"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"packages": ["numpyy"]}, "all.source: packages: not installed: unknown 'numpyy'; did yo"),
        ({"packages": ["numpy", "numpy"]}, "packages: 'numpy' is listed twice"),
        ({"path": "nowhere.lock"}, "path: no such file or folder: nowhere.lock"),
        ({}, "annotation: a task needs one of code_spans, "),
        ({"packages": ["shelf"], "annotation": "sections"}, "'shelf' is installed, but without"),
    ],
)
def test_installed_docs_name_settings_that_are_wrong(
    settings: dict, message: str, shelf: Installer
) -> None:
    shelf({"shelf/data.txt": "no source"})
    with pytest.raises(ValueError) as error:
        list(source(**{"packages": ["numpy"], **settings}).examples(CLASSIFICATION))
    assert message in str(error.value)


def test_packages_of_every_study_have_one_version_in_the_lock() -> None:
    """Every machine and every Python then has the same documentation."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pinned = [line.partition("==")[0] for line in lines if "==" in line]
    for path in [ROOT / "params.yaml", *(ROOT / "studies").glob("*.yaml")]:
        study = load(path)
        entries = [*study.corpora.values(), *study.tasks.values()]
        for package in {p for entry in entries for p in entry.source.get("packages", [])}:
            assert pinned.count(package.replace("_", "-")) == 1, (path.name, package)
