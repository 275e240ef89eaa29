"""Finds the kind of task in a user's data, and which column is the text, the label and so on.

Only clear cases are found. If two columns may be the text or the label, nothing is guessed.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import Literal

import pandas

from stages.core.artifacts import Json
from stages.proposal.columns import HINTS, MOST, MOST_LABELS, SHAPES, TABLES, TEXT_WORDS, Column
from stages.proposal.flags import Flags, flag_of, roles_of
from stages.proposal.questions import Note, Unclear
from stages.sources._columns import GROUP, NONE, TIME, TIME_FORMAT, draws_test, no_column
from stages.tasks._cells import folded, number_of
from stages.tasks._task import TASKS

NUM_HOT = 3  # fewest columns of 0 and 1 that are labels, not one label and features
MAX_RATINGS = 20  # different whole numbers that are taken as classes without asking
MAX_JOINED = 1 / 3  # share of values with a separator, above which a cell may have several labels
SEPARATORS = ("|", ";", ",")  # between the labels of a cell; the last is the source's default
MOST_ROWS = 20_000  # whose cells and words are compared with those of other rows
MANY = 0.05  # share of rows that is worth a word
LEAST_GROUPS = 10
PREDICTED = {"label", "labels", "target", "tags", "answers"}  # roles
KIND_OF_ROLE = {"choices": "multiple_choice"} | {  # roles that one kind alone has
    TASKS[kind].target: kind for kind in ("span_qa", "tagging", "multi_label")
}
Columns = Mapping[str, Column]
Names = dict[str, str | list[str]]  # of the data's columns, by their role in a row


@dataclass
class Guess:
    """The kind of rows, the names of the data's ``columns`` by their role in a row, and further
    settings of the source (``settings``) and of the task (``task``)."""

    kind: str
    columns: Names
    settings: Json = field(default_factory=dict)
    task: Json = field(default_factory=dict)


def guess(columns: Columns, flags: Flags, notes: list[Note]) -> Guess:
    """Returns the kind of task and its columns, and adds what was decided to ``notes``. Raises
    Unclear if the columns and the flags do not show what is predicted from what."""
    whole = {role: ",".join(as_list(names)) for role, names in flags.columns.items()}
    given: Names = {  # a name may have commas
        role: whole[role] if whole[role] in columns else names
        for role, names in flags.columns.items()
    }
    used = [*names_read(given), *filter(None, (flags.group, flags.time))]
    if unknown := [name for name in used if name not in columns]:
        raise ValueError(no_column(unknown[0], columns))
    if len(columns) == 1:
        raise Unclear("one column")
    free = [c for name, c in columns.items() if name not in used and c.filled]
    split = flags.split if flags.split or flags.splits else _split_column(free)
    if split and split != NONE:
        free = [column for column in free if column.name != split]
        notes.append(Note("split", split))
    words = [c for c in free if c.hints_at("one word") and c.are_strings and c.words < 1.1]
    if words and flags.task is None and any(c.hints_at("one tag") for c in columns.values()):
        raise Unclear("one word", words[0].name)
    odd = [column for column in free if column.are_structures and column.hints_at("structures")]
    if odd and PREDICTED.isdisjoint(given):
        raise Unclear("structures", odd[0].name, flag_of("label"))
    kind = TASKS[flags.task or _kind(free, columns, given)]
    chosen = _clear(kind.name, free, given)
    if "text" in given:
        chosen.pop("text_pair", None)
    names = {role: (chosen | given)[role] for role in roles_of(kind) if role in chosen | given}
    if missing := [role for role in kind.columns if role not in names]:
        how = " ".join(map(flag_of, missing))
        if missing == ["text"] and "text_pair" in kind.optional:
            how += f" (several are joined: --text a,b); a pair has also {flag_of('text_pair')}"
        raise Unclear("role", kind.name, " and ".join(missing), how)
    predicted = as_list(names[kind.target])
    settings = _settings(kind.name, columns[predicted[0]], len(predicted), flags, notes)
    drawn = {"split": split, GROUP: flags.group, TIME: flags.time, TIME_FORMAT: flags.time_format}
    settings |= {key: value for key, value in drawn.items() if value and value != NONE}
    read = [name for name in names_read(names) if name not in predicted]
    notes.append(Note("kind", kind.name, predicted, columns[predicted[0]].distinct, read))
    for role in kind.several - {*kind.gathered, kind.target}:
        if isinstance(names.get(role), list):
            notes.append(Note("joined", " and ".join(names[role])))
    return Guess(kind.name, names, settings)


def _split_column(free: list[Column]) -> str | None:
    """Returns the column that names splits. Raises Unclear if several may, or if none does, but one
    is called ``split`` or the like."""
    columns = [c for c in free if "train" in c.splits and len(c.splits) > 1]
    named = [c for c in free if c.name.lower() in HINTS["split"] and c.distinct > 1]
    if len(columns) != 1 and (columns or named):
        raise Unclear("split", (columns or named)[0].name)
    return columns[0].name if columns else None


def _kind(free: list[Column], columns: Columns, given: Names) -> str:
    """Returns the kind of task, from the roles that are given or else from the free columns."""
    for role in KIND_OF_ROLE.keys() & given.keys():
        return KIND_OF_ROLE[role]
    has_choices = "choices" in _clear("multiple_choice", free, given)
    if "label" in given:
        return "multiple_choice" if has_choices else "classification"
    if "target" in given:
        target = columns[str(given["target"])]
        _refuse_amounts([target])
        return "regression" if target.are_numbers else "seq2seq"
    is_answered = len(_clear("span_qa", free, given)) == 3
    if is_answered or any(column.are_answers for column in free):
        return "span_qa"
    if has_choices or "tags" in _clear("tagging", free, given):
        return "multiple_choice" if has_choices else "tagging"
    targets = _targets(free)
    if len(targets) == 1:
        return _kind_of_target(targets[0])
    if len(targets) >= NUM_HOT and all(column.is_hot for column in targets):
        return "multi_label"
    texts = [column for column in columns.values() if column.is_text]
    if not targets and len(texts) > 1 and not any(column.recurs for column in texts):
        return "seq2seq"
    which = "no label is seen"
    if targets:
        which = f"several columns may be predicted ({', '.join(c.name for c in targets)})"
    else:
        _refuse_amounts(c for c in free if not (c.are_marks or c.hints_at("id")))
    for column in (c for c in free if c.are_strings and c.recurs and c.distinct > MOST_LABELS):
        which = f"{column.name} has {column.distinct} values, but classes are at most {MOST_LABELS}"
    raise Unclear("target", which)


def _kind_of_target(target: Column) -> str:
    """Returns the kind of rows whose only target is this column, if it has one reading."""
    if target.values.str.startswith("{").any():
        raise Unclear("structures", target.name, flag_of("label"))
    broken = [item for item in target.items if number_of(item) % 1 > 0]
    if target.share("bits") == 1 and target.values.str.contains("0[01]").any():
        broken = [target.values[0]]
    if broken:
        raise Unclear("odd labels", target.name, broken[0])
    if target.are_lists or target.share("hot") == 1:
        return "multi_label"
    has_commas = target.decimal == "comma"
    is_sure = target.is_sure and not target.hints_at("several labels")
    if target.are_numbers and not target.are_whole and (is_sure or not has_commas):
        return "regression"
    others = []
    if target.are_numbers and (target.distinct > MAX_RATINGS or has_commas):
        others.append("a number (--task regression)")
    joining = _joining(target)
    if has_commas if target.are_numbers else joining:
        sign = " --set label_separator=SIGN" if joining == "other" else ""
        most = max(target.texts, key=lambda text: (any(s in text for s in SEPARATORS), len(text)))
        others.append(f"several, as in {most!r} (--task multi_label{sign})")
    if others:
        raise Unclear("classes", target.distinct, target.name, ", or ".join(others))
    return "classification"


def _joining(target: Column) -> Literal["", "read", "other"]:
    """Returns whether cells may have several labels, with one of SEPARATORS between them or another
    sign. So it is if some of the labels (of another sign: all) are whole cells, too, or if what is
    before another sign is behind it elsewhere: joy/fear and fear/anger, unlike Home/Garden."""
    if any(re.search(SHAPES["sure sign"], text) for text in target.texts):
        return "other"
    is_read = any(sign in text for sign in SEPARATORS for text in target.texts)
    sign = SHAPES["read sign" if is_read else "other sign"]
    cells = [list(filter(None, re.split(sign, value))) for value in target.values]
    joined, alone = [parts for parts in cells if len({*parts}) > 1], {*target.values}
    enough = any if is_read else all
    are_labels = any(enough(part in alone for part in parts) for parts in joined)
    later = {part for parts in joined for part in parts[1:]}
    are_labels |= not is_read and any(parts[0] in later for parts in joined)
    if is_read and len(joined) > MAX_JOINED * target.distinct:
        words = [len(part.split()) for parts in joined for part in parts]
        are_labels |= sum(words) <= TEXT_WORDS * len(words)
    return ("read" if is_read else "other") if are_labels else ""


def _refuse_amounts(columns: Iterable[Column]) -> None:
    for column in columns:
        if column.are_strings and column.share("amount") >= MOST:
            raise Unclear("amount", column.texts[0], column.name)


def _settings(kind: str, target: Column, num_columns: int, flags: Flags, notes: list[Note]) -> Json:
    """Returns the settings with which the cells of the target are read."""
    if kind == "classification":
        few = target.distinct < MOST * target.filled or target.filled < 10
        if not (2 <= target.distinct <= MOST_LABELS and few):
            raise Unclear("no classes", target.name, target.distinct, target.filled, MOST_LABELS)
        if target.are_numbers and target.distinct > 3:
            notes.append(Note("scale", target.name))
    elif kind == "multi_label" and num_columns == 1:
        are_hot, sign = target.share("hot") == 1, flags.label_separator
        if are_hot:
            sign = re.fullmatch(SHAPES["hot"], target.values[0])[1]  # type: ignore[index]
        elif not (sign or target.are_lists or target.are_structures):
            if _joining(target) == "other":
                raise Unclear("separator", target.name, max(target.texts, key=len))
            sign = next((s for s in SEPARATORS if any(s in t for t in target.texts)), None)
        if sign:
            notes.append(Note("separator", sign))
        settings = {"label_separator": sign} if sign and sign != SEPARATORS[-1] else {}
        return settings | ({"multi_hot": True} if are_hot or target.are_hot else {})
    elif kind == "regression":
        if not (target.is_sure or flags.decimal):
            raise Unclear("decimal", target.name, target.texts[0], target.decimal)
        return {"decimal": flags.decimal or target.decimal}
    elif kind == "multiple_choice":
        digit = "0" if "0" in {*target.values} else "1"
        first = flags.first_choice or ("A" if target.values.str.isalpha().any() else digit)
        notes.append(Note("first choice", first))
        return {"first_choice": first if first == "A" else int(first)}
    return {}


def _clear(kind: str, free: Sequence[Column], given: Container[str]) -> Names:
    """Returns the free columns whose role in a row is clear, without the ``given`` roles."""
    names: Names = {}

    def left() -> list[Column]:
        return [column for column in free if column.name not in names_read(names)]

    if kind in ("classification", "multi_label", "regression"):
        targets = [c for c in _targets(free) if c.are_numbers or kind != "regression"]
        names = _sole(TASKS[kind].target, targets)
        if kind == "multi_label" and len(targets) >= NUM_HOT:
            names["labels"] = [column.name for column in targets if column.is_hot]
        return names | _texts(left())
    if kind == "multiple_choice":  # a column for each: a to d, if the right one is named so
        letters = [c.name for c in free if re.fullmatch("[a-j]", c.name.lower())]
        keys = [{*c.values.str.lower()} for c in free if c.name not in letters and c.are_keys]
        choices = [c.name for c in free if re.fullmatch(SHAPES["choice"], c.name.lower())]
        choices = letters if {name.lower() for name in letters} in keys else choices
        names = {"choices": choices} if len(choices) > 1 else {}
    for role, rule in TABLES["roles"].get(kind, {}).items():
        fitting = [column for column in left() if getattr(column, rule["fact"])]
        if role == "tags":  # as many as words
            words = [column.lengths for column in free if column.name == names.get("words")]
            fitting = [c for c in fitting if words and (c.lengths == words[0]).mean() >= MOST]
        hinting = [column for column in fitting if column.hints_at(*rule["hint"])]
        is_alone = rule.get("alone") and len(fitting) == 1
        if role not in given:
            names = _sole(role, fitting if is_alone else hinting) | names
    if kind == "span_qa":  # the answers may be two columns: text and start, as in a csv file
        starts = [column for column in left() if column.hints_at("start")]
        texts = [c for c in left() if c.hints_at("answers") and not c.hints_at("part of answers")]
        if len(starts) == len(texts) == 1:
            names.setdefault("answers", [texts[0].name, starts[0].name])
    return names


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
        if are_numbered or any(a in first and b in second for a, b in TABLES["pairs"]):
            return {"text": texts[0].name, "text_pair": texts[1].name}
    named = [column for column in texts if column.name.lower() in HINTS["text"]]
    return _sole("text", texts if len(texts) == 1 else named)


def _sole(role: str, columns: list[Column]) -> Names:
    return {role: columns[0].name} if len(columns) == 1 else {}


def names_read(names: Mapping[str, str | list[str]]) -> list[str]:
    """Returns the names of all columns of the data in ``names``."""
    return [name for chosen in names.values() for name in as_list(chosen)]


def as_list(names: str | list[str]) -> list[str]:
    return names if isinstance(names, list) else [names]


def notes_on_columns(
    columns: Columns, guessed: Guess, flags: Flags, source: Json
) -> Iterator[Note]:
    """Yields notes on columns that are not read. Raises Unclear if one of them tells apart equal
    inputs with several answers, or two are the places of spans."""
    kind, names, settings = TASKS[guessed.kind], guessed.columns, guessed.settings
    predicted, all_read = as_list(names[kind.target]), names_read(names)
    used = {*all_read, *(settings.get(key) for key in ("split", GROUP, TIME))}
    left = [column for name, column in columns.items() if name not in used]
    if "text" in names and left:
        table = pandas.DataFrame({n: [*map(str, c.cells[:MOST_ROWS])] for n, c in columns.items()})
        read, target = [name for name in all_read if name not in predicted], predicted[0]
        is_open = "text_pair" in kind.optional and not {"text", "text_pair"} & flags.columns.keys()
        places = [c for c in left if c.hints_at("offset") and c.are_numbers and c.are_whole]
        if is_open and len(places) == 2:
            begins, ends = (pandas.to_numeric(table[c.name], "coerce") for c in places)
            are_inside = begins.between(0, ends, "left") & (ends <= table[read[0]].str.len())
            if are_inside.mean() >= MOST:
                raise Unclear("spans", *(column.name for column in places), read[0])
        inputs = table[read].map(folded).groupby(read).ngroup()
        several = table.groupby(inputs)[target].transform("nunique") > 1
        is_open &= "text_pair" not in names and several.sum() >= MANY * len(table)
        for column in (column for column in left if is_open and column.recurs):
            answers = table[several].groupby([inputs[several], column.name])[target].nunique()
            if (answers == 1).mean() >= MOST:
                raise Unclear("aspect", several.sum(), len(table), column.name, *read[:1])
        # Authors, documents and the like, whose rows share the name or the answer
        often = table[target].value_counts(normalize=True).max()
        fewest = max(LEAST_GROUPS, table[target].nunique() + 1)
        is_drawn = GROUP not in settings and draws_test(source | settings)
        groups = (c for c in left if is_drawn and c.filled == c.num >= 2 * c.distinct >= 2 * fewest)
        for column in groups:
            pairs = table.groupby([column.name, target]).size().groupby(level=0)
            share = pairs.max().sum() / len(table)
            is_name = column.are_strings or column.hints_at("id")
            is_sure = is_name and share >= max(MOST, (1 + often) / 2)
            if is_sure or column.hints_at("group"):
                also = f", and {share:.0%} of their rows share an answer" if is_sure else ""
                yield Note("group", quote(column.name), column.distinct, also)
    texts = as_list(names.get("text", []))
    more = [c.name for c in left if c.may_be_text and c.distinct > 1 and not c.is_label]
    if more and texts:
        joined = [name for name in columns if name in {*texts, *more}]
        joined.sort(key=lambda name: not columns[name].hints_at("heading"))
        flag = f"--text {quote(','.join(joined))}"
        command = f"make new DATA={quote(source['path'])} FLAGS={quote(flag)}"
        yield Note("unread texts", more, " and ".join(joined), command)
    if others := [column.name for column in left if not (texts and column.name in more)]:
        yield Note("unread", others, " ".join(map(flag_of, names)))
