"""Labelled rows: one spelling of each label, number and span; what is refused instead of misread;
the rows of train that a trial learns from; and the metrics of single tasks."""

from collections import Counter
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import f1_score

from stages.core.seeding import stream
from stages.evaluation.metrics import score
from stages.evaluation.row_scores import row_scores
from stages.tasks._cells import EmptyCellError, Row
from stages.tasks._labelled_rows import distinct_draws, labelled_rows, stratified_order
from stages.tasks._labels import alike, check_unclear, label_of, written_labels
from stages.tasks._tags import Scheme, to_bio, written_as
from stages.tasks._task import TASKS, Task
from stages.tasks.classification import Classification
from stages.tasks.multi_label import MultiLabel
from stages.tasks.multiple_choice import MultipleChoice
from stages.tasks.regression import PEARSON, Regression

ONE, SEVERAL, NUMBER = (TASKS[n] for n in ("classification", "multi_label", "regression"))
SPANS, TAGS = TASKS["span_qa"], TASKS["tagging"]
FOLDED = Classification.for_rows(no_label=[-1, "-"], label_case="fold")
NAMED = Classification.for_rows(label_names=["no", "yes"])
HOT, COMMA = MultiLabel.for_rows(multi_hot=True), Regression.for_rows(decimal="comma")
PIPES = MultiLabel.for_rows(label_separator="|")


@pytest.mark.parametrize(
    ("cell", "label"),
    [
        *((1, "1"), (1.0, "1"), ("1.0", "1"), ("-1.0", "-1"), (0.5, "0.5"), (True, "True")),
        *((" a\u200b", "a"), ("a\xa0b", "a b"), ("cafe\u0301", "caf\u00e9"), ("\ufeffa", "a")),
    ],
)
def test_label_of_has_one_spelling(cell: object, label: str) -> None:
    assert label_of(cell, "line 1: label") == label


def test_check_unclear_names_labels_that_differ_in_spelling_alone() -> None:
    assert alike(["Good", "good.", "bad", "C", "C++", "C#"]) == [["Good", "good."]]
    with pytest.raises(ValueError, match=r"label_case: .*'a' \(9 rows\) and 'A' \(1 rows\)"):
        check_unclear({"a": 9, "A": 1}, {})
    for sign in ("-1", "None", "nan"):
        with pytest.raises(ValueError, match=rf"no_label: is '{sign}' \(3 rows\) a class"):
            check_unclear({"0": 9, "1": 4, sign: 3}, {})
    check_unclear({"a": 9, "A": 1, "-1": 3}, {"label_case": "keep", "no_label": "none"})


ANSWER = {"text": "A", "answer_start": 1}


@pytest.mark.parametrize(
    ("kind", "cells", "expected"),
    [
        (FOLDED, (["A"], '["A"]', "['A']", " a "), "a"),
        (FOLDED, ("-", -1, "-1.0"), None),
        (NAMED, ("yes", 1, "1.0"), "yes"),
        (NAMED, (-1,), None),
        (SEVERAL, (["b", " a "], "b,a", " b , a,a", "b,,a,", "['a', 'b']", "[a, b]"), ["a", "b"]),
        (SEVERAL, (None, "", " ", float("nan"), [], ",", "set()"), []),
        (SEVERAL, ({"a": 1, "b": "0", "c": True}, {"a": "yes", "c": "1"}), ["a", "c"]),
        (PIPES, ("b, c|a",), ["a", "b, c"]),
        (HOT, ("[0, 1, 1]", [0, 1, 1]), ["1", "2"]),
        (NUMBER, (3, "3", " 3.0 ", "+3e0"), 3.0),
        (COMMA, ("1234,5", "+1234,50"), 1234.5),
        (SPANS, ([ANSWER], {"text": ["A"], "answer_start": [1]}, {"x": "A", "y": 1.0}), [ANSWER]),
        (SPANS, ({"text": [], "answer_start": []}, {"text": "", "answer_start": -1}), []),
    ],
)
def test_read_gives_one_value_for_all_its_spellings(kind: Task, cells, expected) -> None:
    for cell in cells:
        assert kind.read(kind.target, cell, {"context": "(A)"}, "line 2") == expected


