"""Proposes a study of a user's files."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Int
from ruamel.yaml import YAML

from stages.core.artifacts import Json
from stages.core.params import NAME, TaskEntry
from stages.prepare_task import check_labels, draws_of, sampled
from stages.proposal.checkpoints import ENGLISH, candidates, fetch_published, known
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
from stages.proposal.files import refuse_known, source_of
from stages.proposal.flags import Flags
from stages.proposal.questions import Note, Unclear, by_weight
from stages.proposal.rows import Examples, notes_on_rows, read_examples
from stages.proposal.study import MOST_TAGS_PROBED, Study
from stages.sources._columns import GROUP, SPLIT_SEED, draws_test
from stages.sources._formats import format_of
from stages.tasks._cells import short
from stages.tasks._task import SPLITS, Split

MAX_ROWS: dict[Split, int] = {"train": 20_000, "validation": 400, "test": 2_000}
MAX_WRITTEN: dict[Split, int] = {"validation": 100, "test": 500}  # writing is slow
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


def propose(
    data: Path, flags: Flags, *, corpus: Path | None, seconds: float, measure: Measure
) -> Study:
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
) -> Study:
    notes = list[Note]()
    examples, task = read_examples(source_of(data, flags, notes), flags, notes)
    kind, labels, num_train = examples.kind.name, examples.labels, examples.num["train"]
    task = {"name": kind} | task | _task_settings(examples, notes)
    entry = _entry(examples, task, flags)
    notes += notes_on_rows(examples)
    name = _name_of(data)
    text = choose_corpus(examples, corpus, name)

    inputs = text.lengths(examples.inputs, examples.count_words(examples.inputs)) + 2
    max_tokens = _fitting(inputs, INPUT_LENGTHS, MAX_INPUTS_CUT)
    max_tokens = flags.max_tokens or (LEAST_QA_TOKENS if kind == "span_qa" else max_tokens)
    cut = float((inputs > max_tokens).mean())
    notes += [Note("cut", max_tokens, cut)] if kind != "span_qa" else []  # it is read in windows
    if examples.targets:
        targets = text.lengths(examples.targets, examples.count_words(examples.targets)) + 1
        task["max_target_tokens"] = _fitting(targets, TARGET_LENGTHS, MAX_TARGETS_CUT)
    if kind in WITH_LONG_TEXTS and cut > MANY_LONG:
        task["long_texts"] = "head_tail"
        notes.append(Note("ends"))

    budgets = flags.label_budgets or label_budgets(num_train, len(labels))
    architectures = ("bart", "phi") if kind == "seq2seq" else ("modernbert", "phi")
    study = Study(
        data=data.name,
        name=name,
        kind=kind,
        entry=entry.model_copy(update={"task": task}),
        corpus=text,
        design=Design(budgets=(*budgets,), architectures=architectures, pretrains=text.pretrains),
        max_tokens=max_tokens,
        num_train=num_train,
        num_tags=len(labels) if kind == "tagging" else 0,
    )
    if study.num_tags > MOST_TAGS_PROBED:
        notes.append(Note("no probe", study.num_tags))
    study, about_checkpoint = _with_checkpoint(study, examples, flags)
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
    notes += [text.note] if design.architectures else []
    notes += about_checkpoint if design.published or not study.checkpoint else []
    left = {
        "full fine-tuning of the checkpoint": design.published and not design.epochs,
        "its twin from random weights": design.published and not design.twin,
        "draws of the splits": can_draw_anew and not design.split_per_seed,
        "pretraining": text.pretrains and not design.pretrains,
    }
    if any(left.values()):
        notes.append(Note("left out", [what for what, is_left in left.items() if is_left]))
    rows = (example.row.items() for example in examples.by_split["train"][:3])
    return replace(
        study,
        design=design,
        notes=(*by_weight(notes),),
        rows=(*("; ".join(f"{column}: {short(cell)}" for column, cell in row) for row in rows),),
        seconds=pace.seconds(design),
    )


def _task_settings(examples: Examples, notes: list[Note]) -> Json:
    """Returns the settings of the task that follow from its rows."""
    labels = examples.labels
    if examples.kind.name == "span_qa":
        answers = [e.row["answers"] for of in examples.by_split.values() for e in of]
        notes.append(Note("no answer", answers.count([]), len(answers)))
        return {"no_answer": True} if [] in answers else {}
    if examples.kind.name == "classification" and labels:
        rarest = min(labels, key=labels.__getitem__)
        share = labels[rarest] / sum(labels.values())
        if share < min(RARE, RARE_OF_EVEN / len(labels)):
            notes.append(Note("rare", short(rarest), 100 * share))
            return {"class_weights": "balanced"}
    return {}


def _entry(examples: Examples, task: Json, flags: Flags) -> TaskEntry:
    """Returns the task with the number of rows of each split, at most those that a study of minutes
    can use. Raises ValueError as `prepare_task` does, for too few rows and for labels that train
    lacks, and if a label budget is larger than train."""
    kind, source, file, num = examples.kind, examples.source, examples.source["path"], examples.num
    kind.check_rows([(e.id, e.row) for split in SPLITS for e in examples.by_split[split]], task)
    few = [split for split in SPLITS if num[split] == 0]
    for own in (split for split in few if split in source):
        if not examples.removed.get(own):
            raise Unclear("no label", own)
        removed = {kind.split_key(e.row) for e in examples.labelled if e.split == own}
        has = {s: {kind.split_key(e.row) for e in examples.by_split[s]} for s in SPLITS}
        later = [split for split in SPLITS if not removed.isdisjoint(has[split])]
        gone = sum(examples.removed[split] for split in few)
        raise Unclear("all removed", gone, own, " or ".join(later))
    if few:
        rows = examples.labelled
        why = "; a blank line ends each sentence" if len(rows) == 1 and kind.lists else ""
        gone = [f"{n:,} of {s}" for s, n in examples.removed.items() if n]
        why += f"; a later split also has {' and '.join(gone)}" if gone else ""
        inputs = len({kind.same_input(example.row) for example in rows})
        raise Unclear("few rows", file, len(rows), inputs, " and ".join(few), why)
    if flags.most_labels > num["train"]:
        raise Unclear("budget", flags.most_labels, num["train"])
    # Of fewer rows, each draw of the splits may have fewer for validation than the first.
    is_capped = kind.generates and sum(num.values()) >= FEW_ROWS
    most = MAX_ROWS | (MAX_WRITTEN if is_capped else {})
    most |= {"train": max(MAX_ROWS["train"], flags.most_labels)}
    samples: Json = {f"num_{s}": most[s] if num[s] > most[s] else "all" for s in SPLITS}
    samples["min_rows_per_class"] = flags.min_rows_per_class
    entry = TaskEntry(task=task, source=source, seed=1, **samples)
    chosen = sampled(examples.by_split, entry, kind, where="data")
    if kind.has_classes:
        check_labels(chosen, kind, where=f"{file}: task")
        if not examples.labels:
            raise ValueError(f"{file}: no row of train has a label")
    kind.check_labels(sorted(examples.labels), task)
    kind.facts([example.row for example in chosen["train"]])
    return entry


def _with_checkpoint(study: Study, examples: Examples, flags: Flags) -> tuple[Study, list[Note]]:
    """Returns the study with the best published checkpoint that can be fetched, and notes on it.
    Raises ValueError if none can, but the flags require one."""
    latin, errors = examples.latin, list[ValueError]()
    shares = examples.languages or ({ENGLISH: 1.0} if latin >= LATIN else {})
    is_wanted = study.kind != "seq2seq" and flags.published is not False
    for checkpoint in candidates(shares, latin, study.max_tokens) if is_wanted else ():
        try:
            fetch_published(checkpoint)
        except ValueError as error:
            errors.append(error)
            continue
        name, share = checkpoint["name"], known(checkpoint, shares)
        notes = [Note("candidate", name, checkpoint["about"])]
        if shares and share < 1:
            better = "".join(f" One that knows more is left out: {error}" for error in errors)
            notes += [Note("language unknown", name, checkpoint["knows"], 1 - share, better)]
        with_it = replace(study.design, published=True, epochs=EPOCHS[0])
        return replace(study, design=with_it, checkpoint=checkpoint), notes
    if errors and flags.published:
        raise errors[0]
    return study, [Note("no candidate", error) for error in errors[:1]]


def _can_draw_anew(examples: Examples, entry: TaskEntry, flags: Flags, notes: list[Note]) -> bool:
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
    """Returns the smallest choice that cuts at most this share of the texts, or the largest."""
    return next((n for n in choices if (lengths > n).mean() <= max_cut), choices[-1])


def _paced(study: Study, examples: Examples, budgets: Sequence[Budget], measure: Measure) -> Pace:
    """Measures the seconds of pretraining steps and fine-tuning trials of each architecture."""
    counted = {f"num_{s}": n for s, n in examples.num.items()}
    counted = {key: n for key, n in counted.items() if getattr(study.entry, key) == "all"}
    entry = study.entry.model_copy(update=counted)
    design = replace(study.design, probed="all" if study.can_be_probed else "none")
    raw = YAML(typ="safe").load(replace(study, entry=entry, design=design).text)
    if design.pretrains:  # the others take no longer
        models = raw["models"].items()
        raw["models"] = {key: model for key, model in models if model.get("objective") != "none"}
    raw["pretrain"]["seeds"] = raw["finetune"]["seeds"] = [1]
    return measure(raw, budgets, max(len(examples.labels), 1))


def _name_of(data: Path) -> str:
    """Returns a name for the study and its task: ``reviews`` for ``reviews.csv.gz``."""
    name = data.name.removesuffix(".gz")
    stem = name.removesuffix(f".{format_of(data)}") if data.is_file() else name
    name = re.sub(r"[^a-z0-9]+", "_", stem.lower()).strip("_")
    return name if re.fullmatch(NAME, name) else f"task_{name}".strip("_")
