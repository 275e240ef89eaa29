"""Contamination, compared with a search that reads every run of words of every document."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.core.artifacts import write_json, write_jsonl
from stages.core.paths import examples
from stages.core.paths import test_originals as originals_of
from stages.evaluation.contamination import TaskTexts, gram_length, searched_texts

WORDS = ("a", "b", "c")  # few words, so that sequences repeat
TEXTS = st.lists(st.sampled_from(WORDS), max_size=18)
Span = tuple[int, int]  # first and last sentence of a match in a document


@st.composite
def tasks_and_documents(draw) -> tuple[list[list[list[str]]], list[list[list[str]]]]:
    """Draws tasks (lists of texts) and documents (lists of sentences), all as lists of words. The
    documents are made of parts of the texts and other words."""
    tasks = draw(st.lists(st.lists(TEXTS, max_size=3), min_size=1, max_size=2))
    texts = [text for task in tasks for text in task] or [[]]
    part = st.tuples(st.sampled_from(texts), st.integers(0, 2), st.integers(0, 2), st.booleans())
    documents = []
    for parts in draw(st.lists(st.lists(part, max_size=4), max_size=3)):
        flat: list[str] = []
        for text, begin, less, other in parts:
            flat += text[begin : len(text) - less] + ["other"] * other
        cuts = sorted(draw(st.lists(st.integers(0, len(flat)), max_size=5)))
        pairs = zip([0, *cuts], [*cuts, len(flat)], strict=True)
        documents.append([flat[i:j] for i, j in pairs])
    return tasks, documents


def spans(text: list[str], n: int, document: list[list[str]]) -> Iterator[Span]:
    """Yields the places in a document of n consecutive words of the text. A text of fewer than 8
    words matches only whole sentences."""
    flat = [(word, i) for i, sentence in enumerate(document) for word in sentence]
    grams = [text[i : i + n] for i in range(len(text) - n + 1)] if n else []
    for start in range(len(flat) - n + 1):
        here = flat[start : start + n]
        if [word for word, _ in here] not in grams:
            continue
        first, last = here[0][1], here[-1][1]
        if len(text) < 8 and sum(document[first : last + 1], []) != text:
            continue
        yield first, last


def rows(tasks: list[list[list[str]]]) -> dict[str, list[list[str]]]:
    """Returns a row for each text, with added case and punctuation."""
    return {
        f"task_{i}": [[", ".join(text).title() + "!"] for text in task]
        for i, task in enumerate(tasks)
    }


def joined(documents: list[list[list[str]]]) -> list[list[str]]:
    return [[" - ".join(sentence) for sentence in document] for document in documents]


@given(tasks_and_documents())
def test_overlap_is_what_a_slow_search_finds(drawn) -> None:
    tasks, documents = drawn

    def occurs(text: list[str], n: int) -> bool:
        return any(True for document in documents for _ in spans(text, n, document))

    overlaps = TaskTexts(rows(tasks)).overlap(joined(documents))
    for of_task, task in zip(overlaps.values(), tasks, strict=True):
        assert of_task.num_test == len(task)
        assert of_task.exact == sum(occurs(text, len(text)) for text in task)
        grams = [occurs(text, gram_length(len(text))) for text in task]
        assert of_task.ngram == sum(grams)


@given(tasks_and_documents())
def test_removed_from_removes_matches_until_there_are_none(drawn) -> None:
    tasks, documents = drawn
    searched = TaskTexts(rows(tasks))
    left = list(searched.removed_from(joined(documents)))
    for document in documents:
        while True:
            touched = {
                i
                for task in tasks
                for text in task
                for first, last in spans(text, gram_length(len(text)), document)
                for i in range(first, last + 1)
            }
            if not touched:
                break
            document[:] = [s for i, s in enumerate(document) if i not in touched]
    assert left == joined(documents)
    assert all(of_task.ngram == 0 for of_task in searched.overlap(left).values())


SENTENCE = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"


@pytest.mark.parametrize(
    ("sentences", "exact", "ngram"),
    [
        ([SENTENCE], 1, 1),
        ([f"Before, {SENTENCE.upper()}; after."], 1, 1),
        (["One two three four five six seven,", "eight nine ten eleven twelve thirteen"], 0, 1),
        ([SENTENCE.removesuffix(" thirteen fourteen")], 0, 0),
        ([SENTENCE.replace("seven", "7")], 0, 0),
        ([SENTENCE.replace("five six", "five\nsix").replace("one", "one\u00a0")], 1, 1),
        ([SENTENCE.replace("two", "tw\uff4f")], 1, 1),  # another form of the letter
    ],
)
def test_overlap_of_one_text(sentences: list[str], exact: int, ngram: int) -> None:
    overlap = TaskTexts({"task": [[SENTENCE]]}).overlap([["Another."], sentences])["task"]
    assert (overlap.exact, overlap.ngram) == (exact, ngram)


def test_overlap_of_a_short_text_is_a_whole_sentence() -> None:
    """If parts of sentences matched, the text "No." would remove every sentence with this word."""
    searched = TaskTexts({"task": [["No."], ["Yes"], ["?!"]]})
    document = ["There is no yes.", "NO", "There is none."]
    assert searched.overlap([document])["task"].ngram == 1
    assert list(searched.removed_from([document])) == [["There is no yes.", "There is none."]]


def test_searched_texts_are_all_inputs_of_a_row_and_no_answers(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    context, question = f"In a context, {SENTENCE}.", "What is it about, then?"
    row = {"id": "7", "context": context, "question": question, "answers": [{"text": "a context"}]}
    pair = {"id": "8", "text": "first of two", "text_pair": "second of two", "label": "x"}
    tagged = {"id": "9", "words": ["Tagged", "words", "."]}
    for kind, one in (("span_qa", row), ("classification", pair), ("tagging", tagged)):
        examples(kind).mkdir(parents=True)
        write_json(examples(kind) / "task.json", {"kind": kind})
        write_jsonl(examples(kind) / "test.jsonl", [one])
        write_jsonl(originals_of(kind), [])
    assert searched_texts(["classification", "tagging"]) == {
        "classification": [["first of two", "second of two"]],
        "tagging": [["Tagged words ."]],
    }
    searched = TaskTexts(searched_texts(["span_qa"]))
    for text in (context, question):
        assert searched.overlap([[text]])["span_qa"].exact == 1
    assert searched.overlap([["a context"]])["span_qa"].ngram == 0
