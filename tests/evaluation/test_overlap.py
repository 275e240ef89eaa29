"""Test texts that pretraining or train has too, compared with slow searches; doubtful labels, on
rows of which some labels were changed."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.baselines._linear import classifier
from stages.core.artifacts import write_json, write_jsonl
from stages.core.paths import examples
from stages.core.paths import test_originals as originals_of
from stages.core.seeding import stream
from stages.evaluation.contamination import TaskTexts, gram_length, searched_texts, words
from stages.evaluation.doubtful_labels import FOLDS, MAX_DOUBTFUL, doubtful_labels
from stages.evaluation.near_duplicates import GRAM, LEAST, SHORT, near_duplicates, nearest
from stages.tasks._task import TASKS

# Few words, so that sequences repeat.
TEXTS = st.lists(st.sampled_from("abc"), max_size=18)
CLASSIFICATION = TASKS["classification"]
Documents = list[list[list[str]]]  # of sentences of words


@st.composite
def tasks_and_documents(draw) -> tuple[Documents, Documents]:
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
        ends = zip([0, *cuts], [*cuts, len(flat)], strict=True)
        documents.append([flat[i:j] for i, j in ends])
    return tasks, documents


def spans(text: list[str], n: int, document: list[list[str]]) -> Iterator[tuple[int, int]]:
    """Yields the first and the last sentence of each n consecutive words of the text in a document.
    A text of fewer than 8 words matches only whole sentences."""
    flat = [(word, i) for i, sentence in enumerate(document) for word in sentence]
    grams = [text[i : i + n] for i in range(len(text) - n + 1)] if n else []
    for start in range(len(flat) - n + 1):
        here = flat[start : start + n]
        if [word for word, _ in here] in grams:
            first, last = here[0][1], here[-1][1]
            if len(text) >= 8 or sum(document[first : last + 1], []) == text:
                yield first, last


def searched(tasks: Documents) -> TaskTexts:
    """Returns the search for a row of each text, with added case and punctuation."""
    rows = {str(i): [[", ".join(t).title() + "!"] for t in task] for i, task in enumerate(tasks)}
    return TaskTexts(rows)


def joined(documents: Documents) -> list[list[str]]:
    return [[" - ".join(sentence) for sentence in document] for document in documents]


@given(tasks_and_documents())
def test_overlap_is_what_a_slow_search_finds(drawn: tuple[Documents, Documents]) -> None:
    tasks, documents = drawn

    def occurs(text: list[str], n: int) -> bool:
        return any(True for document in documents for _ in spans(text, n, document))

    overlaps = searched(tasks).overlap(joined(documents)).values()
    for of_task, task in zip(overlaps, tasks, strict=True):
        assert of_task.num_test == len(task)
        assert of_task.exact == sum(occurs(text, len(text)) for text in task)
        assert of_task.ngram == sum(occurs(text, gram_length(len(text))) for text in task)


@given(tasks_and_documents())
def test_removed_from_removes_matches_until_there_are_none(drawn) -> None:
    tasks, documents = drawn
    left = list(searched(tasks).removed_from(joined(documents)))
    for document in documents:
        touched = {0}
        while touched:
            texts = [(text, gram_length(len(text))) for task in tasks for text in task]
            places = [place for text, n in texts for place in spans(text, n, document)]
            touched = {i for first, last in places for i in range(first, last + 1)}
            document[:] = [s for i, s in enumerate(document) if i not in touched]
    assert left == joined(documents)
    assert all(of_task.ngram == 0 for of_task in searched(tasks).overlap(left).values())


SENTENCE = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"


@pytest.mark.parametrize(
    ("sentences", "exact", "ngram"),
    [
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


def test_searched_texts_are_all_inputs_of_a_row_and_no_answers(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    context, question = f"In a context, {SENTENCE}.", "What is it about, then?"
    rows = {
        "span_qa": {"context": context, "question": question, "answers": [{"text": "a context"}]},
        "classification": {"text": "first of two", "text_pair": "second of two", "label": "x"},
        "tagging": {"words": ["Tagged", "[MASK]", "."]},
    }
    for kind, row in rows.items():
        examples(kind).mkdir(parents=True)
        write_json(examples(kind) / "task.json", {"kind": kind})
        write_jsonl(examples(kind) / "test.jsonl", [row | {"id": "7"}])
        write_jsonl(originals_of(kind), [])
    write_jsonl(originals_of("tagging"), [{"id": "7", "words": ["Tagged", "words", "."]}])
    assert searched_texts(["classification", "tagging"]) == {
        "classification": [["first of two", "second of two"]],
        "tagging": [["Tagged words ."]],
    }
    texts = TaskTexts(searched_texts(["span_qa"]))
    assert [texts.overlap([[t]])["span_qa"].exact for t in (context, question)] == [1, 1]
    assert texts.overlap([["a context"]])["span_qa"].ngram == 0


# Near-duplicates -----------------------------------------------------------------------------

# Texts of few different words, so that many pairs are similar; some are longer than SHORT.
TEXT = st.lists(st.sampled_from("abcdef"), max_size=SHORT + 8).map(" ".join)


def similarity(one: str, other: str) -> float:
    """Returns the largest similarity that applies, computed from sets of n-grams."""
    a, b = words(one), words(other)
    shares = [0.0]
    for n in (GRAM, 1) if max(len(a), len(b)) < SHORT else (GRAM,):
        grams = [{tuple(t[i : i + n]) for i in range(len(t) - n + 1)} for t in (a, b)]
        if all(grams):
            shares.append(len(grams[0] & grams[1]) / len(grams[0] | grams[1]))
    return max(shares)


@settings(max_examples=60)
@given(test=st.lists(TEXT, max_size=6), train=st.lists(TEXT, max_size=6))
def test_nearest_is_the_best_of_all_pairs(test: list[str], train: list[str]) -> None:
    similar = nearest(test, train)
    for place, text in enumerate(test):
        shares = [similarity(text, other) for other in train]
        if max(shares, default=0.0) >= LEAST:
            assert similar[place].similarity == max(shares) == shares[similar[place].place]
        else:
            assert place not in similar


def test_near_duplicates_are_copies_with_a_changed_word_and_no_others() -> None:
    long = [f"word{i}" for i in range(40)]
    pairs = {
        "where can I find the tracking code of my parcel": "Where can I find the tracking number "
        "of my parcel?",  # one word of ten
        " ".join([*long[:20], "other", *long[21:]]): " ".join(long),
        "The red bird flies.": "The red bird sings.",  # one word of four
        "Something else, which train does not have at all.": "",
    }
    test, train = ([{"text": text} for text in texts] for texts in zip(*pairs.items(), strict=True))
    near = near_duplicates(test, train, CLASSIFICATION)
    assert (near.number, near.num_test, near.share) == (2, 4, 0.5)
    assert (near.test, near.train) == next(iter(pairs.items()))  # the least similar
    assert near_duplicates(test, [], CLASSIFICATION).number == 0


# Doubtful labels -----------------------------------------------------------------------------


def test_doubtful_labels_are_most_of_those_that_were_changed() -> None:
    """Half of the words of a text are its class's own. A class of fewer rows than folds is left
    out, and no other task has one label for each row."""
    rng, rows, right = stream(1, "doubtful"), list[dict](), dict[str, str]()
    for i, label in enumerate("a" * 300 + "b" * 100 + "c" * 60 + "d" * (FOLDS - 1)):
        texts = [f"{label if rng.random() < 0.5 else ''}{rng.integers(20)}" for _ in range(12)]
        rows.append({"id": f"row {i}", "text": " ".join(texts), "label": label})
        if label != "d" and rng.random() < 0.05:
            right[f"row {i}"] = label
            rows[-1]["label"] = str(rng.choice([other for other in "abc" if other != label]))
    doubtful = doubtful_labels(CLASSIFICATION, rows, classifier())
    hits = [each for each in doubtful if each.likelier_label == right.get(each.id)]
    assert len(hits) >= 0.65 * len(right) and len(hits) >= 0.9 * len(doubtful)
    assert {each.id for each in doubtful[: len(right) // 2]} <= right.keys()  # sorted by doubt
    mixed = [row | {"label": str(rng.choice(["a", "b"]))} for row in rows]
    assert len(doubtful_labels(CLASSIFICATION, mixed, classifier())) == MAX_DOUBTFUL
    tagged = [{"id": "1", "words": ["a"], "tags": ["O"]}]
    assert doubtful_labels(TASKS["tagging"], tagged, classifier()) == []
