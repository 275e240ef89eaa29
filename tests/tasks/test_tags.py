"""Equal spans have equal tags, whatever the scheme."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.tasks._tags import Scheme, to_bio, written_as

Span = tuple[str, int]  # its type and its number of words; the type "" marks no span
SPANS = st.lists(st.tuples(st.sampled_from(["", "PER", "LOC"]), st.integers(1, 4)), max_size=6)
AS_BIOES = {"bilou": str.maketrans("SE", "UL"), "bmes": str.maketrans("I", "M")}


def tags(spans: list[Span], scheme: Scheme) -> list[str]:
    written, before = list[str](), ""
    for type, length in spans:
        for i in range(length):
            first, last = i == 0, i == length - 1
            letter = "S" if first and last else "B" if first else "E" if last else "I"
            if scheme in ("bio", "iob1"):
                letter = "B" if first and (scheme == "bio" or type == before) else "I"
            letter = letter.translate(AS_BIOES.get(scheme, {}))
            written.append(f"{letter}-{type}" if type else "O")
        before = type
    return written


@given(SPANS, st.sampled_from(["bio", "iob1", "bioes", "bilou", "bmes"]))
def test_to_bio_of_any_scheme_has_the_same_spans(spans: list[Span], scheme: Scheme) -> None:
    expected = tags(spans, "bio")
    assert to_bio(tags(spans, scheme), scheme) == to_bio(expected, "iob1") == expected


def test_to_bio_reads_types_alone_as_spans() -> None:
    expected = ["B-PER", "I-PER", "O", "B-LOC", "B-PER"]
    assert to_bio(["PER", "PER", "O", "I-LOC", "PER"], "io") == expected


@pytest.mark.parametrize(
    ("written", "scheme", "message"),
    [
        (["DET"], "iob1", "'DET' is no tag of iob1"),
        (["L-PER"], "bioes", "'L-PER' is no tag of bioes"),
        (["B-PER", "E-LOC"], "bioes", "E-LOC cannot follow B-PER"),
        (["O", "I-PER"], "bioes", "I-PER cannot follow O"),
        (["B-PER"], "bilou", "O cannot follow B-PER"),
    ],
)
def test_to_bio_refuses_what_a_scheme_has_not(written, scheme: Scheme, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        to_bio(written, scheme)


@pytest.mark.parametrize("other", ["PER-B", "B_PER", "b-PER", "B:PER", "B", "(PER"])
def test_written_as_names_tags_in_other_forms(other: str) -> None:
    assert written_as([["B-PER", "O", "I-PER"]] * 9 + [[other]]).odd == [other]
    assert written_as([[other, "O"]]).scheme is None
