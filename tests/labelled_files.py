"""Small labelled files of made-up rows in every format, and studies proposed for them."""

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pyarrow
import pyarrow.parquet

from stages import prepare_task
from stages.core.artifacts import Json
from stages.core.params import Params
from stages.core.plans import TaskPlan
from stages.core.study_file import load
from stages.proposal.design import EPOCHS, FROZEN, Budget, Pace
from stages.proposal.flags import Flags
from stages.proposal.propose import propose
from stages.proposal.study import Study
from tests.smoke import plans

NUM = 60
THINGS = ("film", "book", "song", "play", "meal", "hotel")
GOOD, BAD = ("a fine and lively", "one very warm"), ("a dull and slow", "one rather cold")
STEP_S, TRIAL_S = 0.4, 10.0


def texts(num: int = NUM) -> list[tuple[str, str]]:
    """Returns pairs of a text and its label, in which no text occurs twice."""
    pairs = []
    for i in range(num):
        kinds, label = (GOOD, "good") if i % 2 else (BAD, "bad")
        pairs.append((f"{kinds[i // 2 % 2]} {THINGS[i % 6]} of the year {1900 + i}", label))
    return pairs


def table(rows: Sequence[Sequence[object]], sign: str = ",") -> str:
    return "".join(sign.join(map(str, row)) + "\n" for row in rows)


def classified(sign: str = ",") -> str:
    return table([("review", "stars"), *texts()], sign)


def squad(num: int = NUM) -> str:
    paragraphs = []
    for i, (text, _) in enumerate(texts(num)):
        start = text.index(THINGS[i % 6])
        answer = {"text": THINGS[i % 6], "answer_start": start}
        question = {"id": f"q{i}", "question": f"What was made in {i}?", "answers": [answer]}
        paragraphs.append({"context": f"{text}.", "qas": [question]})
    return json.dumps({"data": [{"title": "Years", "paragraphs": paragraphs}]})


def tagged(inside: str = "B-PLACE", num: int = NUM, sign: str = "\t") -> str:
    """Returns sentences in which a span of one word directly follows a span of two words."""
    begin, second = inside, "B-PLACE"
    lines = []
    for i in range(num):
        words = [f"He{i}", "saw", "Old", "Town", "Rome"]
        tags = ["O", "O", begin, "I-PLACE", second]
        lines += [f"{word}{sign}{tag}" for word, tag in zip(words, tags, strict=True)] + [""]
    return "\n".join(lines) + "\n"


def conllu(num: int = NUM) -> str:
    lines = []
    for i in range(num):
        for n, (word, tag) in enumerate([(f"He{i}", "PRON"), ("runs", "VERB"), (".", "PUNCT")], 1):
            lines.append("\t".join([str(n), word, "_", tag, *"______"]))
        lines.append("")
    return "\n".join(lines) + "\n"


def objects(rows: Sequence[Json]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def write_parquet(path: Path) -> None:
    read, labels = zip(*texts(), strict=True)
    pyarrow.parquet.write_table(pyarrow.table({"text": [*read], "label": [*labels]}), path)


def paced(raw: Json, budgets: Sequence[Budget], num_outputs: int) -> Pace:
    """Returns a made-up pace in place of a measurement."""
    names = {run["architecture"]["name"] for run in raw["models"].values()}
    return Pace(
        step_s=dict.fromkeys(names, STEP_S),
        trials_s=dict.fromkeys(product(names, (FROZEN, *EPOCHS), budgets), TRIAL_S),
    )


def proposed(
    path: str | Path, *, corpus: Path | None = None, minutes: float = 10, **flags: object
) -> Study:
    options = Flags(**flags)  # type: ignore[arg-type]
    return propose(Path(path), options, corpus=corpus, seconds=60 * minutes, measure=paced)


def study_of(proposal: Study) -> Params:
    """Returns the study that a proposal writes to ``params.yaml``, typed."""
    path = Path("params.yaml")
    path.write_text(proposal.text)
    return load(path)


def prepare(params: Params, task: str) -> None:
    """Prepares a task of a proposed study, as its stage does."""
    plan = plans(params)["prepare_task", task]
    assert isinstance(plan, TaskPlan)
    prepare_task.main(plan, task)
