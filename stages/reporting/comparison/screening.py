"""Runs that an estimate kept from being fine-tuned: how tables and pages say it."""

from collections.abc import Iterator

from stages.reporting.comparison.results import Results
from stages.reporting.number_format import formatted


def shown(results: Results, group: str, task: str) -> str | None:
    """In the place of a score; None if the group is not screened out on the task."""
    for each in results.screened_out[task]:
        if each.runs[0] == group:
            return f"screened out by {each.by} ({formatted(each.value, '.3f')})"
    return None


def rows(results: Results) -> list[dict[str, str]]:
    """The table on the pages, the best of each task first."""
    return [
        {
            "task": task,
            "run": ", ".join(each.runs),
            "estimate": each.by,
            "mean": formatted(each.value, ".3f"),
            "rank": str(each.rank),
        }
        for task, some in results.screened_out.items()
        for each in some
    ]


def caveats(results: Results) -> Iterator[str]:
    """What screening leaves unknown, and where it was not possible."""
    screen = results.params.finetune.screen
    if screen is None:
        return
    yield (
        f"Screened by {screen.by} (`finetune.screen`): of the pretrained runs only the "
        f"{screen.keep} with the highest estimate on a task are fine-tuned on it. Estimates are "
        "from frozen states and labels of training. No score is known of a run that is screened "
        "out: it may be better than those compared, and agreement of estimates with scores is "
        "known of the others alone."
    )
    all_kept = [f"`{task}`" for task, some in results.screened_out.items() if not some]
    if all_kept:
        yield (
            f"Nothing was screened out on {', '.join(all_kept)}: at most {screen.keep} pretrained "
            f"runs have {screen.by} there."
        )
