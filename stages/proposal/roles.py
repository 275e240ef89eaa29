"""Finds the kind of task in a user's data, and which column is the text, the label and so on.

Only clear cases are found, such as a text and a column with few values, or lists of words and of
tags. If two columns may be the text or the label, nothing is guessed: the error lists the columns
and names the flags.
"""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stages.core.artifacts import Json
from stages.proposal.columns import HINTS, HOT, MOST, MOST_LABELS, TEXT_WORDS, Column
from stages.proposal.flags import Flags, flag_of, roles_of
from stages.proposal.questions import Note, Unclear
from stages.sources._columns import GROUP, NONE, TIME, TIME_FORMAT, no_column
from stages.tasks._cells import number_of
from stages.tasks._task import TASKS

NUM_HOT = 3  # fewest columns of 0 and 1 that are labels, not one label and features
MAX_RATINGS = 20  # different whole numbers that are taken as classes without asking
MAX_JOINED = 1 / 3  # share of values with a separator, above which a cell may have several labels
PREDICTED = {"label", "labels", "target", "tags", "answers"}  # roles
KIND_OF_ROLE = {
    "answers": "span_qa",
    "choices": "multiple_choice",
    "tags": "tagging",
    "labels": "multi_label",
}
# Parts of the names of two texts that are read as a pair, and names such as choice1.
PAIRS = (
    *("premise hypo", "question sentence", "question passage", "question answer"),
    *("query document", "query passage", "claim evidence", "first second"),
)
CHOICES = r"(choice|option|ending|answer|solution|sol|opt|candidate|alternative)s?[_ ]?([a-z]|\d)"
AMOUNT = r"\W{0,4}([A-Z]{3} )?\d[\d.,' ]*\s?(\S{1,3}|/\d+)?"  # 45 %, €1.50, 3.5k, 7.5/10

SEPARATORS = ("|", ";", ",")  # between the labels of a cell; the last is the source's default
# Signs that may stand between labels, but are not read without a flag: those of paths, of
# <a><b> and a#b, and blanks between numbers, and others where it is seen that they join labels.
SURE_SIGNS = r"[\n\t]|[^\s>]\s*>+\s*[^\s>]|\w(::|#)\w|^\d+( \d+)+$"
OTHER_SIGNS = r"\s*[/+&]\s*|\s+and\s+|[\s:_-]+"

Columns = Mapping[str, Column]
Names = dict[str, str | list[str]]  # of the data's columns, by their role in a row


class Role(NamedTuple):
    """A role in a row, and the column that has it: the only one with this fact and with a name that
    hints at the role, or with ``alone`` also the only one with the fact."""

    name: str
    fact: str  # an attribute of Column
    hint: str  # a key of HINTS
    alone: bool = False


# The roles of each kind whose columns have typical names, in the order in which they are filled.
ROLES = {
    "span_qa": (
        Role("question", "is_text", "question"),
        Role("context", "is_text", "context"),
        Role("answers", "are_answers", "answers", alone=True),
    ),
    "tagging": (
        Role("words", "are_lists", "words"),
        Role("tags", "are_lists", "tags", alone=True),
    ),
    "seq2seq": (
        Role("target", "is_text", "target"),
        Role("text", "is_text", "nothing", alone=True),
    ),
    "multiple_choice": (
        Role("choices", "are_choices", "choices"),
        Role("label", "are_keys", "right choice", alone=True),
        Role("text", "is_text", "premise", alone=True),
        Role("question", "are_strings", "question of choices"),
    ),
}


@dataclass
class Guess:
    """The kind of rows, the names of the data's ``columns`` by their role in a row, and further
    settings of the source (``settings``) and of the task (``task``)."""

    kind: str
    columns: Names
    settings: Json = field(default_factory=dict)
    task: Json = field(default_factory=dict)


