"""Proposes a study of a user's files."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Literal

from stages.core.artifacts import Json
from stages.core.params import NAME, Task
from stages.core.text_files import NotUtf8Error, encoding_of
from stages.findings.drawn_once import FEW_ROWS
from stages.findings.overlap import WITH_LONG_TEXTS
from stages.kinds._cells import EmptyCellError, short, structured
from stages.kinds._kind import KINDS, SPLITS, Split, settings_of
from stages.kinds._labels import LABEL_CASE, NO_LABEL_SIGNS
from stages.kinds.tagging import listed
from stages.prepare_task import check_labels, draws_of, sampled
from stages.proposal.columns import Guess, guess, note_times, profile
from stages.proposal.corpus import choose_corpus
from stages.proposal.design import (
    SPLITS_DRAWN,
    Budget,
    Pace,
    fitted,
    label_budgets,
    least,
    with_published,
)
from stages.proposal.examples import Examples, read_examples, tag_settings, with_columns
from stages.proposal.exports import SPACY, refuse_exports
from stages.proposal.facts import facts
from stages.proposal.files import files_of, source_of
from stages.proposal.flags import Flags, as_make_takes_them, flag_of, roles_of
from stages.proposal.lengths import lengths_of, share_cut
from stages.proposal.public import Candidate, about_published, fetch_candidate, fitting
from stages.proposal.study import (
    MOST_TAGS_PROBED,
    PROBED,
    Study,
    architectures_of,
    entries,
    written,
)
from stages.sources._columns import EMPTY_CELLS, GROUP, NONE, SPLIT_SEED, TIME, draws_test
from stages.sources._formats import format_of
from stages.sources.files import PARALLEL

MOST_ROWS: dict[Split, int] = {"train": 20_000, "validation": 400, "test": 2_000}
LEAST_QA_TOKENS = 128  # a question, and a window of its context
SHOWN_ROWS = 3
# A class is rare if its share is below RARE and below RARE_OF_EVEN times an even share.
RARE, RARE_OF_EVEN = 0.1, 0.5
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
    except ValueError as error:
        raise ValueError(f"{error}\n{as_make_takes_them(str(error))}".rstrip()) from error


def _proposed(
    data: Path, flags: Flags, corpus: Path | None, seconds: float, measure: Measure
) -> Proposal:
    notes = list[str]()
    guessed, examples = _read(data, flags, notes)
    name = _name_of(data)
    task = _task(guessed, examples, notes)
    num = _numbers(examples, flags)
    _check(examples, task, num)
    of_corpus = list[str]()
    text = choose_corpus(examples, guessed.kind, corpus, name, of_corpus)
    lengths = lengths_of(examples, text)
    max_tokens = flags.max_tokens or lengths.max_tokens()
    if guessed.kind == "span_qa" and flags.max_tokens is None:
        max_tokens = LEAST_QA_TOKENS
    if examples.targets:
        task["max_target_tokens"] = lengths.max_target_tokens()
    cut = share_cut(lengths.inputs, max_tokens)
    if guessed.kind in WITH_LONG_TEXTS and cut > MANY_LONG:
        task["long_texts"] = "head_tail"
        notes.append(
            f"{cut:.0%} of the texts are cut: long_texts is head_tail, "
            "so half of the tokens read are from the beginning of a long text and half from its "
            "end, which takes no more time. `long_texts: windows` reads each text as a whole, for "
            "labels that any part may decide; a text of twice max_tokens has three or four "
            "windows, and each takes as long as a short text."
        )
    given = {"split", *SPLITS} & examples.source.keys()
    most = {"max_tokens": max_tokens, "max_target_tokens": task.get("max_target_tokens", 0)}
    notes += [*facts(examples, lengths, most, given=given), *of_corpus]
    budgets = flags.budgets or label_budgets(examples.num["train"], len(examples.labels))
    architectures = architectures_of(guessed.kind)
    draws = _draws_anew(examples, task, num, flags, notes)
    smallest = least(architectures, budgets[0], pretrains=text.pretrains, split_per_seed=draws)
    study = Study(
        name=name,
        kind=guessed.kind,
        task=task,
        source=examples.source,
        min_rows_per_class=flags.min_rows,
        num=num,
        corpus=text,
        design=replace(smallest, architectures=architectures),
        max_tokens=max_tokens,
        num_tags=len(examples.labels) if guessed.kind == "tagging" else 0,
        published=fitting(examples, max_tokens) if guessed.kind in PROBED else None,
    )
    if study.num_tags > MOST_TAGS_PROBED:
        notes.append(
            f"No linear probe: with {study.num_tags} tags it takes longer than full fine-tuning."
        )
    is_there = False
    if study.published is not None and flags.published is not False:
        is_there = _fetched(study.published, flags, notes)
    study = replace(study, design=replace(study.design, published=is_there))
    pace = _paced(study, examples, budgets, measure)
    design = fitted(
        smallest,
        architectures,
        budgets,
        text.tokens,
        pace,
        seconds,
        keep_budgets=bool(flags.budgets),
        published=is_there,
        can_be_probed=study.can_be_probed,
        must_pretrain=corpus is not None,
    )
    if study.published is not None and is_there:
        kept = tuple(budgets) if flags.budgets else smallest.budgets
        pretrains = text.pretrains and corpus is not None
        checkpoint = with_published(can_be_probed=study.can_be_probed)
        with_it = replace(smallest, pretrains=pretrains, budgets=kept, **checkpoint)
        notes.append(about_published(study.published, design, pace.seconds(with_it)))
    if text.pretrains and not design.pretrains:
        needed = replace(design, pretrains=True, pretraining_steps=smallest.pretraining_steps)
        more = ceil(pace.seconds(needed) / 60)
        notes.append(f"No model is pretrained here for want of time: `--minutes {more}` does.")
    study, takes = replace(study, design=design), pace.seconds(design)
    question = f"Which model should be fine-tuned on {data.name}? It takes about {minutes(takes)}."
    comments = [question, "", "What the data were taken for:", *(f"- {note}" for note in notes)]
    if make := as_make_takes_them(" ".join(notes)):
        notes.append(make)  # of what is printed; the file is the same with and without make
    rows = (example.row.items() for example in examples.by_split["train"][:SHOWN_ROWS])
    first = ["; ".join(f"{column}: {short(value)}" for column, value in row) for row in rows]
    return Proposal(
        text=written(study, comments),
        study=study,
        notes=notes,
        rows=first,
        num_train=examples.num["train"],
        seconds=takes,
    )


def _fetched(candidate: Candidate, flags: Flags, notes: list[str]) -> bool:
    """Fetches the checkpoint and returns whether this succeeded. Raises ValueError if it fails and
    the flags require a published checkpoint."""
    try:
        fetch_candidate(candidate)
    except ValueError as error:
        if flags.published:
            raise
        notes.append(f"No published checkpoint is a candidate. {error}")
        return False
    return True


def _paced(study: Study, examples: Examples, budgets: Sequence[Budget], measure: Measure) -> Pace:
    """Measures the seconds of pretraining steps and fine-tuning trials of each architecture."""
    counted = {s: examples.num[s] if n == "all" else n for s, n in study.num.items()}
    raw = entries(replace(study, num=counted))
    # The first run of each architecture states its model, and is pretrained if any run is.
    first: dict[str, str] = {}
    for key, run in raw["pretrain"]["runs"].items():
        if "model" in run:
            first.setdefault(run["model"]["name"], key)
    raw["pretrain"]["runs"] = {key: raw["pretrain"]["runs"][key] for key in first.values()}
    raw["pretrain"]["seeds"] = raw["finetune"]["seeds"] = [1]
    training = raw["finetune"]["methods"]["full"]["training"]
    if isinstance(training["lr"], list):
        training["lr"] = training["lr"][-1]
    return measure(raw, budgets)


def _read(data: Path, flags: Flags, notes: list[str]) -> tuple[Guess, Examples]:
    """Returns the guessed kind and columns of the files, and their rows.

    Raises ValueError for files that cannot be read, and if it is not clear what they hold.
    """
    try:
        source = source_of(data, flags, notes)
        guessed = _guess(source, flags, notes)
        roles = roles_of(KINDS[guessed.kind])
        unused = [key for key in (GROUP, TIME) if getattr(flags, key)]
        if unused and unused[0] not in guessed.settings:
            raise ValueError(
                f"--{unused[0]}: files of words by line and parallel files have no such column"
            )
        if unread := [flag_of(role) for role in flags.columns if role not in roles]:
            raise ValueError(f"{unread[0]}: {guessed.kind} has {', '.join(map(flag_of, roles))}")
        return guessed, _examples(source, guessed, flags, notes)
    except NotUtf8Error as error:
        encoding = encoding_of(Path(error.name))
        advice = f"iconv -f {encoding} -t UTF-8 FILE > NEW, if that is its encoding"
        raise ValueError(f"{error}: {advice}") from None


def _guess(source: Json, flags: Flags, notes: list[str]) -> Guess:
    if source.get("format") == PARALLEL:
        return Guess("seq2seq", dict(flags.columns))
    files = [file for file in files_of(source) if file.split == "train"]
    place = str(files[0].path)
    try:
        records = [r._replace(place=f"{f.path} {r.place}") for f in files for r in f.records()]
    except ValueError as error:
        if "entities" not in str(error):
            raise
        raise ValueError(f"{error}; {SPACY}") from None
    if not records:
        raise ValueError(f"{place}: the file has no rows")
    refuse_exports([record.cells for record in records], place)
    if files[0].format in ("conll", "conllu"):
        usual = {"words": "FORM", "tags": "UPOS"} if files[0].format == "conllu" else {}
        guessed = Guess("tagging", {"words": "words", "tags": "tags"} | usual | dict(flags.columns))
        notes.append(f"tagging: {guessed.columns['tags']} of {guessed.columns['words']}.")
    else:
        own = replace(flags, split=NONE) if "train" in source else flags
        columns = profile(records)
        guessed = guess(columns, own, notes, place=place)
        if source.keys().isdisjoint(SPLITS[1:]):
            note_times(columns, guessed.settings, notes)
    if guessed.kind == "tagging":
        name = str(guessed.columns["tags"])
        cells = {r.place: listed(structured(r.cells.get(name)), "tags") for r in records}
        lists = {p: [*map(str, cell)] for p, cell in cells.items() if isinstance(cell, list)}
        whole = {p: tags for p, tags in lists.items() if all(tags)}
        settings, guessed.task, why = tag_settings(whole, flags, place)
        guessed.settings |= settings
        notes.append(f"{why[0].upper()}{why[1:]}.")
    return guessed


def _examples(source: Json, guessed: Guess, flags: Flags, notes: list[str]) -> Examples:
    """Reads the rows. Rows with an empty cell are left out, and their number is added to
    ``notes``."""
    kind = KINDS[guessed.kind]
    signs = NONE if flags.no_label == [] else flags.no_label
    said: Json = {NO_LABEL_SIGNS: signs, LABEL_CASE: flags.label_case}
    own = {key: said[key] for key in settings_of(type(kind)) if said.get(key) is not None}
    source = with_columns(source, guessed) | own
    try:
        return read_examples(source, kind, notes, flags.min_rows)
    except EmptyCellError as error:
        examples = read_examples(source | {EMPTY_CELLS: "skip"}, kind, notes, flags.min_rows)
        if not examples.by_split["train"]:
            raise
        total = sum(1 for file in files_of(source) for _ in file.records())
        left_out = f"{total - examples.num_read:,} of {total:,} rows"
        notes.append(f"{left_out} have an empty cell ({error}).")
        return examples


def _task(guessed: Guess, examples: Examples, notes: list[str]) -> Json:
    """Returns the entry of the task, with the settings that follow from its rows.

    Raises ValueError for rows that these settings do not allow.
    """
    task: Json = {"name": guessed.kind} | guessed.task
    rows = [(e.id, e.row) for split in SPLITS for e in examples.by_split[split]]
    if guessed.kind == "span_qa":
        num = sum(not row["answers"] for _, row in rows)
        if num:
            task["no_answer"] = True
        said = f"{num:,} of {len(rows):,} questions have no answer: no_answer is true."
        notes.append(said if num else "Every question has an answer.")
    if guessed.kind == "classification" and (rare := _rare_class(examples)):
        task["class_weights"] = "balanced"
        notes.append(rare)
    examples.kind.check_rows(rows, task)
    return task


def _rare_class(examples: Examples) -> str | None:
    """Returns a note on why the loss weights classes, or None if no class is rare."""
    label, number = min(examples.labels.items(), key=lambda item: item[1], default=("", 0))
    share = number / max(sum(examples.labels.values()), 1)
    if not 0 < share < min(RARE, RARE_OF_EVEN / len(examples.labels)):
        return None
    return (
        f"The class {short(label)} has {100 * share:.2g} % of the rows of train: class_weights is "
        "balanced, since the loss of so few rows would hardly count."
    )


def _numbers(examples: Examples, flags: Flags) -> dict[Split, int | Literal["all"]]:
    """Returns the number of rows of each split: all, or the most that a study of minutes can use.

    Raises ValueError if a label budget of the flags is larger than train.
    """
    largest = max([0, *(budget for budget in flags.budgets if budget != "all")])
    if largest > (rows := examples.num["train"]):
        raise ValueError(f"--label-budgets: {largest} labels, but train has {rows:,} rows")
    most = MOST_ROWS | {"train": max(MOST_ROWS["train"], largest)}
    return {s: most[s] if examples.num[s] > most[s] else "all" for s in SPLITS}


def _check(examples: Examples, task: Json, num: dict[Split, int | Literal["all"]]) -> None:
    """Raises ValueError for too few rows and for labels that train lacks, as `prepare_task`
    does."""
    kind = examples.kind
    if few := [split for split in SPLITS if not examples.by_split[split]]:
        total = sum(examples.num.values())
        if own := [split for split in few if split in examples.source]:
            raise ValueError(f"no row of {own[0]} has a label: leave its file out (--train FILE)")
        file = examples.source["path"]
        why = "; a blank line ends each sentence" if total == 1 and kind.lists else ""
        raise ValueError(f"{file}: {total:,} rows are too few: none is in {' and '.join(few)}{why}")
    numbers = {f"num_{split}": num[split] for split in SPLITS}
    entry = Task.model_validate({"task": task, "source": examples.source, "seed": 1} | numbers)
    chosen = sampled(examples.by_split, entry, kind, where="data")
    if kind.has_classes:
        check_labels(chosen, kind, where=f"{examples.source['path']}: task")
    if kind.has_classes and not examples.labels:
        raise ValueError(f"{examples.source['path']}: no row of train has a label")
    kind.check_labels(sorted(examples.labels), task)
    kind.facts([example.row for example in chosen["train"]])


def _draws_anew(
    examples: Examples,
    task: Json,
    num: dict[Split, int | Literal["all"]],
    flags: Flags,
    notes: list[str],
) -> bool:
    """Returns whether each fine-tuning seed should draw the splits: if rows are few, have no groups
    and no given seed or splits, and every draw can be used. Adds the reason to ``notes``."""
    rows, source = sum(examples.num.values()), examples.source
    if rows >= FEW_ROWS or {GROUP, SPLIT_SEED} & source.keys() or not draws_test(source):
        return False
    numbers = {f"num_{split}": num[split] for split in SPLITS}
    numbers |= {"min_rows_per_class": flags.min_rows, "seed": 1}
    seeds = [*range(1, SPLITS_DRAWN + 1)]
    entry = Task.model_validate({"task": task, "source": source, "split_seeds": seeds} | numbers)
    few = f"{rows:,} rows are few: scores depend on which of them are drawn for train and test"
    largest = max((int(budget) for budget in flags.budgets if budget != "all"), default=0)
    try:
        drawn = draws_of(entry, examples.kind, where="data")
        if (fewest := min(len(draw.examples["train"]) for draw in drawn)) < largest:
            raise ValueError(f"one has {fewest} train rows, fewer than --label-budgets {largest}")
    except ValueError as error:
        notes.append(f"{few}. They are drawn once, since not every draw can be used: {error}.")
        return False
    notes.append(f"{few}, so each of {SPLITS_DRAWN} seeds draws them anew (split_per_seed).")
    return True


def _name_of(data: Path) -> str:
    """Returns a name for the study and its task: ``reviews`` for ``reviews.csv.gz``."""
    name = data.name.removesuffix(".gz")
    stem = name.removesuffix(f".{format_of(data)}") if data.is_file() else name
    name = re.sub(r"[^a-z0-9]+", "_", stem.lower()).strip("_")
    return name if re.fullmatch(NAME, name) else f"task_{name}".strip("_")


def minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"
