"""Scores of predictions in 0..1, each computed once over the whole test set.

An answer is one string: a label, the tags of a text's words joined by blanks, or a text.
"""

import re
from collections import Counter
from collections.abc import Sequence


def score(metric: str, gold: Sequence[str], predicted: Sequence[str]) -> float:
    """The value of the metric, a name in METRICS."""
    assert len(gold) == len(predicted) > 0, "one prediction for each example"
    return float(METRICS[metric](gold, predicted))


def macro_f1(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """The mean F1 over the labels that occur in ``gold``.

    scikit-learn's ``f1_score(average="macro")``, which the tests compare it with; importing that
    takes longer than many a trial does, in every process.
    """
    labels = Counter(gold)
    answers = Counter(predicted)
    right = Counter(g for g, p in zip(gold, predicted, strict=True) if g == p)
    return sum(2 * right[x] / (labels[x] + answers[x]) for x in sorted(labels)) / len(labels)


def accuracy(gold: Sequence[str], predicted: Sequence[str]) -> float:
    return sum(g == p for g, p in zip(gold, predicted, strict=True)) / len(gold)


def word_accuracy(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """The share of words with the right tag."""
    pairs = [pair for row in zip(gold, predicted, strict=True) for pair in _words(*row)]
    return sum(right == tag for right, tag in pairs) / len(pairs)


def entity_f1(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """F1 of whole entities: right is one with the same kind, first and last word (CoNLL-2003)."""
    num_gold = num_predicted = num_right = 0
    for row in zip(gold, predicted, strict=True):
        _words(*row)
        expected, found = (entities(tags.split()) for tags in row)
        num_gold += len(expected)
        num_predicted += len(found)
        num_right += len(expected & found)
    return 2 * num_right / (num_gold + num_predicted) if num_right else 0.0


def entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """(kind, first word, word after the last) of each entity in BIO tags.

    An I- that continues no entity of its kind begins one, as in the CoNLL-2003 evaluation.
    """
    found: set[tuple[str, int, int]] = set()
    kind, start = None, 0
    for i, tag in enumerate([*tags, "O"]):
        prefix, _, name = tag.partition("-")
        if prefix == "I" and name == kind:
            continue
        if kind is not None:
            found.add((kind, start, i))
        kind, start = (None if prefix == "O" else name), i
    return found


def _words(gold: str, predicted: str) -> list[tuple[str, str]]:
    pairs = list(zip(gold.split(), predicted.split(), strict=False))
    assert len(pairs) == len(gold.split()) == len(predicted.split()), "one tag for each word"
    return pairs


def bleu(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """BLEU of all texts together (Papineni et al. 2002), as sacrebleu defines it (Post 2018):
    ``nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp``."""
    from sacrebleu.metrics.bleu import BLEU

    return BLEU().corpus_score(predicted, [gold]).score / 100


def chrf(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """chrF2, the F-score of n-grams of letters of all texts together (Popovic 2015), as sacrebleu
    defines it: ``nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no``."""
    from sacrebleu.metrics.chrf import CHRF

    return CHRF().corpus_score(predicted, [gold]).score / 100


def rouge_l(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """ROUGE-L, the mean over texts of the F1 of the longest common subsequence of words (Lin 2004,
    section 3.1, with beta 1).

    Words are runs of letters and digits of any script, in one case, not stemmed. (The package
    rouge-score knows the letters a to z alone, and is the same for texts of them.)
    """
    pairs = ((_running(g), _running(p)) for g, p in zip(gold, predicted, strict=True))
    return sum(_overlap(*pair) for pair in pairs) / len(gold)


def _running(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def _overlap(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """F1 of the longest common subsequence."""
    # longest[j]: of the words of gold so far and the first j of predicted.
    longest = [0] * (len(predicted) + 1)
    for word in gold:
        diagonal = 0
        for j, other in enumerate(predicted, start=1):
            here = diagonal + 1 if word == other else max(longest[j], longest[j - 1])
            diagonal, longest[j] = longest[j], here
    return 2 * longest[-1] / (len(gold) + len(predicted)) if longest[-1] else 0.0


METRICS = {
    f.__name__: f for f in (macro_f1, accuracy, entity_f1, word_accuracy, bleu, chrf, rouge_l)
}
