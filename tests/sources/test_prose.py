"""Prose is kept as a reader sees it; code, tables and markup are dropped."""

import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.sources._docstrings import docstrings
from stages.sources._prose import SECTIONS, Prose, prose

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


def by_section(read: Prose) -> dict[str, list[str]]:
    return {
        section: [s.text for s in read.sentences if s.section == section]
        for section in ("", *SECTIONS)
        if any(s.section == section for s in read.sentences)
    }


@pytest.mark.parametrize(
    ("docstring", "sections", "types"),
    [
        (
            NUMPY,
            {
                "body": ["It uses numpy.linalg, e.g. for the solve of it."],
                "params": [POINTS, "They may be in any order.", REPEATED],
                "notes": ["The fit is stable."],
            },
            ["array-like of shape (n, 2)", "bool, default=True"],
        ),
        (
            GOOGLE,
            {
                "body": ["It is straight.", "The line has no end."],
                "params": [POINTS, REPEATED, "How wide the line is drawn."],
            },
            ["list[Point]", "bool, optional, defaults to True"],
        ),
        (SPHINX, {"params": [POINTS, REPEATED]}, ["list", "bool"]),
    ],
    ids=["numpy", "google", "sphinx"],
)
def test_prose_of_sections_and_parameters(docstring, sections, types) -> None:
    read = prose(docstring)
    assert by_section(read) == IN_ALL | sections
    assert [*read.parameters] == [*zip(types, [POINTS, REPEATED], strict=True)]


@pytest.mark.parametrize(
    "block",
    [
        ">>> x = fit(1)\nThe fitted line is printed here.",
        "Called like this::\n\n    The code that is indented here.",
        ".. code-block:: python\n   :linenos:\n\n   The code that is indented here.",
        "```python\nThe code between two fences.\n```",
        "=====  =====\nThe    first table of all\n=====  =====",
        "+-----+\n| The cell of a table. |\n+-----+",
        "| Name of it | Meaning of it |",
        ".. [1] A paper that is cited here.\n   The second line of it.",
        ".. A comment that nobody reads.",
        "See https://example.org for all the rest of it.",
        "{A placeholder}",
        "The value of `\\frac{a}{b}` is not a sentence for us.",
        "x = fit(points) + other(points)[0]",
        "",
    ],
)
def test_prose_drops_code_tables_and_markup(block: str) -> None:
    read = prose(f"Before it stands this sentence.\n\n{block}\n\nBehind it stands this sentence.")
    texts = [s.text for s in read.sentences if s.text != "Called like this:"]
    assert texts == ["Before it stands this sentence.", "Behind it stands this sentence."]


def test_prose_has_code_spans_where_the_markup_was() -> None:
    read = prose(
        "Call ``fit(x, y)`` of :class:`~lib.Model`, `Model.get`_ or [`Pipe`] as in the `guide"
        " <https://example.org>`_ and **never** [the other](https://example.org)."
    )
    (sentence,) = read.sentences
    assert sentence.text == (
        "Call fit(x, y) of Model, Model.get or Pipe as in the guide and never the other."
    )
    assert [sentence.text[a:b] for a, b in sentence.spans] == ["fit(x, y)", "Model", "Pipe"]


ADMONITION = "Fit a line to it.\n\n.. note::\n    It is slow for many.\n\n.. versionadded:: 2"
TERMS = """These attributes together control it:

  width (default: 70)
    the width of all
  height of it
    the height of all"""
OF_TERMS = ["These attributes together control it:", "the width of all", "height of it"]


@pytest.mark.parametrize(
    ("text", "sections"),
    [
        (
            "It gives the value. `x` is left as it was.",
            {"summary": ["It gives the value."], "body": ["x is left as it was."]},
        ),
        (ADMONITION, {"summary": ["Fit a line to it."], "notes": ["It is slow for many."]}),
        (TERMS, {"summary": OF_TERMS[:1], "body": [*OF_TERMS[1:], "the height of all"]}),
    ],
    ids=["begins with code", "admonition", "terms"],
)
def test_prose_of_code_admonitions_and_terms(text: str, sections: dict[str, list[str]]) -> None:
    assert by_section(prose(text)) == sections


@given(st.text(alphabet="ab `*:\n->=|.[]()_\\$<A1#{}~\t", max_size=200))
def test_prose_refuses_no_docstring_and_keeps_no_markup(text: str) -> None:
    for sentence in prose(text).sentences:
        assert sentence.text.isprintable() and "`" not in sentence.text
        assert all(sentence.text[a:b].strip() for a, b in sentence.spans)
        assert all(0 <= a < b <= len(sentence.text) for a, b in sentence.spans)


def test_prose_of_the_standard_library_is_english() -> None:
    source = Path(str(textwrap.__file__)).read_bytes()
    texts = [s.text for text in docstrings(source) for s in prose(text).sentences]
    assert "Wrap a single paragraph of text, returning a list of wrapped lines." in texts
    assert "Entirely blank lines are normalized to a newline character." in texts
    assert 20 < len(texts) < 60