def guess(columns: Columns, flags: Flags, notes: list[str]) -> Guess:
    """Returns the kind of task and its columns, and adds what was decided to ``notes``. Raises
    Unclear if the columns and the flags do not show what is predicted from what."""
    whole = {r: ",".join(as_list(n)) for r, n in flags.columns.items()}  # a name with commas
    named = {r: whole[r] if whole[r] in columns else n for r, n in flags.columns.items()}
    flags = flags.model_copy(update={"columns": named})
    given = [*names_read(flags.columns), *filter(None, (flags.group, flags.time))]
    if unknown := [name for name in given if name not in columns]:
        raise ValueError(no_column(unknown[0], columns))
    free = [c for name, c in columns.items() if name not in given and c.filled]
    if len(columns) == 1:
        raise Unclear("one column")
    split = flags.split if flags.split or flags.splits else _split_column(free)
    split = None if split == NONE else split
    if split:
        free = [column for column in free if column.name != split]
        notes.append(Note("split", split))
    words = [c for c in _hinting(free, "one word") if c.are_strings and c.words < 1.1]
    if words and _hinting(columns.values(), "one tag") and flags.task is None:
        raise Unclear("one word", words[0].name)
    odd = [column for column in _hinting(free, "structures") if column.are_structures]
    if odd and not PREDICTED & flags.columns.keys():
        raise Unclear("structures", odd[0].name, flag_of("label"))
    clear = _clear_columns(free, flags.columns)
    kind = TASKS[flags.task or _kind(free, columns, clear, flags)]
    chosen = clear[kind.name]
    if "text" in flags.columns:
        chosen.pop("text_pair", None)
    chosen |= flags.columns
    names = {role: chosen[role] for role in roles_of(kind) if role in chosen}
    if missing := [role for role in kind.columns if role not in names]:
        named = " ".join(map(flag_of, missing))
        if missing == ["text"] and "text_pair" in kind.optional:
            named += f" (several are joined: --text a,b); a pair has also {flag_of('text_pair')}"
        raise Unclear("role", kind.name, " and ".join(missing), named)
    predicted = as_list(names[kind.target])
    settings = _settings(kind.name, [columns[name] for name in predicted], flags, notes)
    drawn = {"split": split, GROUP: flags.group, TIME: flags.time, TIME_FORMAT: flags.time_format}
    settings |= {key: value for key, value in drawn.items() if value}

    read = [name for name in names_read(names) if name not in predicted]
    distinct = columns[predicted[0]].distinct
    notes.append(Note("kind", kind.name, ", ".join(predicted), distinct, ", ".join(read)))
    for role in kind.several - {*kind.gathered, kind.target}:
        if isinstance(names.get(role), list):
            notes.append(Note("joined", " and ".join(names[role])))
    return Guess(kind.name, names, settings)


def _split_column(free: list[Column]) -> str | None:
    """Returns the column that names splits, or None. Raises Unclear if several columns may name
    splits, or if a column is called ``split`` or the like but its cells name no splits."""
    columns = [c for c in free if "train" in c.splits and len(c.splits) > 1]
    if len(columns) == 1:
        return columns[0].name
    named = [c for c in free if c.name.lower() in HINTS["split"] and c.distinct > 1]
    for column in columns or named:
        raise Unclear("split", column.name)
    return None


# The kind of task --------------------------------------------------------------------------------


def _kind(free: list[Column], columns: Columns, clear: Mapping[str, Names], flags: Flags) -> str:
    """Returns the kind of task, from the flags or else from the ``free`` columns."""
    for role in KIND_OF_ROLE.keys() & flags.columns.keys():
        return KIND_OF_ROLE[role]
    has_choices = "choices" in clear["multiple_choice"]
    if "label" in flags.columns:
        return "multiple_choice" if has_choices else "classification"
    if "target" in flags.columns:
        target = columns[str(flags.columns["target"])]
        if not target.are_numbers and target.values.str.fullmatch(AMOUNT).mean() >= MOST:
            raise Unclear("amount", target.texts[0], target.name)
        return "regression" if target.are_numbers else "seq2seq"
    if any(column.are_answers for column in free) or len(clear["span_qa"]) == 3:
        return "span_qa"
    if has_choices or "tags" in clear["tagging"]:
        return "multiple_choice" if has_choices else "tagging"
    targets = _targets(free)
    if len(targets) == 1:
        return _kind_of_target(targets[0])
    if len(targets) >= NUM_HOT and all(column.is_hot for column in targets):
        return "multi_label"
    texts = [column for column in columns.values() if column.is_text]
    if not targets and len(texts) > 1 and not any(column.recurs for column in texts):
        return "seq2seq"
    which = ", ".join(column.name for column in targets)
    which = f"several columns may be predicted ({which})" if which else "no label is seen"
    others = [c for c in free if c.are_strings and not (targets or c.are_marks or c.hints_at("id"))]
    for column in (c for c in others if c.values.str.fullmatch(AMOUNT).mean() >= MOST):
        raise Unclear("amount", column.texts[0], column.name)
    for column in (c for c in free if c.are_strings and c.recurs and c.distinct > MOST_LABELS):
        which = f"{column.name} has {column.distinct} values, but classes are at most {MOST_LABELS}"
    raise Unclear("target", which)