@pytest.mark.parametrize(
    ("kind", "cells", "error", "message"),
    [
        (ONE, (["a", "b"],), ValueError, "has 2 labels; multi_label"),
        (NAMED, (2, "No"), ValueError, "label_names"),
        (SEVERAL, ([1, 0, 1],), ValueError, "multi_hot"),
        (SEVERAL, ({"a": 1, "b": -1},), EmptyCellError, "b is -1"),
        (SEVERAL, ({"b": 0.3},), ValueError, "b must be 0 or 1, not 0.3"),
        (SEVERAL, (["a", None], 3.5), ValueError, ""),
        (NUMBER, ("1,5", "1 234", "1,234.5"), ValueError, "decimal: comma"),
        (COMMA, ("1.234,5", "1.234", "1.5"), ValueError, "thousands"),
        (NUMBER, ("nan", "-", "inf", "", None), EmptyCellError, ""),
        (NUMBER, ("three", [3.0]), ValueError, ""),
        (SPANS, ("A", [{"text": "A"}], {"x": "A", "y": "b"}, 3), ValueError, "must be a list of"),
        (SPANS, ([{"text": "A", "answer_start": 0}],), ValueError, "is not in the context"),
    ],
)
def test_read_refuses_what_would_be_misread(kind: Task, cells, error, message: str) -> None:
    for cell in cells:
        with pytest.raises(error, match=f"^line 2: y.*{message}"):
            kind.read(kind.target, cell, {"context": "(A)"}, "line 2: y")


@pytest.mark.parametrize("kind", [ONE, SEVERAL, TAGS], ids=lambda kind: kind.name)
def test_read_refuses_lists_as_numpy_r_and_postgresql_print_them(kind: Task) -> None:
    for cell in ("['a' 'b']", "[0 1]", 'c("a", "b")', "{a,b}", "array(['a'])"):
        with pytest.raises(ValueError, match="no list in JSON"):
            kind.read(kind.target, cell, {}, "line 2: y")


@pytest.mark.parametrize(
    ("first", "labels", "wrong"),
    [(0, "01", ("2", "-1", "A")), (1, "12", ("0", "3")), ("A", "Ab", ("C", "1"))],
)
def test_checked_counts_the_right_choice_from_0(first: Any, labels, wrong) -> None:
    kind, row = MultipleChoice.for_rows(first_choice=first), {"text": "x", "choices": ["a", "b"]}
    numbers = [kind.checked(row | {"label": label}, "line 1")["label"] for label in labels]
    assert numbers == ["0", "1"]
    for label in wrong:
        with pytest.raises(ValueError, match=r"^line 1.*first_choice"):
            kind.checked(row | {"label": label}, "line 1")


# Tags ---------------------------------------------------------------------------------------------

Span = tuple[str, int]  # its type and its number of words; the type "" marks no span
SENTENCES = st.lists(st.tuples(st.sampled_from(["", "PER", "LOC"]), st.integers(1, 4)), max_size=6)
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


@given(SENTENCES, st.sampled_from(["bio", "iob1", "bioes", "bilou", "bmes"]))
def test_to_bio_of_any_scheme_has_the_same_spans(spans: list[Span], scheme: Scheme) -> None:
    expected = tags(spans, "bio")
    assert to_bio(tags(spans, scheme), scheme) == to_bio(expected, "iob1") == expected


def test_to_bio_reads_types_alone_as_spans() -> None:
    expected = ["B-PER", "I-PER", "O", "B-LOC", "B-PER"]
    assert to_bio(["PER", "PER", "O", "I-LOC", "PER"], "io") == expected


