"""What runs read of the tasks' rows: how much was cut, and where labels are read."""

from collections.abc import Iterator
from itertools import groupby

from stages.evaluation.records import InputRecord
from stages.kinds._kind import SPLITS
from stages.reporting.comparison.appendix import Appendix
from stages.reporting.comparison.results import Results

NOTEWORTHY = 0.05  # of a split's rows

CAPTION = "Where labels are read, and rows that were cut"
COUNTED = (
    "Which states of a model a label is predicted from (of several, each trial chose on "
    "validation), and how many rows are longer than `finetune.max_tokens` and were cut; in "
    "parentheses the share of all tokens. Texts that are read in windows are not cut. Of train, as "
    "many rows as the largest label budget are counted; of prompts, those of the test rows with "
    "the shots of the first seed: what is cut are shots first, then the text."
)


def appendix(results: Results) -> Appendix | None:
    """None if no run has a task that is encoded."""
    rows = [row for task in results.params.tasks for row in _rows(task, results.inputs[task])]
    notes = [COUNTED, *caveats(results)]
    return Appendix("Inputs", {CAPTION: rows}, notes) if rows else None


def _rows(task: str, records: list[InputRecord]) -> Iterator[dict[str, str]]:
    """A row for all runs that read a task alike."""
    runs: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (run, read_at), splits in _forms(records):
        shares = tuple(_share(splits[split]) if split in splits else "" for split in SPLITS)
        runs.setdefault((read_at, shares), []).append(run)
    for (read_at, shares), names in runs.items():
        yield {
            "task": task,
            "runs": ", ".join(names),
            "labels read at": read_at,
            **{f"{split} cut": share for split, share in zip(SPLITS, shares, strict=True)},
        }


def _forms(
    records: list[InputRecord],
) -> Iterator[tuple[tuple[str, str], dict[str, InputRecord]]]:
    """The records of each run and form by their splits."""
    for key, members in groupby(records, key=lambda record: (record.run, record.read_at)):
        yield key, {record.split: record for record in members}


def _share(record: InputRecord) -> str:
    rows = record.rows_cut / max(record.rows, 1)
    return f"{rows:.1%} ({record.tokens_cut / max(record.tokens, 1):.1%})"


def most_cut(results: Results) -> dict[str, float]:
    """The largest share of a split's rows that is cut, on each task."""
    return {
        task: max((r.rows_cut / max(r.rows, 1) for r in records), default=0.0)
        for task, records in results.inputs.items()
    }


def caveats(results: Results) -> Iterator[str]:
    """Rows that are cut in a share that is noteworthy."""
    cut = most_cut(results).items()
    high = [f"`{task}` {share:.1%}" for task, share in cut if share > NOTEWORTHY]
    if high:
        yield (
            f"Rows were cut at {results.params.finetune.max_tokens} tokens (up to "
            f"{', '.join(high)} of a split's rows): the rest of a text, or of the shots before it, "
            "plays no part. A larger `finetune.max_tokens` keeps it."
        )
