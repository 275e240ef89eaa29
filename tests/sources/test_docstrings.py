"""Strings that document a file are returned, other strings are not."""

import pytest

from stages.sources._docstrings import docstrings

SOURCE = b'''
"""The module."""
LIMIT = 3
"""An attribute of the module."""
NAME = """not documentation at all"""

class Shelf:
    """The class."""
    width: int = 1
    """An attribute of the class."""

    def read(self):
        """The method."""
        """a string in a function"""
        def inner():
            """The function in it."""

if LIMIT:
    """a string under if"""
    async def wait(): "The coroutine."
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


def test_docstrings_are_in_their_order() -> None:
    assert [text.strip() for text in docstrings(SOURCE)] == [
        "The module.",
        "An attribute of the module.",
        "The class.",
        "An attribute of the class.",
        "The method.",
        "The function in it.",
        "The coroutine.",
        "The other branch.",
        "The documentation of what is written in C.",
        "The documentation of its method.",
        "The determinant, {note}.",
    ]


@pytest.mark.parametrize(
    "source", [b"print 'Python 2'", b"# -*- coding: nonsense -*-\n'''text'''", b"\x00"]
)
def test_docstrings_of_what_cannot_be_parsed_are_none(source: bytes) -> None:
    assert docstrings(source) == []
