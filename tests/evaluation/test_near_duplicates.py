"""Near-duplicates, compared with a search of all pairs."""

from hypothesis import given, settings
from hypothesis import strategies as st

from stages.evaluation import near_duplicates
from stages.evaluation.contamination import words
from stages.evaluation.near_duplicates import GRAM, LEAST, SHORT, nearest
from stages.tasks._task import TASKS

# Texts of few different words, so that many pairs are similar; some are longer than SHORT.
TEXT = st.lists(st.sampled_from("abcdef"), max_size=SHORT + 8).map(" ".join)


def similarity(one: str, other: str) -> float:
    """Returns the largest similarity that applies, computed from sets of n-grams."""
    a, b = words(one), words(other)
    lengths = len(a), len(b)
    counted = [GRAM, *([1] if max(lengths) < SHORT else [])]
    shares = [0.0]
    for n in counted:
        grams = [{tuple(t[i : i + n]) for i in range(len(t) - n + 1)} for t in (a, b)]
        if all(grams):
            shares.append(len(grams[0] & grams[1]) / len(grams[0] | grams[1]))
    return max(shares)


@settings(deadline=None, max_examples=60)
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
    changed = [*long[:20], "other", *long[21:]]
    train = [
        "Where can I find the tracking number of my parcel?",
        " ".join(long),
        "The red bird sings.",
    ]
    test = [
        "where can I find the tracking code of my parcel",  # one word of ten
        " ".join(changed),
        "The red bird flies.",  # one word of four
        "Something else, which train does not have at all.",
    ]
    test_rows, train_rows = ([{"text": text} for text in texts] for texts in (test, train))
    of_task = near_duplicates.near_duplicates(test_rows, train_rows, TASKS["classification"])
    assert (of_task.number, of_task.num_test, of_task.share) == (2, 4, 0.5)
    assert {place: near.place for place, near in nearest(test, train).items()} == {0: 0, 1: 1}
    assert (of_task.test, of_task.train) == (test[0], train[0])
