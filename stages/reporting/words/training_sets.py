"""The part of the appendix on training sets: amount of text, likeness to the tasks, and gain."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from stages.findings.cells import Cell
from stages.findings.contrasts import Contrast
from stages.findings.groups import Group
from stages.findings.scores import Scores
from stages.findings.training_sets import (
    FEWEST,
    MEASURES,
    TrainingSets,
    families,
    gain_of,
)
from stages.reporting.formats import DASH, compact, difference_with_interval, formatted
from stages.reporting.words.appendix import Appendix

NAMES = {
    "divergence": "word divergence",
    "unseen_words": "unseen words",
    "bits_per_byte": "n-gram bits per byte",
    "own_bits_per_byte": "own bits per byte",
    "tokens": "tokens of text",
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


def training_sets(
    sets: TrainingSets, scores: Scores, contrasts_of: Mapping[Cell, Sequence[Contrast]]
) -> Appendix:
    """Returns each training set's amount of text, its likeness to the tasks' texts, and the gain
    of its runs over from scratch. Empty if no run was pretrained on a corpus of the study."""
    trained = [group for group in scores.groups if group.corpus_tokens]
    gains = {
        (group.name, *place): gain_of(scores.cell(group.name, *place), contrasts_of)
        for group in trained
        for place in product(scores.tasks, scores.methods, scores.label_budgets)
    }
    correlations = [*_correlation_rows(sets, scores, trained, gains)]
    tables = {
        AMOUNTS: [*_amount_rows(sets, trained)],
        LIKENESS: [
            _likeness_row(sets, scores, task, group, gains)
            for task, group in product(scores.tasks, trained)
        ],
        CORRELATIONS: correlations,
    }
    notes = [MEASURED, GAINS, _about_correlations(trained, bool(correlations))] if trained else []
    return Appendix("Training sets", tables if trained else {}, notes)


Gains = Mapping[tuple[str, str, str, str], Contrast | None]  # by group, task, method, label budget


def _amount_rows(sets: TrainingSets, trained: Sequence[Group]) -> Iterator[dict[str, str]]:
    for (corpus, tokenizer), about in sets.likeness.items():
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


def _likeness_row(
    sets: TrainingSets, scores: Scores, task: str, group: Group, gains: Gains
) -> dict[str, str]:
    measured = sets.measured(group, task)
    row = {
        "task": task,
        "run": group.name,
        "training set": group.corpus,
        "word divergence": formatted(measured["divergence"], ".3f"),
        "unseen words": f"{formatted(measured['unseen_words'], '.1%')} "
        f"({formatted(measured['unseen_types'], '.1%')})",
        "n-gram bits per byte": formatted(measured["bits_per_byte"], ".3f"),
        "own bits per byte": formatted(measured["own_bits_per_byte"], ".3f"),
    }
    for method, budget in product(scores.methods, scores.label_budgets):
        gain = gains[group.name, task, method, budget]
        row[f"gain, {_place(scores, method, budget)}"] = (
            difference_with_interval(gain.effect, gain.metric) if gain else DASH
        )
    return row


def _place(scores: Scores, method: str, label_budget: str) -> str:
    """Returns the method, with the label budget if there are several."""
    return f"{method}, {label_budget}" if len(scores.label_budgets) > 1 else method


def _correlation_rows(
    sets: TrainingSets, scores: Scores, trained: Sequence[Group], gains: Gains
) -> Iterator[dict[str, str]]:
    places = [*product(scores.tasks, scores.methods, scores.label_budgets)]
    for family, place in product(families(trained), places):
        known = [(group, gain) for group in family if (gain := gains[group.name, *place])]
        if len(known) >= FEWEST:
            task, method, budget = place
            names = ", ".join(group.corpus for group, _ in known)
            yield {
                "task": task,
                "method": _place(scores, method, budget),
                "training sets": f"{len(known)} ({names})",
            } | {
                NAMES[measure]: _correlation(sets.correlation(known, task, measure))
                for measure in MEASURES
            }


def _correlation(found: tuple[float, float] | None) -> str:
    if found is None:
        return DASH
    rho, p_value = found
    return f"{formatted(rho, '+.2f')} (p = {formatted(p_value, '.2g')})"


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
    most = max(len({group.corpus for group in family}) for family in families(trained))
    return (
        "Too few training sets for a correlation of likeness with gain: runs that differ in "
        f"nothing else have at most {most}, and it takes {FEWEST}."
    )
