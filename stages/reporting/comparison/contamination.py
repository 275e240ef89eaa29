"""Test rows that stand in what runs were pretrained on: a table, and what to make of it."""

from collections.abc import Iterator
from dataclasses import dataclass

from stages.evaluation.contamination import LONG, SHORT
from stages.reporting.comparison.results import Results

NOTEWORTHY = 0.03  # of a task's test rows
UNEQUAL = 0.02  # the difference of two such shares

COUNTED = (
    f"Of each task's test rows, the share with a text of which {LONG} words in a row ({SHORT}, if "
    f"it has fewer than {LONG}) stand in a document that was encoded for training; in parentheses, "
    f"those of which the whole text does. A text of fewer than {SHORT} words is looked for whole "
    "and as sentences of its own. Case and punctuation make no difference; answers are not looked "
    "for. A run may have read less than was encoded."
)
FILTER = (
    "`decontaminate_against: tasks` in an entry of `corpora:` removes the sentences that match "
    "before anything is trained on them."
)

Pair = tuple[str, str]  # a corpus and a tokenizer


@dataclass(frozen=True)
class Section:
    rows: list[dict[str, str]]
    notes: list[str]


def section(results: Results) -> Section | None:
    """None if no run was pretrained."""
    notes = [COUNTED, *(list(_removals(results)) or [FILTER])] if results.contamination else []
    notes += _unknown(results)
    return Section(_rows(results) if results.contamination else [], notes) if notes else None


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


def _share(results: Results, pair: Pair, task: str, count: str = "ngram") -> float:
    found = results.contamination[pair]["tasks"][task]
    return found[count] / found["num_test"]


def _name(results: Results, pair: Pair) -> str:
    """The corpus, unless it was encoded with several tokenizers."""
    corpus, tokenizer = pair
    several = sum(other == corpus for other, _ in results.contamination) > 1
    return f"{corpus}, {tokenizer}" if several else corpus


def _removals(results: Results) -> Iterator[str]:
    """What the filter took from each corpus, whatever it was encoded with afterwards."""
    removed = {corpus: found["removed"] for (corpus, _), found in results.contamination.items()}
    for corpus, splits in removed.items():
        if splits:
            sentences, characters, documents = (
                sum(split[what] for split in splits.values())
                for what in ("sentences", "characters", "documents")
            )
            yield (
                f"From `{corpus}` sentences that match were removed before it was encoded: "
                f"{sentences:,}, of {characters:,} characters in all, with which {documents:,} "
                "documents went whole."
            )


def _unknown(results: Results) -> Iterator[str]:
    public = [f"`{name}`" for name, run in results.params.pretrain.items() if run.is_public]
    if public:
        yield f"What public checkpoints were pretrained on is not known here: {', '.join(public)}."


def caveats(results: Results) -> Iterator[str]:
    """Overlap that may matter to scores, and to contrasts of training sets."""
    tasks = results.params.tasks
    high = [
        f"`{task}` {_share(results, pair, task):.1%} in `{_name(results, pair)}`"
        for task in tasks
        for pair in results.contamination
        if _share(results, pair, task) > NOTEWORTHY
    ]
    if high:
        yield (
            f"Test rows overlap what was read in pretraining ({'; '.join(high)}): there, scores "
            "may owe something to memory."
        )
    pairs = {g.name: (g.entry.corpus, g.entry.tokenizer) for g in results.groups}
    compared = dict.fromkeys(
        both
        for c in results.contrasts
        if c.axis == "training set"
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
            "Training sets that are compared do not overlap the test rows equally "
            f"({'; '.join(unequal)}): some of their difference may be due to that."
        )
