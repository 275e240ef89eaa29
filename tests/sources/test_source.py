"""The split of a document depends on its key alone; a text of any length is read in pieces."""

import re
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.kinds._plain_text import folded
from stages.sources import _source
from stages.sources._sentences import sentences
from stages.sources._source import folded_pieces, one_spaced, sentences_of, split_of


def test_split_of_draws_eight_one_one() -> None:
    counts = Counter(split_of(f"package/module_{i}.py") for i in range(10_000))
    assert abs(counts["train"] - 8000) < 150
    assert abs(counts["validation"] - 1000) < 120 and abs(counts["test"] - 1000) < 120


def test_split_of_never_changes() -> None:
    drawn = {key: split_of(key) for key in "abcdefghijklmnopqrst"}
    assert [key for key, split in drawn.items() if split == "test"] == ["e"]
    assert [key for key, split in drawn.items() if split == "validation"] == ["m", "n"]


# Parts that end sentences, parts that do not, and signs around them.
PARTS = ["One", "two", "A", "b", "3", "ß", "É", "Mr", "e.g", "etc. ", ". ", " . ", *".!?'\"”“()]"]
PARTS += [" ", "  ", "\t", "\n", "\n \n", "\xa0", "\x1c", "\u2028"]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=60).map("".join)


@pytest.fixture(params=[1, 3, 10], scope="module")
def pieces(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_source, "_PIECE", request.param)
        yield


@pytest.mark.usefixtures("pieces")
@given(TEXTS)
def test_sentences_of_pieces_are_those_of_the_whole(text: str) -> None:
    paragraphs = [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text)]
    assert sentences_of(text) == [s for paragraph in paragraphs for s in sentences(paragraph)]


@pytest.mark.usefixtures("pieces")
@given(TEXTS)
def test_one_spaced_and_split_of_pieces_are_those_of_the_whole(text: str) -> None:
    assert "".join(one_spaced(text)) == " ".join(text.split())
    assert split_of(folded_pieces(text)) == split_of(folded(text))


def test_sentences_of_a_long_sentence_are_searched_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = []

    def counted(text: str) -> Iterator[str]:
        read.append(len(text))
        return sentences(text)

    monkeypatch.setattr(_source, "_PIECE", 100)
    monkeypatch.setattr(_source, "sentences", counted)
    text = "no end of it " * 10_000
    assert sentences_of(text) == [text.strip()]
    assert sum(read) < 4 * len(text)