def test_to_bio_refuses_what_a_scheme_has_not() -> None:
    refused: list[tuple[Scheme, list[str]]] = [
        *(("iob1", ["DET"]), ("bioes", ["L-PER"])),
        *(("bilou", ["B-PER"]), ("bioes", ["B-PER", "E-LOC"])),
    ]
    for scheme, written in refused:
        with pytest.raises(ValueError, match=f"{written[-1][0]}.* is no tag of |cannot follow "):
            to_bio(written, scheme)


@pytest.mark.parametrize("other", ["PER-B", "B_PER", "b-PER", "B:PER", "B", "(PER"])
def test_written_as_names_tags_in_other_forms(other: str) -> None:
    assert written_as([["B-PER", "O", "I-PER"]] * 9 + [[other]]).odd == [other]
    assert written_as([[other, "O"]]).scheme is None


# The rows of a trial ------------------------------------------------------------------------------


def classified(*sizes: int) -> list[Row]:
    """Rows of classes of these sizes, in random order."""
    labels = [str(label) for label, number in enumerate(sizes) for _ in range(number)]
    order = np.random.default_rng(0).permutation(len(labels))
    return [{"id": f"row {n}", "text": "", "label": labels[i]} for n, i in enumerate(order)]


def tagged(number: int) -> list[Row]:
    return [{"id": f"row {n}", "words": ["w"], "tags": ["O"]} for n in range(number)]


def drawn(rows: list[Row], budget: int | str, *, pair: tuple[int, int] = (1, 1)) -> list[Row]:
    seeds = {"pretrain_seed": pair[0], "finetune_seed": pair[1]}
    return labelled_rows(rows, budget, ONE if "label" in rows[0] else TAGS, **seeds, task="own")


def ids(rows: list[Row]) -> set[str]:
    return {row["id"] for row in rows}


@pytest.mark.parametrize("rows", [classified(100, 200, 300), tagged(600)], ids=["class", "tag"])
def test_labelled_rows_are_nested_and_another_sample_for_each_pair_of_seeds(rows) -> None:
    """Samples overlap as much as independent ones do; (1, 2) is another pair than (2, 1)."""
    nested = [drawn(rows, budget) for budget in (1, "150", 151, "all")]
    assert [*map(len, nested)] == [1, 150, 151, 600] and nested[-1] == rows
    assert all(ids(less) < ids(more) for less, more in pairwise(nested))
    for part in nested:
        assert part == [row for row in rows if row["id"] in ids(part)], "in the order of train"
    samples = {pair: ids(drawn(rows, 150, pair=pair)) for pair in product(range(8), range(10))}
    assert samples[1, 1] == ids(nested[1])
    shared = [len(one & other) for one, other in combinations(samples.values(), 2)]
    assert np.mean(shared) == pytest.approx(150 * 150 / 600, rel=0.02) and max(shared) < 75


@pytest.mark.parametrize(
    ("budget", "trains", "number"), [(5, True, 6), ("5", False, 1), (6, True, 1), ("all", True, 1)]
)
def test_distinct_draws_of_every_row_are_one(budget, trains, number) -> None:
    seeds = {"pretrain_seeds": [1, 2], "finetune_seeds": [1, 2, 3]}
    about = {"num_examples": {"train": 6}, "split_seeds": []}
    pairs = distinct_draws(budget, **seeds, about=about, task="own", trains=trains)
    assert len(pairs) == number == len({*pairs}) and pairs[0] == (1, 1)
    samples = {frozenset(ids(drawn(tagged(6), budget, pair=pair))) for pair in pairs}
    assert (len(samples) > 1) == (number > 1)


