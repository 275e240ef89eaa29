"""Overlap of test rows with the training text of pretraining: a table, notes and caveats."""

from collections.abc import Iterator

from stages.evaluation.contamination import LONG, SHORT
from stages.reporting.comparison.amounts import AMOUNT
from stages.reporting.comparison.appendix import Appendix
from stages.reporting.comparison.results import Results

NOTEWORTHY = 0.03  # of a task's test rows
UNEQUAL = 0.02  # a difference between two such shares

CAPTION = "Test rows that overlap the training text of pretraining"
COUNTED = (
    f"The share of each task's test rows that overlap the encoded training text: a text of the row "
    f"shares {LONG} consecutive words ({SHORT} if it has fewer than {LONG}) with a document. In "
    f"parentheses: the rows with a text that occurs in full. A text of fewer than {SHORT} words "
    "counts only if it occurs in full as one or more complete sentences. Case and punctuation are "
    "ignored; answers are not searched for. A run may have read less than was encoded."
)
FILTER = (
    "`decontaminate_against: tasks` in an entry of `corpora:` removes matching sentences before "
    "anything is trained on them."
)

Pair = tuple[str, str]  # a corpus and a tokenizer


def appendix(results: Results) -> Appendix | None:
    """None if no run was pretrained."""
    notes = [COUNTED, *(list(_removals(results)) or [FILTER])] if results.contamination else []
    notes += _unknown(results)
    rows = _rows(results) if results.contamination else []
    return Appendix("Contamination", {CAPTION: rows}, notes) if notes else None


def _rows(results: Results) -> list[dict[str, str]]:
    return [
        {"task": task}
        | {
            _name(results, pair): f"{_share(results, pair, task):.1%} "
            f"({_share(results, pair, task, 'exact'):.1%})"
            for pair in results.contamination
        }
        for task in results.params.tasks
    ]


def shares(results: Results) -> dict[tuple[str, str], float]:
    """Of each task's test rows, by the task and the name of the training text."""
    return {
        (task, _name(results, pair)): _share(results, pair, task)
        for task in results.params.tasks
        for pair in results.contamination
    }


def _share(results: Results, pair: Pair, task: str, count: str = "ngram") -> float:
    found = results.contamination[pair]["tasks"][task]
    return found[count] / found["num_test"]


def _name(results: Results, pair: Pair) -> str:
    """The corpus, unless it was encoded with several tokenizers."""
    corpus, tokenizer = pair
    several = sum(other == corpus for other, _ in results.contamination) > 1
    return f"{corpus}, {tokenizer}" if several else corpus


def _removals(results: Results) -> Iterator[str]:
    """What the filter removed from each corpus, before any tokenizer encoded it."""
    removed = {corpus: found["removed"] for (corpus, _), found in results.contamination.items()}
    for corpus, splits in removed.items():
        if splits:
            sentences, characters, documents = (
                sum(split[what] for split in splits.values())
                for what in ("sentences", "characters", "documents")
            )
            yield (
                f"{sentences:,} matching sentences ({characters:,} characters) were removed from "
                f"`{corpus}` before it was encoded, and with them {documents:,} whole documents."
            )


def _unknown(results: Results) -> Iterator[str]:
    public = [f"`{name}`" for name, run in results.params.pretrain.items() if run.is_public]
    if public:
        yield f"The overlap of public checkpoints' training text is unknown: {', '.join(public)}."


def caveats(results: Results) -> Iterator[str]:
    """Overlap that may affect scores or contrasts of training sets."""
    tasks = results.params.tasks
    high = [
        f"`{task}` {share:.1%} in `{text}`"
        for (task, text), share in shares(results).items()
        if share > NOTEWORTHY
    ]
    if high:
        yield (
            f"Test rows overlap the training text of pretraining ({'; '.join(high)}). Scores on "
            "these tasks may partly be due to memorisation."
        )
    pairs = {g.name: (g.entry.corpus, g.entry.tokenizer) for g in results.groups}
    compared = dict.fromkeys(
        both
        for c in results.contrasts
        if c.axis in ("training set", AMOUNT)
        and results.contamination.keys() >= set(both := (pairs[c.a.group], pairs[c.b.group]))
    )
    unequal = [
        f"`{task}`, `{_name(results, a)}` {of_a:.1%} v. `{_name(results, b)}` {of_b:.1%}"
        for a, b in compared
        for task in tasks
        for of_a, of_b in [(_share(results, a, task), _share(results, b, task))]
        if abs(of_a - of_b) > UNEQUAL
    ]
    if unequal:
        yield (
            "Training sets that are compared overlap the test rows unequally "
            f"({'; '.join(unequal)}). Part of their difference may be due to that."
        )
