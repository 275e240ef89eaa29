"""The kind of task that data are of, and which of their columns each column of a row is.

What is clear in one way is found: a text and a column with few values, lists of words and of tags.
Where two columns may be the text or the label, nothing is guessed: the error lists the columns and
names the flags.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pandas

from stages.core.artifacts import Json
from stages.kinds._kind import KINDS, Kind
from stages.proposal.flags import Flags, flag_of, roles_of
from stages.sources._formats import Record

MOST_LABELS = 300
MOST_RATINGS = 20  # different whole numbers that may be classes
RATINGS = 4  # so many that they may be a scale
NUM_FEW = 20  # rows below which shares say nothing
MOST_JOINED = 1 / 3  # share of labels with a sign that may stand between several
RECUR = 4  # times that a label of lists occurs, in the mean
MOST_DISTINCT = 0.5  # distinct values per row, of labels
TEXT_WORDS, TEXT_LETTERS, LABEL_WORDS = 3.0, 15.0, 5.0  # in the mean
LEAST_FILLED = 0.9  # of a label's cells; which are empty is said with their lines
SAME_LENGTHS = 0.9  # share of rows, of words and tags
SHOWN_LETTERS = 40
MARK = r"(https?://|www\.)\S+|\d{1,4}([-/.])\d{1,2}\2\d{1,4}([T ][\d:.,+ -]*([AaPp][Mm]|Z)?)?"
SEPARATORS = ("|", ";", ",")  # of several labels in a cell; the source takes the last unasked
LABELS = {"label", "labels", "class", "category", "target", "gold", "y", "sentiment", "intent"}
TEXTS = ("text", "sentence", "review", "content", "body", "comment", "tweet", "document", "message")
TARGETS = {"target", "tgt", "summary", "translation", "highlights", "output", "answer"}
IDS = {"id", "ids", "idx", "index", "key", "uid", "uuid", "guid", "no", "nr", "number"}
WORDS, TAGS = {"words", "tokens", "form"}, {"tags", "ner", "upos", "labels"}
PAIRS = (
    *("premise hypothesis", "question sentence", "question passage", "question answer"),
    *("query document", "query passage", "claim evidence", "first second"),
)
CHOICES = r"(choice|option|ending|answer|solution|sol|opt|candidate|alternative)s?[_ ]?([a-z]|\d)"


@dataclass
class Guess:
    """``columns`` of the data by those of a row, and further ``settings`` of the source."""

    kind: str
    columns: dict[str, str | list[str]]
    settings: Json = field(default_factory=dict)


class Column:
    """The filled cells of a column, and what they hold."""

    def __init__(self, name: str, cells: pandas.Series) -> None:
        filled = cells[[not is_empty(cell) for cell in cells]]
        self.name, self.num, self.filled = name, len(cells), len(filled)
        self.are_lists = bool(len(filled)) and all(isinstance(cell, list) for cell in filled)
        self.are_single = all(isinstance(cell, str | int | float) for cell in filled)
        self.are_answers = any(map(_is_answers, filled))
        self.lengths = [len(cell) if isinstance(cell, list) else 0 for cell in cells]
        lists = [cell for cell in filled if isinstance(cell, list)]
        self.items = Counter(str(item) for cell in lists for item in cell)
        texts = pandas.Series([str(cell).strip() for cell in filled], dtype=object)
        self.values = texts.drop_duplicates()
        numbers = pandas.to_numeric(texts, errors="coerce").astype(float)
        is_finite = bool(numbers.between(-1e300, 1e300).all())
        self.are_numbers = self.filled > 0 and self.are_single and is_finite
        self.numbers = numbers.drop_duplicates() if self.are_numbers else numbers[:0]
        self.are_whole = bool((self.numbers % 1 == 0).all())
        self.words = sum(len(text.split()) for text in texts) / max(self.filled, 1)
        self.letters = sum(map(len, texts)) / max(self.filled, 1)
        self.are_strings = self.filled > 0 and self.are_single and not self.are_numbers
        # Addresses in the web and days are neither texts nor classes.
        self.are_marks = self.are_strings and self.values[:200].str.fullmatch(MARK).mean() > 0.5

    @property
    def distinct(self) -> int:
        return len(self.values)

    @property
    def recurs(self) -> bool:
        """Whether values occur again and again, as labels do."""
        return self.num < NUM_FEW or self.distinct <= MOST_DISTINCT * self.filled

    @property
    def is_named_label(self) -> bool:
        return self.name.lower() in LABELS

    @property
    def is_text(self) -> bool:
        has_words = self.words >= TEXT_WORDS or (self.letters >= TEXT_LETTERS and not self.recurs)
        is_other = self.are_marks or self.is_id or (self.is_named_label and self.recurs)
        return self.are_strings and has_words and not is_other

    @property
    def is_label(self) -> bool:
        """Whether the column has a class, or a list of labels, for each row."""
        if self.are_lists:
            several = any(length != 1 for length in self.lengths)
            return several and len(self.items) <= min(MOST_LABELS, self.items.total() / RECUR)
        return (
            (self.are_strings or (self.are_numbers and self.are_whole))
            and self.filled >= LEAST_FILLED * self.num
            and 2 <= self.distinct <= MOST_LABELS
            and self.recurs
            and (self.words <= LABEL_WORDS or self.is_named_label)
            and not self.are_marks
        )

    @property
    def is_id(self) -> bool:
        """Whether the column has a number or a name of the row."""
        is_unnamed = not self.name.strip() or self.name.startswith("Unnamed: ")  # pandas' index
        steps = set(self.numbers.diff()[1:])
        counts_up = self.are_whole and len(steps) == 1 and min(steps) > 0
        return (
            self.distinct == self.filled >= NUM_FEW
            and self.are_single
            and self.words <= 1
            and self.are_whole
            and (is_unnamed or counts_up or bool(_words_of_name(self.name) & IDS))
        )

    def is_as_long_as(self, other: "Column") -> bool:
        """Whether the lists of nearly all rows have the lengths of those of another column."""
        same = sum(a == b for a, b in zip(self.lengths, other.lengths, strict=True))
        return same >= SAME_LENGTHS * self.num

    def described(self) -> str:
        first = "" if self.values.empty else self.values.iloc[0].replace("\n", " ")
        example = first if len(first) <= SHOWN_LETTERS else f"{first[:SHOWN_LETTERS]}..."
        number = f"{self.distinct:,} different in {self.filled:,} rows"
        return f"  {self.name}: {number}, such as {example!r}"


Columns = Mapping[str, Column]
Names = dict[str, str | list[str]]  # of columns of the data, by the column of a row


def profile(records: Iterable[Record]) -> dict[str, Column]:
    """The columns of records by their names; those in objects are ``translation.de``."""
    table = pandas.DataFrame([_flat(record.cells) for record in records], dtype=object)
    return {str(name): Column(str(name), table[name]) for name in table}


def guess(columns: Columns, flags: Flags, notes: list[str], *, place: str) -> Guess:
    """Raises ValueError, which begins with ``place``, where the columns and the flags do not say
    what is predicted from what."""
    given = [name for names in flags.columns.values() for name in _list(names)]
    for name in given:
        if name not in columns:
            raise ValueError(f"{place}: no column {name!r}; there are: {', '.join(columns)}")
    if len(columns) == 1:
        raise ValueError(f"{place}: one column; a task needs a text column and a label column")
    free = {name: column for name, column in columns.items() if name not in given}
    kind = KINDS[flags.task or _kind(free, columns, flags, place)]
    others = dict(span_qa=_questions, multiple_choice=_choices, tagging=_tags, seq2seq=_texts)
    clear = others[kind.name](free) if kind.name in others else _labelled(free, kind)
    if "text" in flags.columns:
        clear.pop("text_pair", None)
    chosen = {**clear, **flags.columns}
    names = {role: chosen[role] for role in roles_of(kind) if role in chosen}
    if missing := [role for role in kind.columns if role not in names]:
        name_them = " ".join(f"{flag_of(role)} NAME" for role in missing)
        needed = f"{kind.name} needs {' and '.join(missing)}, which no column clearly is"
        raise _unclear(f"{place}: {needed}; name it: {name_them}", columns)
    target = columns[str(names[kind.target])]
    settings: Json = {}
    if kind.name == "classification":
        few = target.distinct < 0.9 * target.filled or target.filled < 10
        if not (2 <= target.distinct <= MOST_LABELS and few):
            raise _unclear(
                f"{target.name}: {target.distinct:,} different values in {target.filled:,} rows; "
                f"classes are 2 to {MOST_LABELS} that recur, no ids or free text (--label NAME)",
                columns,
            )
    elif kind.name == "multi_label" and not target.are_lists:
        used = [sign for sign in SEPARATORS if target.values.str.contains(sign, regex=False).any()]
        settings = {"label_separator": used[0]} if used and used[0] != SEPARATORS[-1] else {}
    elif kind.name == "multiple_choice":
        first = flags.first_choice or _first_choice(target)
        settings = {"first_choice": first if first == "A" else int(first)}
        notes.append(f"The first choice is called {first}. (--first-choice)")
    _note(kind.name, names, target, columns, notes)
    return Guess(kind.name, names, settings)


def _is_answers(value: object) -> bool:
    """Whether a cell holds answers as SQuAD's files or the hub have them."""
    answers = value if isinstance(value, list) else [value]
    return any(isinstance(answer, Mapping) and "answer_start" in answer for answer in answers)


