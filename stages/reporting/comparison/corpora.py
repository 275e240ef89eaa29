"""Training sets: the amount of their text, how alike the tasks' texts are, and what pretraining on
each gained over from scratch.
"""

from collections.abc import Iterator, Sequence
from itertools import permutations, product

import numpy as np
from scipy.stats import rankdata, spearmanr

from stages.core.artifacts import Json
from stages.evaluation.metrics import merit
from stages.reporting.comparison.appendix import Appendix
from stages.reporting.comparison.contrasts import Contrast
from stages.reporting.comparison.groups import Group
from stages.reporting.comparison.results import Results
from stages.reporting.number_format import DASH, compact, formatted, six_decimals
from stages.reporting.score_format import difference_with_interval

FEWEST = 4  # corpora for a rank correlation
MOST_PERMUTED = 7  # corpora of which all orders are tried for the p-value
COLUMNS = [
    *("run", "corpus", "tokenizer", "task", "method", "label_budget"),
    *("corpus_documents", "corpus_words", "corpus_types", "corpus_bytes", "corpus_tokens"),
    *("epochs", "divergence", "unseen_words", "unseen_types", "bits_per_byte"),
    "own_bits_per_byte",
    *("gain", "low", "high"),
]
# Each with the sign that makes more of it more alike.
MEASURES = {
    "divergence": ("word divergence", -1),
    "unseen_words": ("unseen words", -1),
    "bits_per_byte": ("n-gram bits per byte", -1),
    "own_bits_per_byte": ("own bits per byte", -1),
    "tokens": ("tokens of text", 1),
}
AMOUNTS = "Amount of text"
LIKENESS = "Likeness of the tasks' texts to the training text, and the gain over from scratch"
CORRELATIONS = "Rank correlation of likeness and amount with the gain"
MEASURED = (
    "The texts of a task are the inputs of its test rows, compared with the encoded training text. "
    "Word divergence: the Jensen-Shannon divergence of the distributions of words in bits (0: "
    "equal, 1: no word in common), between samples of equal size and corrected for their size; the "
    "amount of text matters only as far as fewer documents cover fewer subjects. Unseen words: the "
    "share of the task's words (and of its different words) that the training text never has. "
    "N-gram bits per byte: what a byte of the task takes under a byte 6-gram model of the training "
    "text. Own bits per byte: the loss of the run's own objective on these texts (256 rows at "
    "most), per target, in bits, times the tokens per byte; it compares runs of one objective. "
    "The last three fall with the amount of text, too. All four compare training sets on "
    "one task, and not tasks with each other. Epochs: the tokens that a run read, divided by those "
    "of its training text; below 1, a run has read a part of what was measured."
)
GAINS = (
    "Gain: the difference to the same model from scratch, with its interval; see the axis "
    "`pretrained` for verdicts."
)


def appendix(results: Results) -> Appendix | None:
    """None if no run was pretrained on a corpus of the study."""
    trained = [group for group in results.groups if group.corpus_tokens]
    if not trained:
        return None
    correlations = [*_correlation_rows(results, trained)]
    notes = [MEASURED, GAINS, _about_correlations(trained, bool(correlations))]
    likeness = [
        _likeness_row(results, task, group)
        for task, group in product(results.params.tasks, trained)
    ]
    tables = {
        AMOUNTS: [*_amount_rows(results, trained)],
        LIKENESS: likeness,
        CORRELATIONS: correlations,
    }
    return Appendix("Training sets", tables, notes)


def rows(results: Results) -> Iterator[Json]:
    """reports/corpora.csv: a row for each pretrained run, task, method and label budget."""
    trained = [group for group in results.groups if group.corpus_tokens]
    places = product(trained, results.params.tasks, results.methods, results.label_budgets)
    for group, task, method, budget in places:
        about = _about(results, group)
        gain = _gain(results, group, task, method, budget)
        effect = gain.effect if gain else None
        yield {
            "run": group.name,
            "corpus": group.corpus,
            "tokenizer": group.entry.tokenizer,
            "task": task,
            "method": method,
            "label_budget": budget,
            **{f"corpus_{key}": about[key] for key in ("documents", "words", "types", "bytes")},
            "corpus_tokens": group.corpus_tokens,
            "epochs": six_decimals(group.epochs),
            **{
                key: six_decimals(about["tasks"][task][key])
                for key in ("divergence", "unseen_words", "unseen_types", "bits_per_byte")
            },
            "own_bits_per_byte": six_decimals(_own_bits(results, group, task)),
            "gain": six_decimals(effect.value if effect else None),
            "low": six_decimals(effect.low if effect else None),
            "high": six_decimals(effect.high if effect else None),
        }


def _about(results: Results, group: Group) -> Json:
    return results.likeness[group.entry.corpus, group.entry.tokenizer]


def _gain(
    results: Results, group: Group, task: str, method: str, label_budget: str
) -> Contrast | None:
    """The group against the same model from scratch, if the study has both."""
    cell = results.cell(group.name, task, method, label_budget)
    of_cell = results.contrasts_of.get(cell, []) if cell else []
    return next((c for c in of_cell if c.axis == "pretrained" and c.a is cell), None)