def test_labelled_rows_are_of_the_draw_of_their_seed() -> None:
    rows: list[Row] = [{**row, "draws": [1] if i % 2 else [2]} for i, row in enumerate(tagged(20))]
    assert ids(drawn(rows, "all", pair=(7, 1))) == ids(rows[1::2])
    assert ids(drawn(rows, 5, pair=(7, 2))) < ids(rows[::2])
    with pytest.raises(ValueError, match="11 labels, but tasks.own has 10"):
        drawn(rows, 11, pair=(7, 1))


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=60), st.integers(0, 3))
def test_stratified_order_makes_every_prefix_a_sample(labels: list[str], seed: int) -> None:
    order = stratified_order(labels, stream(seed, "sample", "train"))
    assert sorted(order) == [*range(len(labels))]
    totals = Counter(labels)
    for n in range(1, len(labels) + 1):
        counts = Counter(labels[i] for i in order[:n])
        for label, total in totals.items():
            assert abs(counts[label] - n * total / len(labels)) <= len(totals)


# Metrics -----------------------------------------------------------------------------------------

SETS = st.sets(st.sampled_from("abcd")).map(sorted)
MICRO, MACRO = "micro_f1", "macro_f1_of_labels"
FEW = st.integers(-3, 3).map(str)  # with many ties
ANY = st.floats(-1e6, 1e6, allow_subnormal=False).map(repr)
PAIRS = st.lists(st.tuples(FEW, FEW), min_size=2) | st.lists(st.tuples(ANY, ANY), min_size=2)


# Undefined scores are 0.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
@pytest.mark.slow
@given(st.lists(st.tuples(SETS, SETS), min_size=1))
def test_f1_of_sets_of_labels_is_that_of_scikit_learn(pairs) -> None:
    gold, predicted = map(list, zip(*pairs, strict=True))
    texts = [*map(written_labels, gold)], [*map(written_labels, predicted)]
    present = sorted({label for row in gold for label in row})
    if not present:
        assert score(MICRO, *texts) == score(MACRO, *texts) == 0
        return
    x, y = (np.array([[i in row for i in "abcd"] for row in rows]) for rows in (gold, predicted))
    assert score(MICRO, *texts) == pytest.approx(f1_score(x, y, average="micro"))
    by_label = [f1_score(x[:, i], y[:, i]) for i in map("abcd".index, present)]
    assert score(MACRO, *texts) == pytest.approx(np.mean(by_label))
    for metric in (MICRO, MACRO):
        assert row_scores(metric, *texts).mean() == pytest.approx(score(metric, *texts), abs=1e-5)


@given(PAIRS)
def test_correlations_are_those_of_scipy(pairs: list[tuple[str, str]]) -> None:
    gold, predicted = map(list, zip(*pairs, strict=True))
    x, y = (np.array([*map(float, each)]) for each in (gold, predicted))
    x, y = (each / (abs(each).max() or 1) for each in (x, y))  # squares of 1e-300 are no floats
    spread = min(each.std() for each in (x, y))
    assume(spread == 0 or spread > 1e-6)  # otherwise rounding decides, in both implementations
    if spread == 0:
        assert score("pearson", gold, predicted) == score("spearman", gold, predicted) == 0
        return
    assert score("pearson", gold, predicted) == pytest.approx(stats.pearsonr(x, y)[0], abs=1e-7)
    assert score("spearman", gold, predicted) == pytest.approx(stats.spearmanr(x, y)[0], abs=1e-9)
    assert PEARSON.sums is not None
    sums = PEARSON.sums.value(PEARSON.sums.counts(gold, predicted).sum(axis=0, keepdims=True))
    assert sums == pytest.approx(score("pearson", gold, predicted), abs=1e-6)


def test_facts_of_regression_are_the_mean_and_the_standard_deviation() -> None:
    rows = [{"target": value} for value in (1.0, 3.0)]
    facts = TASKS["regression"].facts(rows)
    assert facts == {"target_mean": 2.0, "target_std": 1.0}
    with pytest.raises(ValueError, match="target"):
        TASKS["regression"].facts(rows[:1] * 3)