def is_empty(cell: object) -> bool:
    return cell is None or cell != cell or (isinstance(cell, str) and not cell.strip())


# The kind of task --------------------------------------------------------------------------------


def _kind(free: Columns, columns: Columns, flags: Flags, place: str) -> str:
    """The kind that the flags or else the columns say; ``free`` are those that no flag names."""
    kinds = {"answers": "span_qa", "choices": "multiple_choice", "tags": "tagging"}
    for role, kind in (kinds | {"labels": "multi_label"}).items():
        if role in flags.columns:
            return kind
    if "label" in flags.columns:
        return "multiple_choice" if _choices_of(free) else "classification"
    if "target" in flags.columns:
        is_number = columns[str(flags.columns["target"])].are_numbers
        return "regression" if is_number else "seq2seq"
    if any(column.are_answers for column in free.values()):
        return "span_qa"
    if _choices_of(free) or "tags" in _tags(free):
        return "multiple_choice" if _choices_of(free) else "tagging"
    targets = _targets(free)
    if len(targets) == 1:
        return _kind_of_target(targets[0], columns, place)
    if not targets and sum(column.is_text for column in columns.values()) > 1:
        return "seq2seq"
    which = ", ".join(column.name for column in targets)
    raise _unclear(
        f"{place}: {f'several columns may be predicted ({which})' if which else 'no label is seen'}"
        "; name the column: --label NAME (one of few classes), --labels NAME (any number of them), "
        "--target NAME (a number, or a text to write)",
        columns,
    )