def _amount_rows(results: Results, trained: Sequence[Group]) -> Iterator[dict[str, str]]:
    for (corpus, tokenizer), about in results.likeness.items():
        readers: dict[str, list[str]] = {}
        for group in trained:
            if (group.entry.corpus, group.entry.tokenizer) == (corpus, tokenizer):
                readers.setdefault(f"{group.epochs:.3g}", []).append(group.name)
        yield {
            "training set": corpus,
            "tokenizer": tokenizer,
            "documents": f"{about['documents']:,}",
            "words": compact(about["words"]),
            "different words": compact(about["types"]),
            "bytes": compact(about["bytes"]),
            "tokens": f"{about['tokens']:,}",
            "epochs": ", ".join(
                epochs + (f" ({', '.join(names)})" if len(readers) > 1 else "")
                for epochs, names in readers.items()
            ),
        }


def _likeness_row(results: Results, task: str, group: Group) -> dict[str, str]:
    found = _measured(results, group, task)
    return {
        "task": task,
        "run": group.name,
        "training set": group.corpus,
        "word divergence": formatted(found["divergence"], ".3f"),
        "unseen words": f"{formatted(found['unseen_words'], '.1%')} "
        f"({formatted(found['unseen_types'], '.1%')})",
        "n-gram bits per byte": formatted(found["bits_per_byte"], ".3f"),
        "own bits per byte": formatted(found["own_bits_per_byte"], ".3f"),
    } | {
        f"gain, {_place(results, method, budget)}": _shown_gain(
            _gain(results, group, task, method, budget)
        )
        for method, budget in product(results.methods, results.label_budgets)
    }


def _place(results: Results, method: str, label_budget: str) -> str:
    """The method, and the label budget if there are several."""
    return f"{method}, {label_budget}" if len(results.label_budgets) > 1 else method


def _shown_gain(gain: Contrast | None) -> str:
    return DASH if gain is None else difference_with_interval(gain.effect, gain.metric)


def _families(groups: Sequence[Group]) -> list[list[Group]]:
    """The groups that differ in their training sets and in nothing else."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        rest = repr((group.entry.model, group.entry.objective, group.settings))
        found.setdefault(rest, []).append(group)
    return list(found.values())


def _correlation_rows(results: Results, trained: Sequence[Group]) -> Iterator[dict[str, str]]:
    places = [*product(results.params.tasks, results.methods, results.label_budgets)]
    for family, (task, method, budget) in product(_families(trained), places):
        found = ((group, _gain(results, group, task, method, budget)) for group in family)
        known = [(group, gain) for group, gain in found if gain]
        if len(known) < FEWEST:
            continue
        names = ", ".join(group.corpus for group, _ in known)
        yield {
            "task": task,
            "method": _place(results, method, budget),
            "training sets": f"{len(known)} ({names})",
        } | {
            name: _correlation(results, task, known, measure)
            for measure, (name, _) in MEASURES.items()
        }


def _correlation(
    results: Results, task: str, known: Sequence[tuple[Group, Contrast]], measure: str
) -> str:
    """Of a measure with the gain, as the table shows it."""
    sign = MEASURES[measure][1]
    measured = [_measured(results, group, task)[measure] for group, _ in known]
    if None in measured:
        return DASH
    alike = [sign * value for value in measured]
    gains = [
        merit(gain.metric, gain.a.mean.value) - merit(gain.metric, gain.b.mean.value)
        for _, gain in known
    ]
    rho, p_value = spearman(alike, gains)
    return DASH if rho is None else f"{formatted(rho, '+.2f')} (p = {formatted(p_value, '.2g')})"


def _measured(results: Results, group: Group, task: str) -> Json:
    about = _about(results, group)
    own = {"own_bits_per_byte": _own_bits(results, group, task)}
    return {"tokens": about["tokens"], **about["tasks"][task], **own}


def _own_bits(results: Results, group: Group, task: str) -> float | None:
    """The mean over the runs of the group; None if they have no such number."""
    found = [results.text_bits.get((run, task)) for run in group.runs]
    known = [bits.bits_per_byte for bits in found if bits]
    return sum(known) / len(known) if len(known) == len(found) else None


def spearman(one: Sequence[float], other: Sequence[float]) -> tuple[float | None, float | None]:
    """The rank correlation and its two-sided p-value, both None if one side is all ties.

    The p-value is the share of all orders whose correlation is as far from 0; of many numbers it is
    that of the t distribution.
    """
    if len({*one}) == 1 or len({*other}) == 1:
        return None, None
    rho, p_value = np.asarray(spearmanr(one, other)).tolist()
    if len(one) <= MOST_PERMUTED:
        middle = (len(one) + 1) / 2
        orders = np.array([*permutations(rankdata(other) - middle)])  # the first is the given one
        products = abs(orders @ (rankdata(one) - middle))
        p_value = float(np.mean(products >= products[0] - 1e-9))
    return rho, p_value


def _about_correlations(trained: Sequence[Group], found: bool) -> str:
    if found:
        return (
            "Correlation: Spearman's, over training sets, of likeness or amount with the gain, for "
            "runs that differ in nothing else. Positive: the more alike, or the more text, the "
            "larger the gain. The p-values are two-sided, are not corrected for the number of "
            "correlations, and take each gain as it is, without its interval. Amounts of one text "
            "count as training sets of their own. A correlation over so few training sets "
            "shows an order and no cause."
        )
    most = max(len({group.corpus for group in family}) for family in _families(trained))
    return (
        "Too few training sets for a correlation of likeness with gain: runs that differ in "
        f"nothing else have at most {most}, and it takes {FEWEST}."
    )
