"""Finds the kind of task in a user's data, and which column is the text, the label and so on.

Only clear cases are found, such as a text and a column with few values, or lists of words and of
tags. If two columns may be the text or the label, nothing is guessed: the error lists the columns
and names the flags.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pandas

from stages.core.artifacts import Json
from stages.proposal.column import CHOSEN, HOT, MOST_LABELS, TEXT_WORDS, Column, words_of_name
from stages.proposal.flags import KINDS_OF_STUDIES, Flags, flag_of, roles_of
from stages.proposal.roles import (
    ANSWERS,
    NUM_HOT,
    Columns,
    Names,
    are_numbered,
    as_list,
    choices_of,
    clear_columns,
    names_read,
    questions,
    tags,
    targets_of,
    with_words,
)
from stages.proposal.separators import SEPARATORS, joint_of, parts_of, separator_of
from stages.sources._columns import GROUP, NONE, TIME, TIME_FORMAT
from stages.sources._formats import Record
from stages.tasks._numbers import number_of
from stages.tasks._task import TASKS

MAX_RATINGS = 20  # different whole numbers that are taken as classes without asking
MIN_RATINGS = 4  # different whole numbers that may be a scale
SHOWN = 4  # examples of labels in a note
MAX_JOINED = 1 / 3  # share of values with a separator, above which a cell may have several labels
SPLITTING = {"split", "splits", "fold", "folds", "subset", "partition", "set", "usage"}
SPLITTING |= {f"is_{split}" for split in ("train", "dev", "valid", "test")}
STRUCTURED = {"label", "labels", "entities", "spans", "annotations", "qas", "answers", "ents"}
PREDICTED = {TASKS[kind].target for kind in KINDS_OF_STUDIES}
ONE_WORD, ONE_TAG = {"word", "token", "form", "words", "tokens"}, {"tag", "ner", "pos", "bio"}
SEVERAL = {"labels", "tags", "classes", "categories"}  # names of columns where 1,2 means two labels
KIND_OF_ROLE = {
    "answers": "span_qa",
    "choices": "multiple_choice",
    "tags": "tagging",
    "labels": "multi_label",
}


@dataclass
class Guess:
    """The kind of rows, the names of the data's ``columns`` by their role in a row, and further
    settings of the source (``settings``) and of the task (``task``)."""

    kind: str
    columns: Names
    settings: Json = field(default_factory=dict)
    task: Json = field(default_factory=dict)


class Unclear(ValueError):
    """What the columns and the flags do not show, and the flag that says it."""


def profile(records: Iterable[Record]) -> dict[str, Column]:
    """Returns the columns of records by their names. A field of an object becomes a column with a
    name such as ``translation.de``."""
    table = pandas.DataFrame([_flat(record.cells) for record in records], dtype=object)
    return {str(name): Column(str(name), table[name]) for name in table}


def _flat(cells: Mapping[str, object], prefix: str = "") -> Json:
    flat: Json = {}
    for name, value in cells.items():
        if isinstance(value, Mapping) and "answer_start" not in value and {*value} != {CHOSEN}:
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def guess(columns: Columns, flags: Flags, notes: list[str], *, place: str) -> Guess:
    """Returns the kind of task and its columns, and adds what was decided to ``notes``.

    Raises ValueError, which begins with ``place``, if the columns and the flags do not show what is
    predicted from what.
    """
    try:
        return _guess(columns, flags, notes)
    except Unclear as unclear:
        listed = "\n".join(column.described() for column in columns.values())
        raise ValueError(f"{place}: {unclear}. The columns:\n{listed}") from None
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def _guess(columns: Columns, flags: Flags, notes: list[str]) -> Guess:
    drawn_by = {GROUP: flags.group, TIME: flags.time}
    given = [name for names in flags.columns.values() for name in as_list(names)]
    given += [name for name in drawn_by.values() if name]
    for name in given:
        if name not in columns:
            raise ValueError(f"no column {name!r}; there are: {', '.join(columns)}")
    if len(columns) == 1:
        raise ValueError("one column; a task needs a text column and a label column")
    free = {name: c for name, c in columns.items() if name not in given and c.filled}
    split = flags.split if flags.split or flags.splits else _split_column(free.values())
    split = None if split == NONE else split
    if split:
        free.pop(split, None)
        notes.append(f"The column {split} gives the splits. (--split {NONE} draws them)")
    _refuse_other_forms(columns, free, flags)
    kind = TASKS[flags.task or _kind(free, columns, flags)]
    clear = clear_columns(kind, free)
    if "text" in flags.columns:
        clear.pop("text_pair", None)
    chosen = {**clear, **flags.columns}
    names = {role: chosen[role] for role in roles_of(kind) if role in chosen}
    if missing := [role for role in kind.columns if role not in names]:
        name_them = " ".join(map(flag_of, missing))
        if missing == ["text"] and sum(c.is_text for c in free.values()) > 1:
            pairs = "text_pair" in kind.optional
            name_them += f", and for a pair of texts also {flag_of('text_pair')}" if pairs else ""
        needed = f"{kind.name} needs {' and '.join(missing)}, which no column clearly is"
        raise Unclear(f"{needed}; name it: {name_them}")
    for role in {"text", "text_pair", "context"} & names.keys():
        if (read := columns[str(names[role])]).are_lists or read.are_structures:
            raise Unclear(
                f"{read.name} has lists or structures, no texts; write the words of a text between "
                f"blanks, or name another column: {flag_of(role)}"
            )
    targets = [columns[name] for name in as_list(names[kind.target])]
    settings = _settings(kind.name, targets, flags, notes)
    drawn = {"split": split} | drawn_by | {TIME_FORMAT: flags.time_format}
    settings |= {key: value for key, value in drawn.items() if value}
    shown = {name: c for name, c in columns.items() if name not in (split, *drawn_by.values())}
    _note(kind.name, names, targets[0], shown, notes)
    return Guess(kind.name, names, settings)


def _split_column(free: Iterable[Column]) -> str | None:
    """Returns the column that names splits, or None. Raises Unclear if several columns may name
    splits, or if a column is called ``split`` or the like but its cells name no splits."""
    columns = [c.name for c in free if "train" in c.splits and len(c.splits) > 1]
    if len(columns) == 1:
        return columns[0]
    for name in columns or [c.name for c in free if c.name.lower() in SPLITTING and c.distinct > 1]:
        raise Unclear(
            f"does the column {name} give the splits (--split {name}; its cells must be such as "
            f"train, validation and test), or not (--split {NONE})"
        )
    return None


def _refuse_other_forms(columns: Columns, free: Columns, flags: Flags) -> None:
    """Raises Unclear for a word in each row and for structures in a column of labels."""
    singles = [c for c in with_words(free.values(), ONE_WORD) if c.are_strings and c.words < 1.1]
    if singles and with_words(columns.values(), ONE_TAG) and flags.task is None:
        raise Unclear(
            f"{singles[0].name} has one word in each row; sentences of words and tags are read "
            "from lines `word tag` with a blank line after each sentence (conll); --task "
            "classification reads each row by itself"
        )
    odd = [c for c in free.values() if c.are_structures and words_of_name(c.name) & STRUCTURED]
    if odd and not PREDICTED & flags.columns.keys():
        raise Unclear(
            f"{odd[0].name} holds structures, which are not read; write plain columns (for spans: "
            f"words and tags in a conll file), or name another column: {flag_of('label')}, "
            f"{flag_of('target')}"
        )


def _settings(kind: str, targets: list[Column], flags: Flags, notes: list[str]) -> Json:
    """Returns the settings with which the cells of the target are read.

    Raises Unclear for classes that hardly recur, and for numbers that can be read in two ways.
    """
    settings, target = Json(), targets[0]
    if kind == "classification":
        few = target.distinct < 0.9 * target.filled or target.filled < 10
        if not (2 <= target.distinct <= MOST_LABELS and few):
            raise Unclear(
                f"{target.name}: {target.distinct:,} different values in {target.filled:,} rows; "
                f"classes are 2 to {MOST_LABELS} that recur, no ids or free text (--label NAME)"
            )
        if target.respelt:
            spelt = ", ".join(target.respelt[:SHOWN])
            notes.append(f"Read without blanks, invisible signs and .0: {spelt}.")
    elif kind == "multi_label" and len(targets) == 1:
        is_text = not (target.are_lists or target.are_structures)
        sign = separator_of(target.texts, joint_of(target.texts)) if is_text else None
        if hot := re.fullmatch(HOT, next(iter(target.values), "")):
            sign = hot[1]
        elif sign:
            notes.append(f"The labels in a cell of {target.name} are separated by {sign!r}.")
        if sign and sign != SEPARATORS[-1]:
            settings["label_separator"] = sign
        if target.are_hot or target.values.str.fullmatch(HOT).all():
            settings["multi_hot"] = True
            notes.append(f"{target.name} has 0 and 1 by position, which are the labels.")
    elif kind == "regression":
        if not (target.is_sure or flags.decimal):
            raise Unclear(
                f"{target.name}: is {target.spelt[0]} a number with decimals (--set "
                f"decimal={target.decimal}) or with thousands? Commas of thousands must be "
                "removed, points of thousands are read with --set decimal=comma"
            )
        settings["decimal"] = flags.decimal or target.decimal
    elif kind == "multiple_choice":
        digit = "0" if "0" in set(target.values) else "1"
        first = flags.first_choice or ("A" if target.values.str.isalpha().any() else digit)
        settings["first_choice"] = first if first == "A" else int(first)
        notes.append(f"The first choice is called {first}. (--set first_choice)")
    return settings


def note_times(columns: Columns, settings: Json, notes: list[str]) -> None:
    """Adds a note that names a column with times, if splits could be drawn in its order."""
    times = [name for name, column in columns.items() if column.are_times]
    if times and settings.keys().isdisjoint({"split", GROUP, TIME}):
        notes.append(
            f"{times[0]} has days or times: `--time {times[0]}` draws the splits in their order, "
            "so that test rows are later than train rows."
        )


# The kind of task --------------------------------------------------------------------------------


def _kind(free: Columns, columns: Columns, flags: Flags) -> str:
    """Returns the kind of task, found from the flags or else from the columns. ``free`` are the
    columns that no flag names. Raises Unclear if the kind is not clear."""
    for role in KIND_OF_ROLE.keys() & flags.columns.keys():
        return KIND_OF_ROLE[role]
    has_choices = bool(choices_of(free))
    if "label" in flags.columns:
        return "multiple_choice" if has_choices else "classification"
    if "target" in flags.columns:
        target = columns[str(flags.columns["target"])]
        _refuse_amounts([target])
        return "regression" if target.are_numbers else "seq2seq"
    of_question = questions(free)
    if any(column.are_answers for column in free.values()) or len(of_question) == 3:
        return "span_qa"
    if has_choices or "tags" in tags(free):
        return "multiple_choice" if has_choices else "tagging"
    targets = targets_of(free)
    if len(targets) == 1:
        others = [column for column in free.values() if column.words and not column.is_text]
        targets += [column for column in others if are_numbered(targets[0].name, column.name)]
    if len(targets) == 1:
        return _kind_of_target(targets[0])
    if len(targets) >= NUM_HOT and all(column.is_hot for column in targets):
        return "multi_label"
    if not targets and len(of_question) == 2 and (answers := with_words(free.values(), ANSWERS)):
        raise Unclear(
            f"{answers[0].name} has no place in {of_question['context']}: add a column "
            "answer_start, the number of its first character from 0 (context.find(answer) in "
            "Python), or --task seq2seq to have it written"
        )
    texts = [column for column in columns.values() if column.is_text]
    if not targets and len(texts) > 1 and not any(column.recurs for column in texts):
        return "seq2seq"
    _refuse_amounts(free.values() if not targets else ())
    which = ", ".join(column.name for column in targets)
    raise Unclear(
        f"{f'several columns may be predicted ({which})' if which else 'no label is seen'}; name "
        f"the column: {flag_of('label')} (one of few classes), --set labels=NAME,... (any number "
        f"of them), {flag_of('target')} (a number, or a text to write), --set words=NAME --set "
        "tags=NAME"
    )


def _refuse_amounts(some: Iterable[Column]) -> None:
    """Raises Unclear if a column has numbers with units or other signs."""
    if amounts := [column for column in some if column.are_amounts]:
        raise Unclear(
            f"{amounts[0].spelt[0]!r} of {amounts[0].name} is no number; write numbers alone, such "
            "as 1234.5 (or 1234,5 with --set decimal=comma), without units"
        )


def _kind_of_target(target: Column) -> str:
    """Returns the kind of rows whose only target is this column; raises Unclear if the column can
    be read in several ways."""
    name, values = target.name, target.values
    if broken := [item for item in target.items if number_of(item) % 1 > 0]:
        raise Unclear(
            f"{name} has lists with decimals such as {broken[0]}, perhaps probabilities of "
            "classes; write the likeliest class, or 0 and 1 for each of several labels"
        )
    if values.str.fullmatch("'?[01]{3,}").all() and values.str.contains("0[01]").any():
        raise Unclear(
            f"{name} has 0 and 1 by position without a sign between them, such as {values[0]!r}; "
            "write 0,1,1"
        )
    if (target.are_lists or values.str.fullmatch(HOT).all()) and {*target.lengths} != {0, 1}:
        return "multi_label"
    is_sure = target.is_sure and not words_of_name(name) & SEVERAL
    if target.are_numbers and not target.are_whole and (target.decimal == "point" or is_sure):
        return "regression"
    if readings := ", or ".join(_other_readings(target)):
        raise Unclear(
            f"is each of the {target.distinct:,} values of {name} a class (--task "
            f"classification), or {readings}? Give the flag"
        )
    return "classification"


def _other_readings(target: Column) -> Iterator[str]:
    """Yields what the cells of a target may be besides classes, with the flags."""
    several = "several labels{} (--task multi_label)"
    if target.are_lists:  # of one label or none
        yield several.format("")
    elif target.are_numbers:
        is_list = target.decimal == "comma"
        if target.distinct > MAX_RATINGS or is_list:
            yield "a number (--task regression)"
        if is_list:
            yield several.format("")
    elif (joint := joint_of(target.texts)) is not None:
        sign = separator_of(target.texts, joint) or joint
        example = max(target.texts, key=lambda value: len(parts_of(value, sign)))
        yield several.format(f" separated by {sign!r}, such as {example!r}")
    else:
        values = target.values
        parts = values[values.str.contains(r"[|;,]")].str.split(r"\s*[|;,]\s*")
        are_short = parts.explode().str.split().str.len().mean() <= TEXT_WORDS
        are_labels = any({*items} & {*values} for items in parts)
        if are_labels or (are_short and len(parts) > MAX_JOINED * target.distinct):
            yield several.format("")


def _note(kind: str, names: Names, target: Column, columns: Columns, notes: list[str]) -> None:
    predicted = as_list(names[TASKS[kind].target])
    read = [name for name in names_read(names) if name not in predicted]
    how = f"{target.distinct:,} different values"
    if len(predicted) > 1 and kind == "multi_label":
        how = "columns of 0 and 1"
    if kind == "span_qa":
        how = f"spans of {columns[str(names['context'])].distinct:,} contexts"
    notes.append(
        f"{kind}: {', '.join(read)} {'are' if len(read) > 1 else 'is'} read, "
        f"{', '.join(predicted)} {'are' if len(predicted) > 1 else 'is'} predicted ({how})."
    )
    if left := [c for c in columns.values() if c.name not in (*read, *predicted)]:
        flags = " ".join(map(flag_of, names))
        notes.append(f"Not read: {', '.join(f'{c.name} ({c.what})' for c in left)}. ({flags})")
    as_scale, as_classes = "as a scale: --task regression", "as classes: --task classification"
    if kind == "classification" and target.are_numbers and target.distinct >= MIN_RATINGS:
        how = f"different whole numbers: taken as classes; {as_scale}"
    elif kind == "regression" and target.distinct <= MAX_RATINGS:
        how = f"different numbers: taken as a scale; {as_classes}"
    else:
        return
    notes.append(f"{target.name} has {target.distinct} {how}.")
