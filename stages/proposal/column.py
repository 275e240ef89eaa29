"""A column of cells: whether it has texts, classes, numbers, lists, ids or names of splits."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

import pandas

from stages.tasks._cells import structured
from stages.tasks._kind import split_named
from stages.tasks._labels import is_missing, label_of
from stages.tasks._numbers import decimal_of, number_of
from stages.tasks._plain_text import SPACELESS

MOST_LABELS = 300
NUM_FEW = 20  # with fewer rows, shares say nothing
RECUR = 4  # times that a label in lists occurs on average, at least
LONG_RECUR = 10  # times that a label with a long name occurs on average, at least
MOST_DISTINCT = 0.5  # most distinct values per row in a column of labels
TEXT_WORDS, TEXT_LETTERS, LABEL_WORDS = 3.0, 5.0, 5.0  # means per cell: at least, at least, at most
LEAST_FILLED = 0.9  # least share of filled cells in a column of labels
MOST_NUMBERS = 0.9  # least share of numbers in the cells of a column of numbers
SAME_LENGTHS = 0.9  # least share of rows with as many words as tags
LOOKED_AT = 200  # number of values to look at to see what a column holds
SHOWN_LETTERS = 40
HOT_SIGNS = {"0", "1", "0.0", "1.0", "-1", "true", "false", "t", "f", "yes", "no", "y", "n"}
DAY = (
    r"\d{1,4}(?P<sign>[-/.])\d{1,2}(?P=sign)\d{1,4}([T ][\d:.,+ -]*([AaPp][Mm]|Z)?)?"
    r"|(?=.{8,35}$)(.*\d:\d\d(:\d\d)?\b.*\d|\w{3,9}\.? \d{1,2},? \d{4}|\d{1,2}\.? \w{3,9}\.? \d{4})"
)
# A number with a unit, a currency or a scale: 45 %, €1.50, 3.5k, 7.5/10.
AMOUNT = r"[^\w\s]{0,2}\s?(?:[A-Z]{3}\s)?\d[\d.,' ]*\s?(%|k|[A-Z]{3}|[$€£¥]|/\d+)?"
INFINITE = r"[+-]?(?i:inf(inity)?)$"
# Addresses, days, paths, mail addresses and random ids are neither texts nor classes, even where
# they recur.
MARK = (
    rf"(https?://|www\.)\S+|{DAY}|\S+@\S+\.\w+|([A-Za-z]:\\|~?/|\.{{1,2}}/).*|\S*/\S+\.\w{{2,4}}"
    r"|\{?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\}?|(?=.*\d)[0-9a-f]{16,}"
    r"|(?=.*\d)(?=.*[A-Za-z])[0-9A-Z]{12,}"
)
# An ASCII word of no language, such as an id. If such words recur, they may be names of classes.
CODE = r"(?=[!-~]*[\d@/\\_.$%+=])[!-~]{6,}|[!-~]{15,}"
HOT = r"[01](?:([ ,;|])[01](?:\1[01])*)"  # a 0 or a 1 for each label, by position
CHOSEN = "choices"  # Label Studio writes a label, or {"choices": ["joy", "fear"]} for several
LABELS = {
    "stance",
    "polarity",
    "label",
    "labels",
    "class",
    "category",
    "target",
    "gold",
    "y",
    "sentiment",
    "intent",
}
TEXTS = ("text", "sentence", "review", "content", "body", "comment", "tweet", "document", "message")
# Names of columns that do not hold classes.
READ = {"context", "passage", "premise", "question", "query", "post", "prompt", "title", *TEXTS}
IDS = {"id", "ids", "idx", "index", "key", "uid", "uuid", "guid", "no", "nr", "number"}
IDS |= {"oid", "file", "filename", "path", "url", "hash", "sha1", "md5", "email", "mail"}


class Column:
    """The filled cells of a column, and what they hold."""

    def __init__(self, name: str, cells: pandas.Series) -> None:
        read = [structured(cell) for cell in cells]
        if any(isinstance(cell, Mapping) and cell.keys() == {CHOSEN} for cell in read):
            read = [_chosen(cell) for cell in read]
        if any(isinstance(one, str) and not is_empty(one) for one in read):
            read = [*cells]  # a column of texts, some of them in brackets
        filled = [cell for cell in read if not is_empty(cell)]
        self.name, self.num, self.filled = name, len(cells), len(filled)
        self.are_lists = bool(filled) and all(isinstance(cell, list) for cell in filled)
        self.are_answers = any(map(_is_answers, filled))
        self.lengths = [len(cell) if isinstance(cell, list) else 0 for cell in read]
        lists = [cell for cell in filled if isinstance(cell, list)]
        has_objects = any(isinstance(cell, Mapping) for cell in filled)
        is_nested = any(isinstance(p, Mapping | list | tuple) for cell in lists for p in cell)
        self.are_structures = (has_objects or is_nested) and not self.are_answers
        self.items = Counter(str(item) for cell in lists for item in cell)
        lengths = {*map(len, lists)}
        self.are_hot = len(lengths) == 1 and max(lengths) > 1 and _are_hot(self.items)
        if self.are_lists and lengths == {1}:  # one label in each list, as doccano writes it
            self.are_lists, filled = False, [cell[0] for cell in lists]
        self.are_single = all(isinstance(cell, str | int | float) for cell in filled)
        texts = [_shown(cell) for cell in filled]
        pairs = zip(filled, texts, strict=True)
        self.respelt = sorted({repr(cell) for cell, text in pairs if str(cell).strip() != text})
        self.counts = Counter(texts)
        self.values = pandas.Series([*self.counts], dtype=object)
        cells_as_text = (str(cell).strip() for cell in filled)
        self.spelt = spelt = [
            s for s in cells_as_text if not is_missing(s) and not re.match(INFINITE, s)
        ]
        self.texts = [*dict.fromkeys(spelt)]  # distinct cells, with their line breaks and tabs
        self.decimal, self.is_sure = decimal_of(spelt)
        numbers = pandas.Series([number_of(text, self.decimal) for text in spelt], dtype=float)
        finite = numbers[numbers.between(-1e300, 1e300)]
        # The few cells that are no numbers are refused later, with their line numbers.
        self.are_numbers = self.are_single and len(finite) >= MOST_NUMBERS * max(len(spelt), 1)
        amounts = sum(bool(re.fullmatch(AMOUNT, text)) for text in spelt)
        self.are_amounts = not self.are_numbers and amounts >= MOST_NUMBERS * max(len(spelt), 1) > 0
        self.numbers = finite.drop_duplicates() if self.are_numbers else finite[:0]
        self.are_whole = bool((self.numbers % 1 == 0).all())
        self.words = sum(len(text.split()) for text in texts) / max(self.filled, 1)
        self.letters = sum(map(len, texts)) / max(self.filled, 1)
        self.are_strings = self.filled > 0 and self.are_single and not self.are_numbers
        some = self.values[:LOOKED_AT]
        self.are_marks = self.are_strings and bool(some.str.fullmatch(MARK).mean() > 0.5)
        self.are_codes = self.are_strings and bool(some.str.fullmatch(CODE).mean() > 0.9)
        self.is_spaceless = sum(ord(c) >= SPACELESS for c in "".join(some)) > len("".join(some)) / 2

    @property
    def are_times(self) -> bool:
        """Whether the cells are days or times, of which at least three differ."""
        some = self.values[:LOOKED_AT]
        return self.distinct > 2 and bool(some.str.fullmatch(DAY).mean() > MOST_NUMBERS)

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
        is_long = self.is_spaceless and self.letters >= TEXT_LETTERS and not self.recurs
        has_words = self.words >= TEXT_WORDS or is_long
        is_other = self.are_marks or self.is_id or (self.is_named_label and self.recurs)
        return self.are_strings and has_words and not is_other

    @property
    def is_label(self) -> bool:
        """Whether the column has a class, or a list of labels, for each row."""
        if self.are_lists:
            is_recurring = len(self.items) <= min(MOST_LABELS, self.items.total() / RECUR)
            return bool(self.items) and not self.are_structures and is_recurring
        is_class = not words_of_name(self.name) & READ and self.distinct * LONG_RECUR <= self.filled
        return (
            (self.are_strings or (self.are_numbers and self.are_whole))
            and self.filled >= LEAST_FILLED * self.num
            and 2 <= self.distinct <= MOST_LABELS
            and self.recurs
            and (self.words <= LABEL_WORDS or self.is_named_label or is_class)
            and not self.are_marks
        )

    @property
    def is_hot(self) -> bool:
        """Whether the column stands for one label: 1 in the rows that have it, 0 in the others."""
        return bool({*self.values} - {"-1"}) and _are_hot(self.values)

    @property
    def is_id(self) -> bool:
        """Whether the column identifies the rows by numbers or names."""
        is_unnamed = not self.name.strip() or self.name.startswith("Unnamed: ")  # pandas' index
        steps = set(self.numbers.diff()[1:])
        counts_up = self.decimal == "point" and len(steps) == 1 and min(steps) > 0
        return (
            self.distinct == self.filled >= NUM_FEW
            and self.are_single
            and self.words <= 1
            and self.are_whole
            and (is_unnamed or counts_up or self.are_codes or bool(words_of_name(self.name) & IDS))
        )

    @property
    def splits(self) -> set[str]:
        """The splits that the cells name; empty unless all cells name one."""
        names = {split_named(value) for value in self.values[:MOST_LABELS]}
        is_split = self.are_strings and self.filled == self.num and self.words < 2
        return {name for name in names if name} if is_split and None not in names else set()

    def is_as_long_as(self, other: "Column") -> bool:
        """Whether the lists of nearly all rows are as long as the lists of another column."""
        same = sum(a == b for a, b in zip(self.lengths, other.lengths, strict=True))
        return same >= SAME_LENGTHS * self.num

    @property
    def what(self) -> str:
        """What the column holds, in a few words."""
        kinds = {
            "empty": not self.filled,
            "answers": self.are_answers,
            "structures": self.are_structures,
            "lists": self.are_lists,
            "ids, addresses or days": self.is_id or self.are_marks or self.are_codes,
            "days or times": self.are_times,
            "text": self.is_text and not self.is_label,
            f"{self.distinct:,} classes": self.is_label,
            "numbers": self.are_numbers,
            "words": self.are_strings,
        }
        return next((what for what, is_so in kinds.items() if is_so), "other cells")

    def described(self) -> str:
        first = "" if self.values.empty else self.values.iloc[0].replace("\n", " ")
        example = first if len(first) <= SHOWN_LETTERS else f"{first[:SHOWN_LETTERS]}..."
        of_all = f" of {self.num:,}" if self.filled < self.num else ""
        number = f"{self.distinct:,} different in {self.filled:,}{of_all} rows"
        return f"  {self.name}: {number}, such as {example!r} ({self.what})"


def _is_answers(value: object) -> bool:
    """Whether a cell holds answers as SQuAD's files or the hub have them."""
    answers = value if isinstance(value, list) else [value]
    return any(isinstance(answer, Mapping) and "answer_start" in answer for answer in answers)


def _chosen(cell: object) -> object:
    """Returns the labels of a cell of Label Studio as a list."""
    if is_empty(cell):
        return cell
    return cell[CHOSEN] if isinstance(cell, Mapping) and CHOSEN in cell else [cell]


def is_empty(cell: object) -> bool:
    return cell is None or cell != cell or (isinstance(cell, str) and not cell.strip())


def _shown(cell: object) -> str:
    try:
        return label_of(cell, "")
    except ValueError:  # neither a text nor a number
        return str(cell)


def _are_hot(values: Iterable[str]) -> bool:
    return {value.lower() for value in values} <= HOT_SIGNS


def words_of_name(name: str) -> set[str]:
    """Returns the words of a column's name: ``{"sentence", "a"}`` for ``sentence_A``, ``Sentence
    A`` and ``sentenceA``."""
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    return {word for word in re.split(r"[^a-z0-9]+", parted.lower()) if word}
