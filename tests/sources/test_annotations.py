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
    expected = ["Call", "f(x)", ",", "then", "(", "see", '"', "g[0]", '"', ")", "stop", "."]
    assert [text[a:b] for a, b in words(text)] == expected


@given(st.text(alphabet="ab ()[]{}.,\"'", max_size=40))
def test_words_are_the_text_without_its_blanks(text: str) -> None:
    places = words(text)
    assert "".join(text[a:b] for a, b in places) == "".join(text.split())
    assert all(b <= a for (_, b), (a, _) in zip(places, places[1:], strict=False))


def test_tagged_words_are_those_of_code_spans() -> None:
    text = "Pass ``axis=0, keep=True`` to `numpy.sum`, which gives ``None``."
    (sentence,) = prose(text)[0]
    row = tagged(sentence)
    assert row is not None
    assert " ".join(row["words"]) == "Pass axis=0 , keep=True to numpy.sum , which gives None ."
    assert " ".join(row["tags"]) == "O B-CODE I-CODE I-CODE O B-CODE O O O B-CODE O"


@pytest.mark.parametrize(
    "sentence",
    [
        Sentence("The many Tensors of this model.", "body", [(9, 15)]),  # a span cuts a word
        Sentence("See the Tensor.", "body", [(8, 14)]),  # too short
        Sentence("use a b c d or e", "body", [(4, 11), (15, 16)]),  # hardly a word outside
        Sentence("word " * 40 + "Tensor.", "body", [(200, 206)]),  # too long
    ],
)
def test_tagged_leaves_sentences_out(sentence: Sentence) -> None:
    assert tagged(sentence) is None


def test_code_spans_are_of_sentences_with_code() -> None:
    docs = [prose("No code is in this sentence. But `code` is in this one.")]
    ((key, row, _),) = code_spans([File("shelf/a.py", "shelf", docs)], ["shelf"])
    assert key == "shelf/a.py:1"
    assert [w for w, tag in zip(row["words"], row["tags"], strict=True) if tag != "O"] == ["code"]


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
def test_type_label_of_a_type(type: str, label: str | None) -> None:
    assert type_label(type) == label


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("A list of strings.", "A value of value."),
        ("The int64 tensor or input_list.", "The value value or value."),
        ("A FloatTensor of strength, listed in print.", "A value of strength, listed in print."),
    ],
)
def test_mask_types_masks_words_of_types(text: str, masked: str) -> None:
    assert mask_types(text) == masked


@given(st.text(alphabet="listrdcafnboe_ LTA0", max_size=60))
def test_mask_types_leaves_no_word_of_a_type(text: str) -> None:
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


def test_annotations_of_a_docstring() -> None:
    """A row with masked words comes with its original."""
    files = [File("shelf/a.py", "shelf", [prose(DOC), prose("Just some text, without sections.")])]
    packages = ["shelf", "numpy", "scikit-learn"]
    boolean = "A boolean: whether the last title comes first."
    to_sort = "The books that are to be sorted."
    assert [(row, was) for _, row, was in parameter_types(files, packages)] == [
        ({"text": boolean.replace("boolean", "value"), "label": "bool"}, {"text": boolean}),
        ({"text": to_sort, "label": "list"}, {"text": to_sort}),
    ]
    summary = "Sort the books of numpy and sklearn by title."
    assert [(row["label"], row["text"], was) for _, row, was in sections(files, packages)] == [
        ("summary", summary, None),
        ("params", boolean, None),
        ("params", to_sort, None),
        ("returns", "The books in the order of their titles.", None),
    ]
    masked = "Sort the books of library and library by title."
    without = "Just some text, without sections."
    assert [(row, was) for _, row, was in libraries(files, packages)] == [
        ({"text": masked, "label": "shelf"}, {"text": summary}),
        ({"text": without, "label": "shelf"}, {"text": without}),
    ]


def test_annotations_have_unique_keys() -> None:
    doc = prose(f"{DOC}\n    Call ``sort`` to put all books on the shelf.\n")
    files = [File("shelf/a.py", "shelf", [doc, doc])]
    for annotation in (code_spans, parameter_types, sections, libraries):
        keys = [key for key, *_ in annotation(files, ["shelf"])]
        assert len(set(keys)) == len(keys) >= 2
