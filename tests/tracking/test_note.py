from stages.tracking.note import LIMIT, REST, note


def test_it_is_short_and_says_where_the_rest_is() -> None:
    lines = [f"- line {i} of the answer, in so many words as a line has" for i in range(200)]
    shown = note("\n".join(lines))
    assert len(shown) <= LIMIT and shown.splitlines()[-1] == REST
    kept = shown.splitlines()[:-2]
    assert kept == lines[: len(kept)] and len(kept) > 10  # whole lines, none left out


def test_nothing_in_it_needs_a_file_beside_it() -> None:
    text = "![a figure](figures/comparison.svg)\n[Audit](#audit): see [here](https://x.org/y)."
    shown = note(f"{text}\n<details><summary>All</summary>\nhidden\n</details>\n**end**")
    assert "figures" not in shown and "#audit" not in shown and "hidden" not in shown
    assert "Audit: see [here](https://x.org/y)." in shown and "**end**" in shown


def test_links_come_first_and_leave_room_for_the_answer() -> None:
    links = [f"[view {i}](#/experiments/1/runs?viewStateShareKey={i:060})" for i in range(99)]
    shown = note("The encoder leads.", links)
    assert shown.startswith(f"- {links[0]}\n") and "The encoder leads." in shown
    assert len(shown) <= LIMIT


def test_a_heading_is_not_its_last_line() -> None:
    shown = note("The answer.\n\n## The next part\n\n" + "x" * LIMIT)
    assert shown.splitlines()[0] == "The answer." and "next part" not in shown


def test_without_a_report_it_says_what_there_will_be() -> None:
    assert note("") == f"\n{REST}"