def _kind_of_target(target: Column) -> str:
    """Returns the kind of rows whose only target is this column; raises Unclear if the column can
    be read in several ways."""
    name, values = target.name, target.values
    if values.str.startswith("{").any():
        raise Unclear("structures", name, flag_of("label"))
    broken = [item for item in target.items if number_of(item) % 1 > 0]
    if values.str.fullmatch("'?[01]{3,}").all() and values.str.contains("0[01]").any():
        broken = [values[0]]
    if broken:
        raise Unclear("odd labels", name, broken[0])
    if (target.are_lists or values.str.fullmatch(HOT).all()) and {*target.lengths} != {0, 1}:
        return "multi_label"
    has_commas = target.decimal == "comma" and not target.are_lists
    is_sure = target.is_sure and not target.hints_at("several labels")
    if target.are_numbers and not target.are_whole and (not has_commas or is_sure):
        return "regression"
    others = []
    if target.are_numbers and (target.distinct > MAX_RATINGS or has_commas):
        others.append("a number (--task regression)")
    if has_commas if target.are_numbers else target.are_lists or _may_be_joined(target):
        sign = " --set label_separator=SIGN" if has_other_signs(target.texts) else ""
        most = max(target.texts, key=lambda text: (any(s in text for s in SEPARATORS), len(text)))
        others.append(f"several, as in {most!r} (--task multi_label{sign})")
    if others:
        raise Unclear("classes", target.distinct, name, ", or ".join(others))
    return "classification"


def _may_be_joined(target: Column) -> bool:
    """Whether the cells of a column of texts may have several labels each."""
    values = target.values
    parts = values[values.str.contains(r"[|;,]")].str.split(r"\s*[|;,]\s*")
    are_short = parts.explode().str.split().str.len().mean() <= TEXT_WORDS
    are_labels = any({*items} & {*values} for items in parts)
    are_joined = are_labels or (are_short and len(parts) > MAX_JOINED * target.distinct)
    return are_joined or has_other_signs(target.texts)


def has_other_signs(values: Sequence[str]) -> bool:
    """Whether cells may have several labels with a sign between them that is none of SEPARATORS.

    SURE_SIGNS are such signs wherever they occur. Others are if they join labels that all occur
    alone, or a label that is the first of one cell and not of another, as in joy/fear and
    fear/anger, unlike Home/Garden and Home/Kitchen.
    """
    if any(re.search(SURE_SIGNS, value) for value in values):
        return True
    if any(sign in value for sign in SEPARATORS for value in values):
        return False
    cells = [list(filter(None, re.split(OTHER_SIGNS, value))) for value in values]
    joined = [parts for parts in cells if len({*parts}) > 1]
    later = {part for parts in joined for part in parts[1:]}
    return any(parts[0] in later or {*parts} <= {*values} for parts in joined)


def _settings(kind: str, targets: list[Column], flags: Flags, notes: list[str]) -> Json:
    """Returns the settings with which the cells of the target are read. Raises Unclear for classes
    that hardly recur, and for labels and numbers that can be read in two ways."""
    target, settings = targets[0], Json()
    if kind == "classification":
        few = target.distinct < MOST * target.filled or target.filled < 10
        if not (2 <= target.distinct <= MOST_LABELS and few):
            raise Unclear("no classes", target.name, target.distinct, target.filled, MOST_LABELS)
        if target.are_numbers and target.distinct > 3:
            notes.append(Note("scale", target.name))
    elif kind == "multi_label" and len(targets) == 1:
        hot, sign = re.fullmatch(HOT, next(iter(target.values), "")), flags.label_separator
        is_read = sign or hot or target.are_lists or target.are_structures
        if not is_read and has_other_signs(target.texts):
            raise Unclear("separator", target.name, max(target.texts, key=len))
        if not is_read:
            sign = next((s for s in SEPARATORS if any(s in text for text in target.texts)), None)
        sign = hot[1] if hot else sign
        if sign and sign != SEPARATORS[-1]:
            settings["label_separator"] = sign
        if target.are_hot or target.values.str.fullmatch(HOT).all():
            settings["multi_hot"] = True
        if sign:
            notes.append(Note("separator", sign))
    elif kind == "regression":
        if not (target.is_sure or flags.decimal):
            raise Unclear("decimal", target.name, target.texts[0], target.decimal)
        settings["decimal"] = flags.decimal or target.decimal
    elif kind == "multiple_choice":
        digit = "0" if "0" in {*target.values} else "1"
        first = flags.first_choice or ("A" if target.values.str.isalpha().any() else digit)
        notes.append(Note("first choice", first))
        settings["first_choice"] = first if first == "A" else int(first)
    return settings


# The columns of a row ----------------------------------------------------------------------------


