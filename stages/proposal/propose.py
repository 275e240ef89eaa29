"""From one's files to a study of them."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
from ruamel.yaml import YAML

from stages.core.artifacts import Json
from stages.core.parallel import cores
from stages.core.params import NAME, Task
from stages.kinds._cells import EmptyCellError
from stages.kinds._kind import KINDS, SPLITS, Split
from stages.prepare_task import check_labels, sampled
from stages.proposal.asked import Asked, Notes
from stages.proposal.columns import guess
from stages.proposal.corpus import choose_corpus
from stages.proposal.design import Budget, Pace, fitted, label_budgets, least
from stages.proposal.examples import Examples, read_examples, tag_scheme
from stages.proposal.facts import facts
from stages.proposal.form import encoding_advice
from stages.proposal.layout import SAMPLED, Layout, lay_out
from stages.proposal.profile import is_empty, profile
from stages.proposal.public import about_published, fitting, is_whole
from stages.proposal.roles import Guess
from stages.proposal.study import MOST_TAGS_PROBED, Study, architectures_of, written
from stages.sources._columns import EMPTY_CELLS
from stages.sources._formats import format_of

MOST_ROWS: dict[Split, int] = {"train": 20_000, "validation": 400, "test": 2_000}
LEAST_QA_TOKENS = 128  # a question, and a window of its context
MOST_THREADS = 8  # more do not make models so small faster
Measure = Callable[[Json, Sequence[Budget], int], Pace]


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """The text of params.yaml, what was seen, and the seconds that the study will take."""

    text: str
    study: Study
    notes: Notes
    seconds: float


def propose(
    data: Path, asked: Asked, *, text: Path | None, seconds: float, measure: Measure
) -> Proposal:
    """Raises ValueError for data that no study can be made of."""
    notes = Notes()
    layout = lay_out(data, asked, notes)
    layout, guessed, examples = _read(layout, asked, notes)
    name = _name_of(data)
    task = _task(guessed, examples, notes)
    max_tokens = asked.max_tokens or examples.fitting_tokens()
    if guessed.kind == "span_qa" and asked.max_tokens is None:
        max_tokens = LEAST_QA_TOKENS
    num = _numbers(examples, asked, layout)
    _check(examples, task, num)
    notes.seen += facts(examples, max_tokens, given={s for s in layout.files.values() if s})
    corpus = choose_corpus(examples, guessed.kind, text, name, notes)
    budgets = asked.budgets or label_budgets(examples.num["train"], len(examples.labels))
    architectures = architectures_of(guessed.kind)
    smallest = least(architectures, budgets[0], pretrains=corpus.pretrains)
    study = Study(
        name=name,
        kind=guessed.kind,
        task=task,
        source=examples.source,
        num=num,
        corpus=corpus,
        design=replace(smallest, architectures=architectures),
        max_tokens=max_tokens,
        threads=min(cores(), MOST_THREADS),
        num_tags=len(examples.labels) if guessed.kind == "tagging" else 0,
        published=fitting(guessed.kind, examples, max_tokens),
    )
    if study.num_tags > MOST_TAGS_PROBED:
        notes.seen.append(
            f"No linear probe: with {study.num_tags} tags it takes longer than full fine-tuning."
        )
    is_there = study.published is not None and is_whole(study.published)
    study = replace(study, design=replace(study.design, published=is_there))
    pace = _paced(study, examples, budgets, measure)
    design = fitted(
        architectures,
        budgets,
        corpus.tokens,
        pace,
        seconds,
        pretrains=corpus.pretrains,
        asked=bool(asked.budgets),
        published=is_there,
    )
    if study.published is not None:
        kept = tuple(budgets) if asked.budgets else smallest.budgets
        with_it = replace(smallest, published=True, budgets=kept)
        least_s = pace.seconds(with_it) if is_there else None
        notes.seen.append(about_published(study.published, design, least_s))
    study, takes = replace(study, design=design), pace.seconds(design)
    written_study = written(study, _comments(data, notes, takes))
    return Proposal(text=written_study, study=study, notes=notes, seconds=takes)


def _paced(study: Study, examples: Examples, budgets: Sequence[Budget], measure: Measure) -> Pace:
    """By a study with one run of each architecture."""
    counted = {split: _counted(study.num[split], examples.num[split]) for split in SPLITS}
    raw = _one_run_each(YAML(typ="safe").load(written(replace(study, num=counted), [])))
    training = raw["finetune"]["methods"]["full"]["training"]
    if isinstance(training["lr"], list):
        training["lr"] = training["lr"][-1]
    mean = round(float(np.minimum(examples.tokens, study.max_tokens).mean()))
    # Windows of a context are as long as they can be.
    return measure(raw, budgets, study.max_tokens if study.kind == "span_qa" else max(mean, 8))


def _read(layout: Layout, asked: Asked, notes: Notes) -> tuple[Layout, Guess, Examples]:
    try:
        return _guessed(layout, asked, notes)
    except ValueError as error:
        if layout.is_sampled:
            raise ValueError(f"{error}; only the first {SAMPLED:,} rows were looked at") from None
        if "is not UTF-8" not in str(error):
            raise
        broken = [file for file in layout.files if str(file) in str(error)]
        advice = encoding_advice((broken or [*layout.files])[0])
        raise ValueError(f"{error}; {advice}") from None


def _guessed(layout: Layout, asked: Asked, notes: Notes) -> tuple[Layout, Guess, Examples]:
    place = str(next(iter(layout.files)))
    if layout.languages:
        text, target = layout.languages
        guessed = Guess("seq2seq", {"text": text, "target": target})
    else:
        guessed = guess(profile(layout.profiled()), asked, notes, place=place)
    if layout.names is not None and asked.names is None:
        roles = {name: role for role, name in guessed.columns.items() if isinstance(name, str)}
        layout = replace(layout, names=[roles.get(name, name) for name in layout.names])
        guessed.columns = {r: r if isinstance(n, str) else n for r, n in guessed.columns.items()}
    if guessed.kind == "tagging":
        tags = guessed.columns["tags"]
        cells = [record.cells for record in layout.profiled()]
        scheme, why = tag_scheme([[str(t) for t in _cell(c, str(tags))] for c in cells])
        scheme = asked.tag_scheme or scheme
        guessed.settings["tag_scheme"] = scheme or "bio"
        notes.seen.append(why[0].upper() + why[1:] + ".")
    try:
        layout, examples = read_examples(layout, guessed, notes)
    except EmptyCellError:
        guessed.settings[EMPTY_CELLS] = "skip"
        layout, examples = read_examples(layout, guessed, notes)
        if not examples.by_split["train"]:
            raise
        notes.seen.append(_num_empty(layout, guessed))
    return layout, guessed, examples


def _num_empty(layout: Layout, guessed: Guess) -> str:
    """How many rows have an empty cell that a row of the task needs."""
    kind = KINDS[guessed.kind]
    names = [guessed.columns[role] for role in kind.columns if role in guessed.columns]
    needed = [n for each in names for n in (each if isinstance(each, list) else [each])]
    num = empty = 0
    for file in layout.files:
        for record in islice(layout.records(file), SAMPLED if layout.is_large(file) else None):
            num += 1
            cells = [record.cells.get(name) for name in needed]
            empty += any(
                is_empty(c) or (isinstance(c, list) and any(map(is_empty, c))) for c in cells
            )
    return f"{empty:,} of {num:,} rows lack {' or '.join(needed)} and are left out ({EMPTY_CELLS})."


def _cell(cells: Json, name: str) -> list[object]:
    value = cells.get(name)
    return value if isinstance(value, list) else []


def _task(guessed: Guess, examples: Examples, notes: Notes) -> Json:
    """The entry of the task, with the settings that the rows decide.

    Raises ValueError for rows that do not go with them.
    """
    task: Json = {"name": guessed.kind}
    rows = [(each.id, each.row) for split in SPLITS for each in examples.by_split[split]]
    if guessed.kind == "tagging":
        task["label_subwords"] = "auto"
        tags = [row["tags"] for _, row in rows]
        if tag_scheme(tags)[0] is None:
            task["metric"] = "word_accuracy"
    if guessed.kind == "span_qa" and any(not row["answers"] for _, row in rows):
        task["no_answer"] = True
        num = sum(not row["answers"] for _, row in rows)
        notes.seen.append(f"{num:,} questions have no answer: no_answer is true.")
    if guessed.kind == "seq2seq":
        words = [1.5 * len(row["target"].split()) + 2 for _, row in rows]
        most = float(np.quantile(words, 0.95))
        task["max_target_tokens"] = next((n for n in (16, 32, 64, 128) if n >= most), 128)
    examples.kind.check_rows(rows, task)
    return task


def _numbers(examples: Examples, asked: Asked, layout: Layout) -> dict[Split, int | Literal["all"]]:
    """How many rows of each split: all, or what a study of minutes can use."""
    found: dict[Split, int | Literal["all"]] = {}
    for split, most in MOST_ROWS.items():
        there = examples.num[split]
        wanted = [b for b in asked.budgets if b != "all"] if split == "train" else []
        most = max([most, *map(int, wanted)])
        if wanted and max(map(int, wanted)) > there:
            raise ValueError(f"--labels: {max(wanted)} labels, but train has {there:,} rows")
        found[split] = min(most, there) if there > most or layout.is_sampled else "all"
    return found


def _check(examples: Examples, task: Json, num: dict[Split, int | Literal["all"]]) -> None:
    """As the task will be prepared. Raises ValueError for too few rows, and for labels that train
    lacks."""
    kind = examples.kind
    few = [split for split in SPLITS if not examples.by_split[split]]
    if few:
        total = sum(examples.num.values())
        raise ValueError(f"{total:,} rows are too few: none is in {' and '.join(few)}")
    numbers = {f"num_{split}": num[split] for split in SPLITS}
    entry = Task(task=task, source=examples.source, seed=1, **numbers)
    chosen = sampled(examples.by_split, entry, kind, where="data")
    if kind.has_classes:
        try:
            check_labels(chosen, kind, where="data")
        except ValueError as error:
            said = str(error).removeprefix("data.source: ")
            raise ValueError(
                f"{said}; give its rows another label or leave them out, since nobody can learn a "
                "label without an example"
            ) from None
    kind.check_labels(sorted(examples.labels), task)
    kind.facts([each.row for each in chosen["train"]])


def _counted(asked: int | Literal["all"], there: int) -> int:
    return there if asked == "all" else asked


def _one_run_each(raw: Json) -> Json:
    """Of each architecture its first run, which is pretrained if any is."""
    seen: set[str] = set()
    runs = {}
    for key, run in raw["pretrain"].items():
        if run["model"]["name"] not in seen:
            seen.add(run["model"]["name"])
            runs[key] = run
    return raw | {"pretrain": runs, "finetune": raw["finetune"] | {"seeds": [1]}}


def _name_of(data: Path) -> str:
    """A name for the study and its task: reviews of reviews.csv.gz."""
    name = data.name.removesuffix(".gz")
    stem = name.removesuffix(f".{format_of(data)}") if data.is_file() else name
    name = re.sub(r"[^a-z0-9]+", "_", stem.lower()).strip("_")
    return name if re.fullmatch(NAME, name) else f"task_{name}".strip("_")


def _comments(data: Path, notes: Notes, seconds: float) -> list[str]:
    said = [f"Which model should be fine-tuned on {data.name}? It takes about {minutes(seconds)}."]
    said += ["", "What the data were taken for:", *(f"- {line}" for line in notes.seen)]
    if notes.unclear:
        said += ["", "What they leave open:", *(f"- {line}" for line in notes.unclear)]
    return said


def minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"
