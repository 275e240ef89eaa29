"""Proposes a study of a user's files."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Int
from ruamel.yaml import YAML

from stages.core.artifacts import Json
from stages.core.params import NAME, TaskEntry
from stages.prepare_task import check_labels, draws_of, sampled
from stages.proposal.checkpoints import ENGLISH, candidates, fetch_published, known
from stages.proposal.columns import Column, columns_of
from stages.proposal.corpus import FEW_ROWS, LATIN, choose_corpus
from stages.proposal.design import (
    EPOCHS,
    RESERVE,
    SPLITS_DRAWN,
    Budget,
    Design,
    Pace,
    fitted,
    label_budgets,
)
from stages.proposal.files import files_of, source_of
from stages.proposal.flags import Flags, roles_of
from stages.proposal.forms import odd_texts, refuse_known
from stages.proposal.looks import languages, look_at, unread_columns
from stages.proposal.names import names_of_numbers
from stages.proposal.questions import Note, Unclear, by_weight
from stages.proposal.roles import Guess, guess
from stages.proposal.rows import Examples, notes_on_rows, read_examples
from stages.proposal.study import MOST_TAGS_PROBED, Study, written
from stages.proposal.tags import tag_settings
from stages.sources._columns import GROUP, NONE, SPLIT_SEED, TIME, draws_test
from stages.sources._formats import format_of
from stages.sources.files import PARALLEL
from stages.tasks._cells import short, structured
from stages.tasks._task import SPLITS, TASKS, Split, settings_of
from stages.tasks.tagging import listed as listed_tags

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
Measure = Callable[[Json, Sequence[Budget], int], Pace]


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
        if flags.format == "auto":
            refuse_known(data, always=True)
        return _proposed(data, flags, corpus, seconds, measure)
    except ValueError as error:
        refuse_known(data, always=False, is_named=flags.format != "auto")
        if "--" not in str(error) or "MAKELEVEL" not in os.environ:
            raise
        how = 'With make: FLAGS="--label NAME", TEXT=FOLDER for --corpus, MINUTES=20 for --minutes.'
        raise ValueError(f"{error}\n{how}") from error


def _proposed(
    data: Path, flags: Flags, corpus: Path | None, seconds: float, measure: Measure
) -> Proposal:
    notes = list[str]()
    source = source_of(data, flags, notes)
    guessed = _guess(source, flags, notes)
    examples, kind = read_examples(source, guessed, flags, notes), guessed.kind
    notes += look_at(examples, flags)
    name, task = _name_of(data), _task(guessed, examples, notes)
    entry = _entry(examples, task, flags)
    notes += [*notes_on_rows(examples), *odd_texts(examples.inputs, files_of(source)[0].path)]
    about_corpus = list[str]()
    text = choose_corpus(examples, corpus, name, about_corpus)

    inputs = text.lengths(examples.inputs, examples.count_words(examples.inputs)) + 2
    max_tokens = _fitting(inputs, INPUT_LENGTHS, MAX_INPUTS_CUT)
    max_tokens = flags.max_tokens or (LEAST_QA_TOKENS if kind == "span_qa" else max_tokens)
    cut = float((inputs > max_tokens).mean())
    notes.append(Note("cut", max_tokens, cut))
    if examples.targets:
        targets = text.lengths(examples.targets, examples.count_words(examples.targets)) + 1
        task["max_target_tokens"] = _fitting(targets, TARGET_LENGTHS, MAX_TARGETS_CUT)
    if kind in WITH_LONG_TEXTS and cut > MANY_LONG:
        task["long_texts"] = "head_tail"
        notes.append(Note("ends"))

    budgets = flags.label_budgets or label_budgets(examples.num["train"], len(examples.labels))
    architectures = ("bart", "phi") if kind == "seq2seq" else ("modernbert", "phi")
    study = Study(
        name=name,
        kind=kind,
        entry=entry.model_copy(update={"task": task}),
        corpus=text,
        design=Design(budgets=(*budgets,), architectures=architectures, pretrains=text.pretrains),
        max_tokens=max_tokens,
        num_tags=len(examples.labels) if kind == "tagging" else 0,
    )
    if study.num_tags > MOST_TAGS_PROBED:
        notes.append(Note("no probe", study.num_tags))
    shares = languages(examples) or ({ENGLISH: 1.0} if examples.latin >= LATIN else {})
    errors = list[ValueError]()
    is_wanted = kind != "seq2seq" and flags.published is not False
    for checkpoint in candidates(shares, examples.latin, max_tokens) if is_wanted else ():
        try:
            fetch_published(checkpoint)
        except ValueError as error:
            errors.append(error)
            continue
        with_it = replace(study.design, published=True, epochs=EPOCHS[0])
        study = replace(study, design=with_it, checkpoint=checkpoint)
        break
    if errors and not study.checkpoint:
        if flags.published:
            raise errors[0]
        notes.append(f"No published checkpoint is a candidate. {errors[0]}")
    pace = _paced(study, examples, budgets, measure)
    can_draw_anew = _can_draw_anew(examples, entry, flags, notes)
    design = fitted(
        architectures,
        budgets,
        text.tokens,
        pace,
        RESERVE * seconds,
        pretrains=text.pretrains,
        keep_budgets=bool(flags.label_budgets),
        published=study.design.published,
        can_be_probed=study.can_be_probed,
        can_draw_anew=can_draw_anew,
        must_pretrain=corpus is not None,
    )
    notes += about_corpus if design.architectures else []
    if (checkpoint := study.checkpoint) and design.published:
        name, share = checkpoint["name"], known(checkpoint, shares)
        notes.append(f"{name} is a candidate. {checkpoint['about']}")
        if shares and share < 1:
            better = "".join(f" One that knows more is left out: {error}" for error in errors)
            notes.append(Note("language unknown", name, checkpoint["knows"], 1 - share, better))
    left = ["full fine-tuning of the checkpoint"] * (design.published and not design.epochs)
    left += ["its twin from random weights"] * (design.published and not design.twin)
    left += ["draws of the splits"] * (can_draw_anew and not design.split_per_seed)
    left += ["pretraining"] * (text.pretrains and not design.pretrains)
    if left:
        notes.append(f"Left out for want of time: {', '.join(left)}. More minutes add them.")
    notes = by_weight(notes)
    study, takes = replace(study, design=design), pace.seconds(design)
    question = f"Which model should be fine-tuned on {data.name}? It takes about {minutes(takes)}."
    comments = [question, "", "What the data were taken for:", *(f"- {note}" for note in notes)]
    rows = (example.row.items() for example in examples.by_split["train"][:3])
    return Proposal(
        text=written(study, comments),
        study=study,
        notes=notes,
        rows=["; ".join(f"{column}: {short(value)}" for column, value in row) for row in rows],
        num_train=examples.num["train"],
        seconds=takes,
    )


def _guess(source: Json, flags: Flags, notes: list[str]) -> Guess:
    """Returns the guessed kind and columns of the files.

    Raises ValueError for files that cannot be read, and if it is not clear what they hold.
    """
    guessed = Guess("seq2seq", dict(flags.columns))
    if source.get("format") != PARALLEL:
        files = [file for file in files_of(source) if file.split == "train"]
        place = str(files[0].path)
        records = [r._replace(place=f"{f.path} {r.place}") for f in files for r in f.records()]
        if not records:
            raise ValueError(f"{place}: the file has no rows")
        if files[0].format in ("conll", "conllu"):
            words, tags = ("FORM", "UPOS") if files[0].format == "conllu" else ("words", "tags")
            guessed = Guess("tagging", {"words": words, "tags": tags} | dict(flags.columns))
        else:
            columns = columns_of(records)
            own = flags.model_copy(update={"split": NONE}) if "train" in source else flags
            try:
                guessed = guess(columns, own, notes)
                notes += unread_columns(columns, guessed, own, source)
            except Unclear as unclear:
                listed = "".join(f"\n  {column}" for column in columns.values())
                end = "" if str(unclear).endswith("?") else "."
                raise ValueError(f"{place}: {unclear}{end} The columns:{listed}") from None
            flags = _with_names(source, guessed, columns, flags, notes)
        if guessed.kind == "tagging":
            name = str(guessed.columns["tags"])
            cells = {r.place: listed_tags(structured(r.cells.get(name)), "tags") for r in records}
            lists = {p: [*map(str, cell)] for p, cell in cells.items() if isinstance(cell, list)}
            whole = {p: tags for p, tags in lists.items() if all(tags)}
            settings, guessed.task, why = tag_settings(whole, flags, place)
            guessed.settings |= settings
            notes.append(Note("tags", name, guessed.columns["words"], why))
    for key in (GROUP, TIME):
        if getattr(flags, key) and key not in guessed.settings:
            raise Unclear("no column", key)
    roles = roles_of(TASKS[guessed.kind])
    for role in flags.columns.keys() - {*roles}:
        raise Unclear("no role", role, guessed.kind, ", ".join(roles))
    return guessed


def _with_names(
    source: Json, guessed: Guess, columns: Mapping[str, Column], flags: Flags, notes: list[str]
) -> Flags:
    """Returns the flags with the names of tags that are numbers; those of classes are added to the
    settings of ``guessed``."""
    key = "tag_names" if guessed.kind == "tagging" else "label_names"
    target, names = str(guessed.columns[TASKS[guessed.kind].target]), getattr(flags, key)
    if names is None and target in columns and key in settings_of(TASKS[guessed.kind]):
        values = columns[target].items or columns[target].values
        names, file = names_of_numbers(source, target, values)
        if names:
            notes.append(f"{file} names {target}: {', '.join(names)}. (--set {key}=NAME,...)")
    guessed.settings |= {key: names} if names and key == "label_names" else {}
    return flags.model_copy(update={key: names or None})


def _task(guessed: Guess, examples: Examples, notes: list[str]) -> Json:
    """Returns the entry of the task, with the settings that follow from its rows. Raises ValueError
    for rows that these settings do not allow."""
    task: Json = {"name": guessed.kind} | guessed.task
    rows = [(e.id, e.row) for split in SPLITS for e in examples.by_split[split]]
    if guessed.kind == "span_qa":
        num = sum(not row["answers"] for _, row in rows)
        task |= {"no_answer": True} if num else {}
        notes.append(Note("no answer", num, len(rows)))
    num = sum(examples.labels.values())
    shares = {label: count / num for label, count in examples.labels.items()}
    rarest = min(shares, key=shares.__getitem__, default="")
    is_classified = guessed.kind == "classification" and shares
    if is_classified and shares[rarest] < min(RARE, RARE_OF_EVEN / len(shares)):
        task["class_weights"] = "balanced"
        notes.append(Note("rare", short(rarest), 100 * shares[rarest]))
    examples.kind.check_rows(rows, task)
    return task


def _entry(examples: Examples, task: Json, flags: Flags) -> TaskEntry:
    """Returns the task with the number of rows of each split: all, or the most that a study of
    minutes can use.

    Raises ValueError as `prepare_task` does, for too few rows and for labels that train lacks, and
    if a label budget of the flags is larger than train.
    """
    kind, file, num = examples.kind, examples.source["path"], examples.num
    if few := [split for split in SPLITS if num[split] == 0]:
        for own in (split for split in few if split in examples.source):
            if examples.removed.get(own):
                gone = sum(examples.removed[split] for split in few)
                keys = {kind.split_key(e.row) for e in examples.labelled if e.split == own}
                has = {s: {kind.split_key(e.row) for e in examples.by_split[s]} for s in SPLITS}
                later = [split for split in SPLITS if not keys.isdisjoint(has[split])]
                raise Unclear("all removed", gone, own, " or ".join(later))
            raise Unclear("no label", own)
        rows = examples.labelled
        why = "; a blank line ends each sentence" if len(rows) == 1 and kind.lists else ""
        gone = [f"{n:,} of {s}" for s, n in examples.removed.items() if n]
        why += f"; a later split also has {' and '.join(gone)}" if gone else ""
        inputs = len({kind.same_input(example.row) for example in rows})
        raise Unclear("few rows", file, len(rows), inputs, " and ".join(few), why)
    if flags.most_labels > num["train"]:
        raise Unclear("budget", flags.most_labels, num["train"])
    most = MAX_ROWS | {"train": max(MAX_ROWS["train"], flags.most_labels)}
    samples: Json = {f"num_{s}": most[s] if num[s] > most[s] else "all" for s in SPLITS}
    samples["min_rows_per_class"] = flags.min_rows_per_class
    entry = TaskEntry(task=task, source=examples.source, seed=1, **samples)
    chosen = sampled(examples.by_split, entry, kind, where="data")
    if kind.has_classes:
        check_labels(chosen, kind, where=f"{file}: task")
        if not examples.labels:
            raise ValueError(f"{file}: no row of train has a label")
    kind.check_labels(sorted(examples.labels), task)
    kind.facts([example.row for example in chosen["train"]])
    return entry


def _can_draw_anew(examples: Examples, entry: TaskEntry, flags: Flags, notes: list[str]) -> bool:
    """Returns whether each fine-tuning seed may draw the splits: if rows are few, have no groups
    and no given seed or splits, and every draw can be used. Adds a reason to ``notes``."""
    rows, source = sum(examples.num.values()), examples.source
    if rows >= FEW_ROWS or {GROUP, SPLIT_SEED} & source.keys() or not draws_test(source):
        return False
    entry = entry.model_copy(update={"split_seeds": [*range(1, SPLITS_DRAWN + 1)]})
    try:
        drawn = draws_of(entry, examples.kind, where="data")
        if min(len(draw.examples["train"]) for draw in drawn) < flags.most_labels:
            raise ValueError("a draw has fewer rows of train than label_budgets")
    except ValueError as error:
        notes.append(Note("drawn once", rows, error))
        return False
    notes.append(Note("drawn anew", rows, SPLITS_DRAWN))
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
    design = replace(study.design, probed="all" if study.can_be_probed else "none")
    raw = YAML(typ="safe").load(written(replace(study, entry=entry, design=design)))
    # The first model of each architecture states it, and is pretrained if any model is.
    stated = {key: model for key, model in raw["models"].items() if "architecture" in model}
    first = {model["architecture"]["name"]: key for key, model in reversed(stated.items())}
    raw["models"] = {key: model for key, model in stated.items() if key in first.values()}
    raw["pretrain"]["seeds"] = raw["finetune"]["seeds"] = [1]
    return measure(raw, budgets, max(len(examples.labels), 1))


def _name_of(data: Path) -> str:
    """Returns a name for the study and its task: ``reviews`` for ``reviews.csv.gz``."""
    name = data.name.removesuffix(".gz")
    stem = name.removesuffix(f".{format_of(data)}") if data.is_file() else name
    name = re.sub(r"[^a-z0-9]+", "_", stem.lower()).strip("_")
    return name if re.fullmatch(NAME, name) else f"task_{name}".strip("_")


def minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"
