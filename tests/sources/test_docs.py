"""Sentences of documentation are kept as a reader sees them, without code, tables and markup.
Labels are the authors' markup, and the text does not reveal them."""

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.sources._docs import Sentence, docstrings, prose, tagged, with_section

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