def _kind_of_target(target: Column, columns: Columns, place: str) -> str:
    name, kinds = target.name, ""
    if target.are_lists:
        return "multi_label"
    if target.are_numbers:
        if not target.are_whole:
            return "regression"
        kinds = "regression" if target.distinct > MOST_RATINGS else ""
    else:
        joined = target.values.str.contains(r"[|;,]")
        kinds = "multi_label" if joined.mean() > MOST_JOINED else ""
    if kinds:
        raise _unclear(
            f"{place}: is each of the {target.distinct:,} values of {name} a class (--task "
            f"classification), or {'a number' if kinds == 'regression' else 'several labels'} "
            f"(--task {kinds})? Give the flag",
            columns,
        )
    return "classification"


def _targets(free: Columns) -> list[Column]:
    """The columns that may be predicted: those named so, else those with classes or lists of
    labels, else those with numbers."""
    others = [column for column in free.values() if not column.is_id]
    labels = [column for column in others if column.is_label]
    numbers = [column for column in others if column.are_numbers and column.distinct > 1]
    named = [column for column in others if column.is_named_label and column in labels + numbers]
    return named or labels or numbers


# Columns of each kind, as far as they are clear ---------------------------------------------------


def _labelled(free: Columns, kind: Kind) -> Names:
    """A text or a pair of texts, and what is predicted."""
    names: Names = {}
    targets = _targets(free)
    if kind.name == "regression":
        targets = [column for column in targets if column.are_numbers]
    if len(targets) == 1:
        names[kind.target] = targets[0].name
    others = [column for column in free.values() if column.name not in names.values()]
    texts = [column for column in others if column.is_text]
    if not texts:  # words and names are texts, too
        strings = [c for c in others if c.are_strings and not c.is_id and not c.are_marks]
        texts = [c for c in strings if c.name.lower() in TEXTS or not c.recurs]
    named = [column for column in texts if column.name.lower() in TEXTS]
    if len(texts) == 2 and are_a_pair(texts[0].name, texts[1].name):
        return names | {"text": texts[0].name, "text_pair": texts[1].name}
    return names | _sole("text", texts if len(texts) == 1 else named)


def _texts(free: Columns) -> Names:
    """A text that is written from a text."""
    texts = [column for column in free.values() if column.is_text]
    target = _sole("target", _with_words(texts, TARGETS))
    return _sole("text", [c for c in texts if c.name not in target.values()]) | target


