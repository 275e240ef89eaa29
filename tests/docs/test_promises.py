"""Promises of pages that are true on a CPU alone."""

import re

from tests.docs.pages import pages, text_of

EQUAL_BITS = re.compile(r"bit\s+for\s+bit|byte-identical|the same bytes")


def test_promises_of_equal_bits_name_the_cpu() -> None:
    """On CUDA some gradients are summed in no fixed order."""
    promises = [
        part
        for page in pages()
        if page.parent.name == "docs" or page.name == "README.md"
        for part in re.split(r"\n\s*\n|\n- ", text_of(page))
        if EQUAL_BITS.search(part)
    ]
    assert len(promises) >= 4
    for promise in promises:
        assert "CPU" in promise, promise
