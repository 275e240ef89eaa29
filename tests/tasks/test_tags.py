"""Equal spans have equal tags, whatever the scheme."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.tasks._tags import Form, Scheme, to_bio

Span = tuple[str, int]  # its type and its number of words; the type "" marks no span
SPANS = st.lists(st.tuples(st.sampled_from(["", "PER", "LOC"]), st.integers(1, 4)), max_size=6)
AS_BIOES = {"bilou": str.maketrans("SE", "UL"), "bmes": str.maketrans("I", "M")}


def tags(spans: list[Span], scheme: Scheme) -> list[str]:
    written: list[str] = []
    before = ""
    for type, length in spans:
        for i in range(length):
            first, last = i == 0, i == length - 1
            match scheme:
                case "bio":
                    letter = "B" if first else "I"
                case "iob1":
                    letter = "B" if first and type == before else "I"
                case _:
                    letter = "S" if first and last else "B" if first else "E" if last else "I"
                    letter = letter.translate(AS_BIOES.get(scheme, {}))
            written.append(f"{letter}-{type}" if type else "O")
        before = type
    return written


FORMS: list[tuple[Form, Callable[[str], str]]] = [
    ("as_is", str),
    ("prefix", lambda tag: tag[:1].lower() + tag[1:]),
    ("prefix", lambda tag: "0" if tag == "O" else tag.replace("-", "_")),
    ("suffix", lambda tag: "-".join(reversed(tag.split("-")))),
    ("suffix", lambda tag: "_".join(reversed(tag.split("-")))),
]


@given(SPANS, st.sampled_from(["bio", "iob1", "bioes", "bilou", "bmes"]))
def test_to_bio_of_any_scheme_and_form_has_the_same_spans(
    spans: list[Span], scheme: Scheme
) -> None:
    plain, expected = tags(spans, scheme), tags(spans, "bio")
    for form, write in FORMS:
        assert to_bio([write(tag) for tag in plain], scheme, form) == expected
    assert to_bio(expected, "iob1") == expected


def test_to_bio_reads_types_alone_as_spans() -> None:
    expected = ["B-PER", "I-PER", "O", "B-LOC", "B-PER"]
    assert to_bio(["PER", "PER", "O", "I-LOC", "PER"], "io") == expected


@pytest.mark.parametrize(
    ("written", "scheme", "message"),
    [
        (["DET"], "iob1", "'DET' is no tag of iob1"),
        (["E-PER"], "iob1", "'E-PER' is no tag of iob1"),
        (["L-PER"], "bioes", "which has O, B-TYPE, I-TYPE, E-TYPE, S-TYPE"),
        (["B-PER", "E-LOC"], "bioes", "E-LOC cannot follow B-PER"),
        (["O", "I-PER"], "bioes", "I-PER cannot follow O"),
        (["B-PER"], "bioes", "O cannot follow B-PER"),
    ],
)
def test_to_bio_refuses_what_a_scheme_has_not(written, scheme: Scheme, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        to_bio(written, scheme)
