"""Finds the kind of task in a user's data, and which column is the text, the label and so on.

Only clear cases are found, such as a text and a column with few values, or lists of words and of
tags. If two columns may be the text or the label, nothing is guessed: the error lists the columns
and names the flags.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from stages.core.artifacts import Json
from stages.proposal.columns import HINTS, HOT, MOST, MOST_LABELS, TEXT_WORDS, Column
from stages.proposal.flags import WORDS, Flags, flag_of, roles_of
from stages.proposal.questions import Unclear
from stages.sources._columns import GROUP, NONE, TIME, TIME_FORMAT
from stages.tasks._cells import number_of
from stages.tasks._labels import alike
from stages.tasks._tags import OUTSIDES, split_tag, written_as
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

SEPARATORS = ("|", ";", ",")  # between the labels of a cell; the last is the source's default
# Signs that always separate labels: line breaks, tabs, and the signs between tags (<a><b> of Stack
# Overflow) and between the parts of a path; and signs that do (a#b of doccano) unless commas may
# (C#, Java; std::map, set).
ALWAYS, UNLESS_COMMAS = ("\n", "\t", "><", ">>", "->", ">"), ("::", "#")
# Other signs, each with a share: they separate labels if at least this share of the parts recurs in
# several cells, or (None) only if the parts also occur alone. Otherwise they are part of a name.
JOINTS = {"/": 0.5, "+": 0.5, "&": 0.5, " and ": 0.5, " ": 1.0, ":": None, "_": None, "-": None}
JOINTS = dict.fromkeys(ALWAYS, 0.0) | JOINTS | dict.fromkeys(UNLESS_COMMAS, 0.0)

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


def guess(columns: Columns, flags: Flags, notes: list[str]) -> Guess:
    """Returns the kind of task and its columns, and adds what was decided to ``notes``. Raises
    Unclear if the columns and the flags do not show what is predicted from what."""
    given = [*names_read(flags.columns), *filter(None, (flags.group, flags.time))]
    if unknown := [name for name in given if name not in columns]:
        raise ValueError(f"no column {unknown[0]!r}; there are: {', '.join(columns)}")
    free = [c for name, c in columns.items() if name not in given and c.filled]
    if len(columns) == 1:
        raise Unclear("one column")
    split = flags.split if flags.split or flags.splits else _split_column(free)
    split = None if split == NONE else split
    if split:
        free = [column for column in free if column.name != split]
        notes.append(f"The column {split} gives the splits. (--split {NONE} draws them)")
    words = [c for c in _hinting(free, "one word") if c.are_strings and c.words < 1.1]
    if words and _hinting(columns.values(), "one tag") and flags.task is None:
        raise Unclear("one word", words[0].name)
    odd = [column for column in _hinting(free, "structures") if column.are_structures]
    if odd and not PREDICTED & flags.columns.keys():
        raise Unclear("structures", odd[0].name, flag_of("label"))
    clear = _clear_columns(free)
    kind = TASKS[flags.task or _kind(free, columns, clear, flags)]
    chosen = clear[kind.name]
    if "text" in flags.columns:
        chosen.pop("text_pair", None)
    chosen |= flags.columns
    names = {role: chosen[role] for role in roles_of(kind) if role in chosen}
    if missing := [role for role in kind.columns if role not in names]:
        named = " ".join(map(flag_of, missing))
        if missing == ["text"] and "text_pair" in kind.optional:
            named += f", and for a pair of texts also {flag_of('text_pair')}"
        raise Unclear("role", kind.name, " and ".join(missing), named)
    for role in {"text", "text_pair", "context"} & names.keys():
        if (read := columns[str(names[role])]).are_lists or read.are_structures:
            raise Unclear("structures", read.name, flag_of(role))
    predicted = as_list(names[kind.target])
    settings = _settings(kind.name, [columns[name] for name in predicted], flags, notes)
    drawn = {"split": split, GROUP: flags.group, TIME: flags.time, TIME_FORMAT: flags.time_format}
    settings |= {key: value for key, value in drawn.items() if value}

    read = [name for name in names_read(names) if name not in predicted]
    distinct = f"{columns[predicted[0]].distinct:,} different values"
    notes.append(f"{kind.name}: {', '.join(predicted)} ({distinct}) from {', '.join(read)}.")
    used = {*read, *predicted, split, flags.group, flags.time}
    if left := [name for name in columns if name not in used]:
        notes.append(f"Not read: {', '.join(left)}. ({' '.join(map(flag_of, names))})")
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


def _kind(free: list[Column], columns: Columns, clear: Mapping[str, Names], flags: Flags) -> str:
    """Returns the kind of task, from the flags or else from the ``free`` columns."""
    for role in KIND_OF_ROLE.keys() & flags.columns.keys():
        return KIND_OF_ROLE[role]
    has_choices, question = "choices" in clear["multiple_choice"], clear["span_qa"]
    if "label" in flags.columns:
        return "multiple_choice" if has_choices else "classification"
    if "target" in flags.columns:
        target = columns[str(flags.columns["target"])]
        _refuse_amounts([target])
        return "regression" if target.are_numbers else "seq2seq"
    if any(column.are_answers for column in free) or len(question) == 3:
        return "span_qa"
    if has_choices or "tags" in clear["tagging"]:
        return "multiple_choice" if has_choices else "tagging"
    targets = _targets(free)
    if len(targets) == 1:
        others = [column for column in free if column.words and not column.is_text]
        targets += [column for column in others if _are_numbered(targets[0].name, column.name)]
    if len(targets) == 1:
        return _kind_of_target(targets[0])
    if len(targets) >= NUM_HOT and all(column.is_hot for column in targets):
        return "multi_label"
    if not targets and len(question) == 2 and (answers := _hinting(free, "answers")):
        raise Unclear("place", answers[0].name, question["context"])
    texts = [column for column in columns.values() if column.is_text]
    if not targets and len(texts) > 1 and not any(column.recurs for column in texts):
        return "seq2seq"
    _refuse_amounts([] if targets else free)
    which = ", ".join(column.name for column in targets)
    which = f"several columns may be predicted ({which})" if which else "no label is seen"
    raise Unclear("target", which)


def _refuse_amounts(columns: Iterable[Column]) -> None:
    """Raises Unclear if a column has numbers with units or other signs."""
    for column in columns:
        if column.are_amounts:
            raise Unclear("amount", column.texts[0], column.name)


def _kind_of_target(target: Column) -> str:
    """Returns the kind of rows whose only target is this column; raises Unclear if the column can
    be read in several ways."""
    name, values = target.name, target.values
    if broken := [item for item in target.items if number_of(item) % 1 > 0]:
        raise Unclear("odd labels", name, broken[0])
    if values.str.fullmatch("'?[01]{3,}").all() and values.str.contains("0[01]").any():
        raise Unclear("odd labels", name, values[0])
    if (target.are_lists or values.str.fullmatch(HOT).all()) and {*target.lengths} != {0, 1}:
        return "multi_label"
    is_list = target.decimal == "comma" and not target.are_lists
    is_sure = target.is_sure and not target.hints_at("several labels")
    if target.are_numbers and not target.are_whole and (not is_list or is_sure):
        return "regression"
    # What else the cells may be.
    joint = None if target.are_lists or target.are_numbers else joint_of(target.texts)
    parts = values[values.str.contains(r"[|;,]")].str.split(r"\s*[|;,]\s*")
    are_short = parts.explode().str.split().str.len().mean() <= TEXT_WORDS
    are_labels = any({*items} & {*values} for items in parts)
    may_be_joined = are_labels or (are_short and len(parts) > MAX_JOINED * target.distinct)
    others = []
    if target.are_numbers and (target.distinct > MAX_RATINGS or is_list):
        others.append("a number (--task regression)")
    if joint is not None:
        sign = separator_of(target.texts) or joint
        example = max(target.texts, key=lambda value: len(_parts(value, sign)))
        example = f"several labels separated by {sign!r}, such as {example!r}"
        others.append(f"{example} (--task multi_label)")
    elif is_list if target.are_numbers else target.are_lists or may_be_joined:
        others.append("several labels (--task multi_label)")
    if others:
        raise Unclear("classes", target.distinct, name, ", or ".join(others))
    return "classification"


def _settings(kind: str, targets: list[Column], flags: Flags, notes: list[str]) -> Json:
    """Returns the settings with which the cells of the target are read. Raises Unclear for classes
    that hardly recur, and for numbers that can be read in two ways."""
    target, settings = targets[0], Json()
    if kind == "classification":
        few = target.distinct < MOST * target.filled or target.filled < 10
        if not (2 <= target.distinct <= MOST_LABELS and few):
            raise Unclear("no classes", target.name, target.distinct, target.filled, MOST_LABELS)
        if target.respelt:
            spelt = ", ".join(target.respelt[:4])
            notes.append(f"Read without blanks, invisible signs and .0: {spelt}.")
        if target.are_numbers and target.distinct > 3:
            notes.append(f"The numbers of {target.name} are classes (a scale: --task regression).")
    elif kind == "multi_label" and len(targets) == 1:
        hot = re.fullmatch(HOT, next(iter(target.values), ""))
        is_text = not (target.are_lists or target.are_structures)
        sign = hot[1] if hot else separator_of(target.texts) if is_text else None
        if sign and sign != SEPARATORS[-1]:
            settings["label_separator"] = sign
        if target.are_hot or target.values.str.fullmatch(HOT).all():
            settings["multi_hot"] = True
        notes.append(f"Separator of the labels: {sign!r}; 0 and 1 by position: {bool(hot)}.")
    elif kind == "regression":
        if not (target.is_sure or flags.decimal):
            raise Unclear("decimal", target.name, target.texts[0], target.decimal)
        settings["decimal"] = flags.decimal or target.decimal
        if target.distinct <= MAX_RATINGS:
            notes.append(f"{target.name} is a scale (as classes: --task classification).")
    elif kind == "multiple_choice":
        digit = "0" if "0" in {*target.values} else "1"
        first = flags.first_choice or ("A" if target.values.str.isalpha().any() else digit)
        notes.append(f"The first choice is called {first}. (--set first_choice)")
        settings["first_choice"] = first if first == "A" else int(first)
    return settings


# The columns of a row ----------------------------------------------------------------------------


def _clear_columns(free: list[Column]) -> dict[str, Names]:
    """Returns the ``free`` columns whose role in a row is clear, for each kind of rows."""
    texts = [column for column in free if column.is_text]
    lists = [column for column in free if column.are_lists]
    clear: dict[str, Names] = {}

    # The answers may be two columns, an answer's text and start, as in a csv file of SQuAD.
    question = _sole("question", _hinting(texts, "question"))
    question |= _sole("context", _hinting(texts, "context"))
    question |= _sole("answers", [column for column in free if column.are_answers])
    others = _without(free, question)
    starts, no_answers = _hinting(others, "start"), _hinting(others, "no answers")
    answers = [column for column in _hinting(others, "answers") if column not in no_answers]
    if "answers" not in question and len(starts) == len(answers) == 1:
        question["answers"] = [answers[0].name, starts[0].name]
    clear["span_qa"] = question

    words = _hinting(lists, "words")
    tags = [c for c in lists if len(words) == 1 and c not in words and _are_as_long(c, words[0])]
    tags = tags if len(tags) == 1 else _hinting(tags, "tags")
    clear["tagging"] = _sole("words", words) | _sole("tags", tags)

    target = _sole("target", _hinting(texts, "target"))
    clear["seq2seq"] = target | _sole("text", _without(texts, target))

    # Columns such as choice1 and choice2, or else the only column with lists of choices.
    several = [column.name for column in free if re.fullmatch(CHOICES, column.name.lower())]
    choices = _sole("choices", [c for c in _hinting(lists, "choices") if c.distinct > 1])
    if len(several) > 1:
        choices["choices"] = several
    others = _without(free, choices)
    labels = [c for c in others if c.values.str.fullmatch("[0-9A-Ja-j]").all()]
    labels = labels if len(labels) == 1 else _hinting(labels, "right choice")
    premises = [column for column in others if column.is_text]
    text = _sole("text", premises if len(premises) == 1 else _hinting(premises, "premise"))
    strings = [column for column in _without(others, text) if column.are_strings]
    asking = _sole("question", _hinting(strings, "question of choices"))
    clear["multiple_choice"] = choices | _sole("label", labels) | text | asking

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
        by_words = any(a in first and b in second for a, b in map(str.split, PAIRS))
        if by_words or _are_numbered(first, second):
            return {"text": texts[0].name, "text_pair": texts[1].name}
    named = [column for column in texts if column.name.lower() in HINTS["text"]]
    return _sole("text", texts if len(texts) == 1 else named)


def _are_as_long(first: Column, second: Column) -> bool:
    """Whether the lists of nearly all rows of two columns have the same length."""
    same = sum(a == b for a, b in zip(first.lengths, second.lengths, strict=True))
    return same >= MOST * first.num


def _are_numbered(first: str, second: str) -> bool:
    """Whether two columns have names such as label1 and label2, or sentence_A and sentence_B."""
    one, other = first.lower(), second.lower()
    unlike = [a + b for a, b in zip(one, other, strict=False) if a != b]
    return len(one) == len(other) > 1 and unlike in (["12"], ["ab"], ["01"])


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


# The sign between the labels of a cell -----------------------------------------------------------


def separator_of(values: Sequence[str]) -> str | None:
    """Returns the sign between the labels of a cell, or None: the first of SEPARATORS that occurs,
    otherwise the sign of ``joint_of``. A comma in a path, as in ``Music > Pop, Rock``, is part of a
    name."""
    joint = joint_of(values)
    usual = next((sign for sign in SEPARATORS if any(sign in value for value in values)), None)
    return joint if usual is None or (usual == "," and joint in ALWAYS) else usual


def joint_of(values: Sequence[str]) -> str | None:
    """Returns a separator of labels that is not in SEPARATORS, such as the / in joy/fear, or None.

    ALWAYS and UNLESS_COMMAS separate labels wherever they occur. Any other sign does so if all
    labels of one cell also occur alone in other cells, or if labels recur in several combinations
    and in no fixed order, unlike ``very good`` and ``Home/Garden``.
    """
    for joint, least in JOINTS.items():
        cells = [_parts(value, joint) for value in values]
        joined = [parts for parts in cells if len(parts) > 1]
        alone = {parts[0] for parts in cells if len(parts) == 1}
        if joined and joint in (*ALWAYS, *UNLESS_COMMAS):
            return joint
        if not joined or any(len({*parts}) < len(parts) for parts in joined):
            continue
        counts = Counter(part for parts in joined for part in parts)
        moves = {parts[0] for parts in joined} & {part for parts in joined for part in parts[1:]}
        recurring = sum(n > 1 for n in counts.values()) / len(counts)
        is_short = counts.total() <= TEXT_WORDS * len(joined)
        is_combined = least is not None and is_short and moves and recurring >= least
        are_numbers = joint == " " and all(part.isdecimal() for part in counts)
        if is_combined or are_numbers or any({*parts} <= alone for parts in joined):
            return joint
    return None


def _parts(value: str, joint: str) -> list[str]:
    inner = value.strip("<>") if joint == "><" else value
    return [part.strip() for part in inner.split(joint) if part.strip()]


# Tags --------------------------------------------------------------------------------------------

SPAN_TAG = r"[BI][-_:./\u2013].+|.+[-_:./\u2013][BI]|(?i:begin|start|inside|outside)([-_:.].+)?"
SEVERAL_TAGS = r"[BIES][-_:].+[|,;+/][BIELSU][-_:]|\([A-Za-z]\w+(\*|\))"  # nested spans; CoNLL-2012
MANY_OUTSIDE = 1 / 3  # share of words outside of spans, if there are spans


def tag_settings(tagged: dict[str, list[str]], flags: Flags, file: str) -> tuple[Json, Json, str]:
    """Returns the settings of the source and of the task for tags, and a note that explains them.
    ``tagged`` has the tags of each sentence by the sentence's place in the file.

    Raises Unclear, which begins with ``file`` or a place, if it is unclear how to read the tags.
    """
    sentences = [*tagged.values()]
    counts = Counter(tag for tags in sentences for tag in tags)
    single = (Json(), {"metric": "word_accuracy"}, "Tags of single words, scored word by word.")
    settings: Json = {}
    if len(counts) == 1:
        raise Unclear("one tag", file, repr(next(iter(counts))))
    if flags.tag_scheme == WORDS:
        return single
    if all(re.fullmatch(r"-?\d+(\.0)?", tag) for tag in counts):
        names, numbers = flags.tag_names or [], {tag: int(float(tag)) for tag in counts}
        if not all(0 <= number < len(names) for number in numbers.values()):
            raise Unclear("numbers", file, ", ".join(sorted(counts)[:8]))
        settings["tag_names"] = names
        sentences = [[names[numbers[tag]] for tag in tags] for tags in sentences]
    scheme, form, odd, num_open = written_as(sentences)
    shown = ", ".join(f"{tag!r} ({counts[tag]:,})" for tag in [*(odd or counts)][:8])
    if several := [tag for tag in counts if re.search(SEVERAL_TAGS, tag)]:
        raise Unclear("two tags", file, repr(several[0]))
    if flags.tag_scheme is None and scheme is not None and odd:
        place = next(place for place, tags in tagged.items() if not {*odd}.isdisjoint(tags))
        raise Unclear("odd tags", place, shown, scheme)
    scheme = flags.tag_scheme or scheme
    if scheme is None:
        are_spans = any(re.fullmatch(SPAN_TAG, tag) for tag in counts)
        few_outside = sum(counts[tag] for tag in OUTSIDES) < MANY_OUTSIDE * counts.total()
        if odd and few_outside and not are_spans:
            return single
        raise Unclear("no scheme", file, shown)
    settings |= {"tag_scheme": scheme} | ({"tag_form": form} if form != "as_is" else {})
    why = f"Tags in {scheme.upper()}; {num_open:,} spans begin with I-TYPE (--set tag_scheme)."
    types = {part[1] for tag in counts if (part := split_tag(tag, form))}
    why += "".join(f" Types that look alike: {', '.join(group)}." for group in alike(types))
    return settings, {}, why
