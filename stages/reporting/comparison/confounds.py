"""What else differs between two runs that are compared, once for each pair."""

from collections import defaultdict

from stages.reporting.comparison.results import Results


def confound_rows(results: Results) -> list[dict[str, str]]:
    """A row for each pair and axis, with the confounds of all its contrasts. One that only some of
    them have says in how many."""
    members: dict[tuple[str, str, str], list[list[str]]] = defaultdict(list)
    for contrast in results.contrasts:
        pair = _pair(contrast.a.group, contrast.b.group, contrast.level_a, contrast.level_b)
        members[contrast.axis, *pair].append(contrast.confounds)
    return [
        {"axis": axis, "first": one, "second": other, "also differs": _also(lists)}
        for (axis, one, other), lists in members.items()
    ]


def _pair(one: str, other: str, level: str, other_level: str) -> tuple[str, str]:
    """The runs; of one run the two levels, alike for all runs."""
    return (one, other) if one != other else (level, other_level)


def _also(lists: list[list[str]]) -> str:
    """Each confound once: with its amounts if they are the same everywhere, and else without."""
    texts: dict[str, list[str]] = defaultdict(list)
    for confounds in lists:
        for text in confounds:
            name, _, amounts = text.partition(": ")
            texts[name].append(amounts)
    found = []
    for name, amounts in texts.items():
        same = f": {amounts[0]}" if len(set(amounts)) == 1 and amounts[0] else ""
        some = f" (in {len(amounts)} of {len(lists)})" if len(amounts) < len(lists) else ""
        found.append(f"{name}{same}{some}")
    return "; ".join(found) or "nothing that is counted"