def _clear_columns(free: list[Column], given: Container[str]) -> dict[str, Names]:
    """Returns the ``free`` columns whose role in a row is clear, for each kind of rows, without the
    roles that are ``given``."""
    clear: dict[str, Names] = {}
    several = [column.name for column in free if re.fullmatch(CHOICES, column.name.lower())]
    letters = [column for column in free if re.fullmatch("[a-j]", column.name.lower())]
    keys = [{*c.values.str.lower()} for c in free if c not in letters and c.are_keys]
    if len(letters) > 1 and {column.name.lower() for column in letters} in keys:
        several = [column.name for column in letters]
    for kind, roles in ROLES.items():
        names: Names = {}
        if kind == "multiple_choice" and len(several) > 1:
            names["choices"] = several
        for role in (each for each in roles if each.name not in given):
            fitting = [column for column in _without(free, names) if getattr(column, role.fact)]
            if role.name == "tags":  # as many as words
                words = [column for column in free if column.name == names.get("words")]
                fitting = [c for c in fitting if words and _are_as_long(c, words[0])]
            alone = role.alone and len(fitting) == 1
            names = _sole(role.name, fitting if alone else _hinting(fitting, role.hint)) | names
        clear[kind] = names
    # The answers may be two columns, an answer's text and start, as in a csv file of SQuAD.
    others = _without(free, clear["span_qa"])
    starts, no_answers = _hinting(others, "start"), _hinting(others, "no answers")
    answers = [column for column in _hinting(others, "answers") if column not in no_answers]
    if len(starts) == len(answers) == 1:
        clear["span_qa"] = {"answers": [answers[0].name, starts[0].name]} | clear["span_qa"]
    for kind in ("classification", "multi_label", "regression"):
        targets = [c for c in _targets(free) if c.are_numbers or kind != "regression"]
        names = _sole(TASKS[kind].target, targets)
        if kind == "multi_label" and len(targets) >= NUM_HOT:
            names["labels"] = [column.name for column in targets if column.is_hot]
        clear[kind] = names | _texts(_without(free, names))
    return clear


def _targets(free: Iterable[Column]) -> list[Column]:
    """Returns the columns that may be predicted: columns with the name of a label, else columns
    with classes or lists of labels, else columns with numbers."""
    others = [column for column in free if not column.is_id]
    labels = [column for column in others if column.is_label]
    numbers = [column for column in others if column.are_numbers and column.distinct > 1]
    named = [c for c in others if c.is_named_label and (c in labels or c in numbers)]
    named = [c for c in named if c.is_full] or named
    if not named and len(labels) > 1 and all(column.is_hot for column in labels):
        # including columns of a label that all rows or no rows have
        return [column for column in others if column.is_hot]
    return named or labels or numbers


def _texts(columns: list[Column]) -> Names:
    """Returns the column of a text, or the two columns of a pair of texts."""
    texts = [column for column in columns if column.is_text]
    if not texts:  # short strings, such as words and names, may be texts, too
        filled = [column for column in columns if column.filled > column.num / 2]
        strings = [c for c in filled if c.are_strings and not (c.is_id or c.are_marks)]
        texts = [c for c in strings if c.name.lower() in HINTS["text"] or not c.recurs]
    if len(texts) == 2:
        first, second = (column.name.lower() for column in texts)
        unlike = [a + b for a, b in zip(first, second, strict=False) if a != b]
        are_numbered = len(first) == len(second) and unlike in (["12"], ["ab"], ["01"])
        if are_numbered or any(a in first and b in second for a, b in map(str.split, PAIRS)):
            return {"text": texts[0].name, "text_pair": texts[1].name}
    named = [column for column in texts if column.name.lower() in HINTS["text"]]
    return _sole("text", texts if len(texts) == 1 else named)


def _are_as_long(first: Column, second: Column) -> bool:
    """Whether the lists of nearly all rows of two columns have the same length."""
    same = sum(a == b for a, b in zip(first.lengths, second.lengths, strict=True))
    return same >= MOST * first.num


def _hinting(columns: Iterable[Column], what: str) -> list[Column]:
    return [column for column in columns if column.hints_at(what)]


def _without(columns: Iterable[Column], names: Names) -> list[Column]:
    return [column for column in columns if column.name not in names_read(names)]


def _sole(role: str, columns: list[Column]) -> Names:
    return {role: columns[0].name} if len(columns) == 1 else {}


def names_read(names: Mapping[str, str | list[str]]) -> list[str]:
    """Returns the names of all columns of the data in ``names``."""
    return [name for chosen in names.values() for name in as_list(chosen)]


def as_list(names: str | list[str]) -> list[str]:
    return names if isinstance(names, list) else [names]
