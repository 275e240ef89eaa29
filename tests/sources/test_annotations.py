"""Labels are the authors' markup, and the text does not reveal them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.sources._annotations import (
    File,
    code_spans,
    libraries,
    mask_types,
    names_type,
    parameter_types,
    sections,
    tagged,
    type_label,
    words,
)
from stages.sources._prose import Sentence, prose


def test_words_do_not_depend_on_markup() -> None:
    text = 'Call f(x), then (see "g[0]") stop.'
    assert [text[a:b] for a, b in words(text)] == [
        *("Call", "f(x)", ",", "then", "(", "see", '"', "g[0]", '"', ")", "stop", "."),
    ]


@given(st.text(alphabet="ab ()[]{}.,\"'", max_size=40))
def test_words_are_the_text_without_its_blanks(text: str) -> None:
    places = words(text)
    assert "".join(text[a:b] for a, b in places) == "".join(text.split())
    assert all(b <= a for (_, b), (a, _) in zip(places, places[1:], strict=False))


def spans_of(row: dict) -> list[str]:
    """Returns the words of each tagged span."""
    spans: list[list[str]] = []
    for word, tag in zip(row["words"], row["tags"], strict=True):
        if tag == "B-CODE":
            spans.append([word])
        elif tag == "I-CODE":
            spans[-1].append(word)
    return [" ".join(span) for span in spans]


def test_tags_reconstruct_the_spans() -> None:
    (sentence,) = prose("Pass ``axis=0, keep=True`` to `numpy.sum`, which returns ``None`` then.")[
        0
    ]
    row = tagged(sentence)
    assert row is not None
    assert spans_of(row) == ["axis=0 , keep=True", "numpy.sum", "None"]
    assert row["tags"][0] == "O" and row["words"][-1] == "."


@pytest.mark.parametrize(
    "sentence",
    [
        Sentence("The many Tensors of this model.", "body", [(9, 15)]),  # a span cuts a word
        Sentence("See the Tensor.", "body", [(8, 14)]),  # too short
        Sentence("use a b c d or e", "body", [(4, 11), (15, 16)]),  # hardly a word outside
        Sentence("word " * 40 + "Tensor.", "body", [(200, 206)]),  # too long
    ],
)
def test_sentences_that_are_left_out(sentence: Sentence) -> None:
    assert tagged(sentence) is None


def test_only_sentences_with_code_are_tagged() -> None:
    docs = [prose("No code is in this sentence. But `code` is in this one.")]
    (example,) = code_spans([File("shelf/a.py", "shelf", docs)], ["shelf"])
    assert example[0] == "shelf/a.py:1" and spans_of(example[1]) == ["code"]


@pytest.mark.parametrize(
    ("type", "label"),
    [
        ("bool", "bool"),
        ("bool, optional", "bool"),
        ("bool, default=True", "bool"),
        ("int or None", "int"),
        ("Optional[int]", "int"),
        ("float, optional, defaults to 0.5", "float"),
        ("str, keyword-only", "str"),
        ("dict[str, int]", "dict"),
        ("list of str", "list"),
        ("Sequence[int]", "list"),
        ("tuple or list", "list"),
        ("list of str, optional", "list"),
        ("callable", "callable"),
        ("array_like, shape (n, 2)", "array"),
        ("ndarray of shape (n_samples,) or None", "array"),
        ("torch.FloatTensor of shape (batch, length), optional", "array"),
        ("Tensor", "array"),
        ("int or str", None),
        ("{'left', 'right'}, default: 'left'", None),
        ("Model", None),
        ("", None),
    ],
)
def test_type_labels(type: str, label: str | None) -> None:
    assert type_label(type) == label


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("A list of strings.", "A value of value."),
        ("The int64 tensor or input_list.", "The value value or value."),
        ("A FloatTensor of strength, listed in print.", "A value of strength, listed in print."),
    ],
)
def test_type_words_are_masked(text: str, masked: str) -> None:
    assert mask_types(text) == masked


@given(st.text(alphabet="listrdcafnboe_ LTA0", max_size=60))
def test_no_masked_word_is_left(text: str) -> None:
    assert not any(names_type(word) for word in re.findall(r"[^\W\d]\w*", mask_types(text)))


DOC = """Sort the books of numpy and sklearn by title.

    Parameters
    ----------
    reverse : bool
        A boolean: whether the last title comes first.
    books : list of Book
        The books that are to be sorted.

    Returns
    -------
    list
        The books in the order of their titles.

    Examples
    --------
    This is how one can sort the books.
    """


def test_rows_of_a_docstring() -> None:
    files = [File("shelf/a.py", "shelf", [prose(DOC), prose("Just some text, without sections.")])]
    packages = ["shelf", "numpy", "scikit-learn"]
    assert [row for _, row, _ in parameter_types(files, packages)] == [
        {"text": "A value: whether the last title comes first.", "label": "bool"},
        {"text": "The books that are to be sorted.", "label": "list"},
    ]
    assert [(row["label"], row["text"]) for _, row, _ in sections(files, packages)] == [
        ("summary", "Sort the books of numpy and sklearn by title."),
        ("params", "A boolean: whether the last title comes first."),
        ("params", "The books that are to be sorted."),
        ("returns", "The books in the order of their titles."),
    ]
    assert [row for _, row, _ in libraries(files, packages)] == [
        {"text": "Sort the books of library and library by title.", "label": "shelf"},
        {"text": "Just some text, without sections.", "label": "shelf"},
    ]


def test_masked_texts_come_with_what_stood_there() -> None:
    """A row without a mask has no original."""
    files = [File("shelf/a.py", "shelf", [prose(DOC)])]
    packages = ["shelf", "numpy", "scikit-learn"]
    was = [original for _, _, original in parameter_types(files, packages)]
    assert was == [
        {"text": "A boolean: whether the last title comes first."},
        {"text": "The books that are to be sorted."},
    ]
    assert [original for *_, original in libraries(files, packages)] == [
        {"text": "Sort the books of numpy and sklearn by title."}
    ]
    originals = [original for *_, original in sections(files, packages)]
    assert originals and all(original is None for original in originals)


def test_keys_are_unique() -> None:
    files = [File("shelf/a.py", "shelf", [prose(DOC), prose(DOC)])]
    for annotation in (code_spans, parameter_types, sections, libraries):
        keys = [key for key, *_ in annotation(files, ["shelf"])]
        assert len(set(keys)) == len(keys)


def test_a_span_of_a_sentence_built_by_hand() -> None:
    row = tagged(Sentence("set x to the y value", "body", [(4, 5)]))
    assert row == {
        "words": ["set", "x", "to", "the", "y", "value"],
        "tags": ["O", "B-CODE", "O", "O", "O", "O"],
    }
