"""Proposes a study of a user's files."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

from ruamel.yaml import YAML

from stages.core.artifacts import Json
from stages.core.params import NAME, NumberOrAll, Task
from stages.core.text_files import NotUtf8Error, encoding_of
from stages.prepare_task import check_labels, draws_of, sampled
from stages.proposal.columns import Guess, guess, note_times, profile
from stages.proposal.corpus import FEW_ROWS, choose_corpus
from stages.proposal.design import (
    SPLITS_DRAWN,
    Budget,
    Design,
    Pace,
    fitted,
    label_budgets,
    least,
    with_published,
)
from stages.proposal.examples import Examples, read_examples, with_columns
from stages.proposal.facts import facts
from stages.proposal.files import files_of, source_of
from stages.proposal.flags import Flags, as_make_takes_them, roles_of
from stages.proposal.forms import SPACY, refuse_objects
from stages.proposal.lengths import lengths_of, share_cut
from stages.proposal.public import about_published, fetch_candidate, fitting
from stages.proposal.study import MOST_TAGS_PROBED, Study, families_for, written
from stages.proposal.tags import tag_settings
from stages.sources._columns import EMPTY_CELLS, GROUP, NONE, SPLIT_SEED, TIME, draws_test
from stages.sources._formats import format_of
from stages.sources.files import PARALLEL
from stages.tasks._cells import EmptyCellError, short, structured
from stages.tasks._kind import SPLITS, Split, settings_of
from stages.tasks._labels import LABEL_CASE, NO_LABEL_SIGNS
from stages.tasks._task import TASKS
from stages.tasks.tagging import listed

MAX_ROWS: dict[Split, int] = {"train": 20_000, "validation": 400, "test": 2_000}
LEAST_QA_TOKENS = 128  # a question, and a window of its context
SHOWN_ROWS = 3
# A class is rare if its share is below RARE and below RARE_OF_EVEN times an even share.
RARE, RARE_OF_EVEN = 0.1, 0.5
# Tasks with the setting ``long_texts``.
WITH_LONG_TEXTS = ("classification", "multi_label", "regression")
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
        raise ValueError(f"{error}\n{as_make_takes_them(str(error))}".rstrip()) from error


def _proposed(
    data: Path, flags: Flags, corpus: Path | None, seconds: float, measure: Measure
) -> Proposal:
    notes = list[str]()
    source = source_of(data, flags, notes)
    guessed = _guess(source, flags, notes)
    examples, name = _examples(source, guessed, flags, notes), _name_of(data)
    kind, task = guessed.kind, _task(guessed, examples, notes)
    num = _numbers(examples, task, flags)
    of_corpus = list[str]()
    text = choose_corpus(examples, corpus, name, of_corpus)
    lengths = lengths_of(examples, text)
    max_tokens = LEAST_QA_TOKENS if kind == "span_qa" else lengths.max_tokens()
    max_tokens = flags.max_tokens or max_tokens
    if examples.targets:
        task["max_target_tokens"] = lengths.max_target_tokens()
    if kind in WITH_LONG_TEXTS and (cut := share_cut(lengths.inputs, max_tokens)) > MANY_LONG:
        task["long_texts"] = "head_tail"
        notes.append(
            f"{cut:.0%} of the texts are cut: long_texts is head_tail, so half of the tokens read "
            "are from the beginning of a long text and half from its end, which takes no more time."
        )
    given = {"split", *SPLITS} & examples.source.keys()
    most = {"max_tokens": max_tokens, "max_target_tokens": task.get("max_target_tokens", 0)}
    notes += [*facts(examples, lengths, most, given=given), *of_corpus]
    budgets = flags.label_budgets or label_budgets(examples.num["train"], len(examples.labels))
    families = families_for(kind)
    draws = _draws_anew(examples, task, num, flags, notes)
    smallest = least(families, budgets[0], pretrains=text.pretrains, split_per_seed=draws)
    study = Study(
        name=name,
        kind=kind,
        task=task,
        source=examples.source,
        min_rows=flags.min_rows_per_class,
        num=num,
        corpus=text,
        design=replace(smallest, architectures=families),
        max_tokens=max_tokens,
        num_tags=len(examples.labels) if kind == "tagging" else 0,
        published=None if kind == "seq2seq" else fitting(examples, max_tokens),
    )
    if study.num_tags > MOST_TAGS_PROBED:
        notes.append(
            f"No linear probe: with {study.num_tags} tags it takes longer than full fine-tuning."
        )
    if study.published is not None and flags.published is not False:
        try:
            fetch_candidate(study.published)
            study = replace(study, design=replace(study.design, published=True))
        except ValueError as error:
            if flags.published:
                raise
            notes.append(f"No published checkpoint is a candidate. {error}")
    pace = _paced(study, examples, budgets, measure)
    study = _fitted(study, smallest, budgets, flags, pace, seconds, notes, own=corpus is not None)
    takes = pace.seconds(study.design)
    question = f"Which model should be fine-tuned on {data.name}? It takes about {minutes(takes)}."
    comments = [question, "", "What the data were taken for:", *(f"- {note}" for note in notes)]
    if make := as_make_takes_them(" ".join(notes)):
        notes.append(make)  # of what is printed; the file is the same with and without make
    rows = (example.row.items() for example in examples.by_split["train"][:SHOWN_ROWS])
    return Proposal(
        text=written(study, comments),
        study=study,
        notes=notes,
        rows=["; ".join(f"{column}: {short(value)}" for column, value in row) for row in rows],
        num_train=examples.num["train"],
        seconds=takes,
    )


def _fitted(
    study: Study,
    smallest: Design,
    budgets: list[Budget],
    flags: Flags,
    pace: Pace,
    seconds: float,
    notes: list[str],
    *,
    own: bool,
) -> Study:
    """Returns the largest study that fits into ``seconds``, and adds what it leaves out to
    ``notes``; ``own`` is whether the user gave text to pretrain on."""
    has_published, pretrains = study.design.published, study.corpus.pretrains
    design = fitted(
        smallest,
        study.design.architectures,
        budgets,
        study.corpus.tokens,
        pace,
        seconds,
        keep_budgets=bool(flags.label_budgets),
        published=has_published,
        can_be_probed=study.can_be_probed,
        must_pretrain=own,
    )
    if study.published is not None and has_published:
        kept = tuple(budgets) if flags.label_budgets else smallest.budgets
        checkpoint = with_published(can_be_probed=study.can_be_probed)
        with_it = replace(smallest, pretrains=pretrains and own, budgets=kept, **checkpoint)
        notes.append(about_published(study.published, design, pace.seconds(with_it)))
    if pretrains and not design.pretrains:
        needed = replace(design, pretrains=True, pretraining_steps=smallest.pretraining_steps)
        more = ceil(pace.seconds(needed) / 60)
        notes.append(f"No model is pretrained here for want of time: `--minutes {more}` does.")
    return replace(study, design=design)


def _paced(study: Study, examples: Examples, budgets: Sequence[Budget], measure: Measure) -> Pace:
    """Measures the seconds of pretraining steps and fine-tuning trials of each architecture."""
    counted = {s: examples.num[s] if n == "all" else n for s, n in study.num.items()}
    raw = YAML(typ="safe").load(written(replace(study, num=counted)))
    # The first run of each architecture states it, and is pretrained if any run is.
    first: dict[str, str] = {}
    for key, run in raw["pretrain"]["runs"].items():
        if "architecture" in run:
            first.setdefault(run["architecture"]["name"], key)
    raw["pretrain"]["runs"] = {key: raw["pretrain"]["runs"][key] for key in first.values()}
    raw["pretrain"]["seeds"] = raw["finetune"]["seeds"] = [1]
    return measure(raw, budgets)


def _guess(source: Json, flags: Flags, notes: list[str]) -> Guess:
    """Returns the guessed kind and columns of the files.

    Raises ValueError for files that cannot be read, and if it is not clear what they hold.
    """
    files = [] if source.get("format") == PARALLEL else files_of(source)
    files = [file for file in files if file.split == "train"]
    if not files:
        guessed = Guess("seq2seq", dict(flags.columns))
    else:
        place = str(files[0].path)
        try:
            records = [r._replace(place=f"{f.path} {r.place}") for f in files for r in f.records()]
        except ValueError as error:
            raise ValueError(f"{error}; {SPACY}" if "entities" in str(error) else error) from error
        if not records:
            raise ValueError(f"{place}: the file has no rows")
        refuse_objects([record.cells for record in records], place)
        if files[0].format in ("conll", "conllu"):
            usual = {"words": "words", "tags": "tags"}
            if files[0].format == "conllu":
                usual = {"words": "FORM", "tags": "UPOS"}
            guessed = Guess("tagging", usual | dict(flags.columns))
            notes.append(f"tagging: {guessed.columns['tags']} of {guessed.columns['words']}.")
        else:
            own = flags.model_copy(update={"split": NONE}) if "train" in source else flags
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
    unused = [key for key in (GROUP, TIME) if getattr(flags, key) and key not in guessed.settings]
    if unused:
        raise ValueError(
            f"--{unused[0]}: files of words by line and parallel files have no such column"
        )
    roles = roles_of(TASKS[guessed.kind])
    if unread := [role for role in flags.columns if role not in roles]:
        raise ValueError(f"{unread[0]}: {guessed.kind} has {', '.join(roles)}")
    return guessed


def _examples(source: Json, guessed: Guess, flags: Flags, notes: list[str]) -> Examples:
    """Reads the rows. Rows with an empty cell are left out, and their number is added to
    ``notes``."""
    kind = TASKS[guessed.kind]
    signs = NONE if flags.no_label == [] else flags.no_label
    said: Json = {NO_LABEL_SIGNS: signs, LABEL_CASE: flags.label_case}
    own = {key: said[key] for key in settings_of(kind) if said.get(key) is not None}
    source, least_rows = with_columns(source, guessed) | own, flags.min_rows_per_class
    try:
        return read_examples(source, kind, notes, least_rows)
    except EmptyCellError as error:
        examples = read_examples(source | {EMPTY_CELLS: "skip"}, kind, notes, least_rows)
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
    labels = examples.labels
    label, number = min(labels.items(), key=lambda item: item[1], default=("", 0))
    share = number / max(sum(labels.values()), 1)
    if guessed.kind == "classification" and share < min(RARE, RARE_OF_EVEN / len(labels)):
        task["class_weights"] = "balanced"
        notes.append(
            f"The class {short(label)} has {100 * share:.2g}% of the rows of train: class_weights "
            "is balanced, since the loss of so few rows would hardly count."
        )
    examples.kind.check_rows(rows, task)
    return task


def _numbers(examples: Examples, task: Json, flags: Flags) -> dict[Split, NumberOrAll]:
    """Returns the number of rows of each split: all, or the most that a study of minutes can use.

    Raises ValueError as `prepare_task` does, for too few rows and for labels that train lacks, and
    if a label budget of the flags is larger than train.
    """
    kind, file = examples.kind, examples.source["path"]
    if few := [split for split in SPLITS if not examples.by_split[split]]:
        total = sum(examples.num.values())
        if own := [split for split in few if split in examples.source]:
            raise ValueError(
                f"no row of {own[0]} has a label: leave its file out (--set train=FILE)"
            )
        why = "; a blank line ends each sentence" if total == 1 and kind.lists else ""
        raise ValueError(f"{file}: {total:,} rows are too few: none is in {' and '.join(few)}{why}")
    largest = max([0, *(budget for budget in flags.label_budgets if budget != "all")])
    if largest > (rows := examples.num["train"]):
        raise ValueError(f"label_budgets: {largest} labels, but train has {rows:,} rows")
    most = MAX_ROWS | {"train": max(MAX_ROWS["train"], largest)}
    num: dict[Split, NumberOrAll] = {
        s: most[s] if examples.num[s] > most[s] else "all" for s in SPLITS
    }
    chosen = sampled(examples.by_split, _entry(examples, task, num), kind, where="data")
    if kind.has_classes:
        check_labels(chosen, kind, where=f"{file}: task")
    if kind.has_classes and not examples.labels:
        raise ValueError(f"{file}: no row of train has a label")
    kind.check_labels(sorted(examples.labels), task)
    kind.facts([example.row for example in chosen["train"]])
    return num


def _entry(
    examples: Examples, task: Json, num: dict[Split, NumberOrAll], **settings: object
) -> Task:
    numbers = {f"num_{split}": num[split] for split in SPLITS}
    return Task(task=task, source=examples.source, seed=1, **numbers, **settings)  # type: ignore[arg-type]


def _draws_anew(
    examples: Examples, task: Json, num: dict[Split, NumberOrAll], flags: Flags, notes: list[str]
) -> bool:
    """Returns whether each fine-tuning seed should draw the splits: if rows are few, have no groups
    and no given seed or splits, and every draw can be used. Adds the reason to ``notes``."""
    rows, source = sum(examples.num.values()), examples.source
    if rows >= FEW_ROWS or {GROUP, SPLIT_SEED} & source.keys() or not draws_test(source):
        return False
    seeds, least_rows = [*range(1, SPLITS_DRAWN + 1)], flags.min_rows_per_class
    entry = _entry(examples, task, num, split_seeds=seeds, min_rows_per_class=least_rows)
    few = f"{rows:,} rows are few: scores depend on which of them are drawn for train and test"
    largest = max((int(budget) for budget in flags.label_budgets if budget != "all"), default=0)
    try:
        drawn = draws_of(entry, examples.kind, where="data")
        if (fewest := min(len(draw.examples["train"]) for draw in drawn)) < largest:
            raise ValueError(f"one has {fewest} train rows, fewer than label_budgets {largest}")
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