def _questions(free: Columns) -> Names:
    texts = [column for column in free.values() if column.is_text]
    return (
        _sole("answers", [column for column in free.values() if column.are_answers])
        | _sole("question", _with_words(texts, {"question", "query"}))
        | _sole("context", _with_words(texts, {"context", "passage"}))
    )


def _choices(free: Columns) -> Names:
    choices = _choices_of(free)
    names: Names = {"choices": choices} if choices else {}
    others = [column for column in free.values() if column.name not in choices]
    numbers = [c for c in others if c.values.str.fullmatch("[0-9A-Ja-j]").all()]
    named = [c for c in numbers if _words_of_name(c.name) & (LABELS | {"answer", "right"})]
    names |= _sole("label", numbers if len(numbers) == 1 else named)
    texts = [column for column in others if column.is_text]
    premises = _with_words(texts, {"premise", "ctx", "context"})
    questions = [c for c in _with_words(others, {"question"}) if c.are_strings]
    text = _sole("text", texts if len(texts) == 1 else premises)
    question = _sole("question", [c for c in questions if c.name not in text.values()])
    return names | text | question


def _choices_of(free: Columns) -> list[str] | str:
    """Columns such as choice1 and choice2, or one with a list of choices."""
    several = [c.name for c in free.values() if re.fullmatch(CHOICES, c.name.lower())]
    lists = [c.name for c in free.values() if c.are_lists and "choices" in c.name.lower()]
    return several if len(several) > 1 else lists[0] if len(lists) == 1 else []


def _first_choice(label: Column) -> str:
    if label.values.str.isalpha().any():
        return "A"
    return "0" if "0" in set(label.values) else "1"


def _tags(free: Columns) -> Names:
    """Lists of words, and lists of as many tags."""
    lists = [column for column in free.values() if column.are_lists]
    words = _with_words(lists, WORDS)
    if len(words) != 1:
        return {}
    tags = [c for c in lists if c is not words[0] and c.is_as_long_as(words[0])]
    named = _with_words(tags, TAGS)
    return {"words": words[0].name} | _sole("tags", tags if len(tags) == 1 else named)


def are_a_pair(first: str, second: str) -> bool:
    """Names such as premise and hypothesis, sentence1 and sentence2."""
    one, other = first.lower(), second.lower()
    by_words = any(a in one and b in other for a, b in map(str.split, PAIRS))
    ends = (one[-1:], other[-1:])
    by_ends = len(one) > 1 and one[:-1] == other[:-1] and "".join(ends) in ("12", "ab", "01")
    return by_words or by_ends


def _with_words(columns: Iterable[Column], words: set[str]) -> list[Column]:
    """The columns whose names have one of the words."""
    return [column for column in columns if _words_of_name(column.name) & words]


def _sole(role: str, columns: list[Column]) -> Names:
    return {role: columns[0].name} if len(columns) == 1 else {}


def _words_of_name(name: str) -> set[str]:
    """``{"sentence", "a"}`` of ``sentence_A``, ``Sentence A`` and ``sentenceA``."""
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return {word for word in re.split(r"[^a-z0-9]+", parted.lower()) if word}


def _list(names: str | list[str]) -> list[str]:
    return names if isinstance(names, list) else [names]


def _flat(cells: Mapping[str, object], prefix: str = "") -> Json:
    flat: Json = {}
    for name, value in cells.items():
        if isinstance(value, Mapping) and "answer_start" not in value:
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


# What is said ------------------------------------------------------------------------------------


def _unclear(question: str, columns: Columns) -> ValueError:
    listed = "\n".join(column.described() for column in columns.values())
    return ValueError(f"{question}. The columns:\n{listed}")


def _note(kind: str, names: Names, target: Column, columns: Columns, notes: list[str]) -> None:
    read = [n for chosen in names.values() for n in _list(chosen) if n != target.name]
    notes.append(
        f"{kind}: {', '.join(read)} {'are' if len(read) > 1 else 'is'} read, {target.name} is "
        f"predicted ({target.distinct:,} different values)."
    )
    if left := [name for name in columns if name not in (*read, target.name)]:
        flags = " ".join(f"{flag_of(role)} NAME" for role in names)
        notes.append(f"Not read: {', '.join(left)}. ({flags})")
    if kind == "classification" and target.are_numbers and target.distinct >= RATINGS:
        notes.append(
            f"{target.name} has {target.distinct} different whole numbers: taken as classes; as a "
            "scale: --task regression."
        )
