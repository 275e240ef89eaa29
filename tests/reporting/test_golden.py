"""The words of a whole report, compared with files that a person has read.

``python -m tests.reporting.test_golden`` writes them anew: read what changed before you commit it.
"""

import os
import re
import tempfile
from pathlib import Path

import pytest

from stages.findings.results import load
from stages.matching.budget import matched
from stages.reporting.page import pages
from tests.study_results import undrawn
from tests.synthetic_study import RUNS, raw_params, repeated, write_study

GOLDEN = Path(__file__).parent / "golden"
NAMES = ("encoder_mlm", "encoder_scratch", "decoder_causal", "encoder_scientific", "encoder_small")


def written(folder: Path) -> dict[str, str]:
    """The Markdown report without parts that depend on the machine, and the page's first screen,
    for a study with two seeds of each run, two label budgets and screening."""
    raw = raw_params(repeated({name: RUNS[name] for name in NAMES}, 2))
    del raw["tasks"]["section"]
    raw["tasks"]["tag"]["about"] = "Names in abstracts & titles."
    raw["finetune"] |= {"label_budgets": [100, 200], "seeds": [1, 2]}
    raw["finetune"]["screen"] = {"by": "h_score", "keep": 3}
    before = Path.cwd()
    os.chdir(folder)
    try:
        results = load(matched(write_study(folder, raw)))
        html = pages.html(results, undrawn(results))
        markdown = pages.markdown(results)
    finally:
        os.chdir(before)
    first_screen = html[html.index('<section id="answer">') : html.index('<section id="scores">')]
    text = re.sub(r"<[^>]+>", "", first_screen)
    return {
        "comparison.md": markdown[: markdown.index("<details><summary>How to reproduce")],
        "answer.txt": re.sub(r"\n\s*\n+", "\n", text).strip() + "\n",
    }


@pytest.mark.slow
def test_the_report_is_as_it_was_read(tmp_path: Path) -> None:
    for name, text in written(tmp_path).items():
        assert text == (GOLDEN / name).read_text(encoding="utf-8"), name


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as root:
        for file, words in written(Path(root)).items():
            (GOLDEN / file).write_text(words, encoding="utf-8")
