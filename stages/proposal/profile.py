"""What the columns of data hold."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Literal

from stages.sources._formats import Record

Holds = Literal["nothing", "numbers", "strings", "lists", "answers", "objects"]
ANSWER = {"text", "answer_start"}
MOST_LABELS = 300
NUM_FEW = 20  # rows below which shares say nothing
LEAST_REPEATED = 0.5  # share of rows in whose column a value has been before, of labels
TEXT_WORDS, TEXT_LETTERS = 3.0, 15.0  # in the mean
LABEL_WORDS = 5.0
LIST = "\0"  # between what a list holds
SOME_VALUES = 200
ADDRESS = r"(https?://|www\.)\S+"
DAY = r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([T ][\d:.,+ -]*([AaPp][Mm]|Z)?)?"
SAME_LENGTHS = 0.9  # share of rows, of words and tags
LEAST_FILLED = 0.9  # of a label's cells; which are empty is said with their lines
CLASS_NAMES = {"label", "labels", "class", "category", "intent", "topic"}
ID_NAMES = {"id", "ids", "idx", "index", "key", "uid", "uuid", "guid", "no", "nr", "number"}


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of some rows; numbers of words and letters are means of the filled cells."""

    name: str
    holds: Holds
    num: int  # cells
    filled: int
    values: Counter[str]  # of strings and numbers; of lists of them, joined by LIST
    words: float
    letters: float
    whole: bool  # numbers without fractions

    @property
    def distinct(self) -> int:
        return len(self.values)

    @property
    def repeats(self) -> bool:
        """Values occur again and again, as labels do."""
        return self.num < NUM_FEW or self.distinct <= (1 - LEAST_REPEATED) * self.filled

    @property
    def is_text(self) -> bool:
        has_words = self.words >= TEXT_WORDS or (self.letters >= TEXT_LETTERS and not self.repeats)
        return self.holds == "strings" and has_words and not self.holds_marks

    @property
    def holds_marks(self) -> bool:
        """Most are addresses or times, which are neither texts nor classes."""
        some = [*islice(self.values, SOME_VALUES)]
        return self.holds == "strings" and 2 * sum(map(is_mark, some)) > len(some)

    @property
    def is_label(self) -> bool:
        """A class for each row."""
        return (
            self.holds in ("strings", "numbers")
            and self.whole
            and self.filled >= LEAST_FILLED * self.num
            and 2 <= self.distinct <= MOST_LABELS
            and self.repeats
            and self.words <= LABEL_WORDS
            and not self.holds_marks
        )

    @property
    def is_id(self) -> bool:
        """A number or a name of the row."""
        return (
            self.distinct == self.filled >= NUM_FEW
            and not self.is_text
            and self.whole
            and (bool(words_of_name(self.name) & ID_NAMES) or self.is_unnamed or self.counts_up)
        )

    @property
    def is_unnamed(self) -> bool:
        """As pandas writes the index of a table."""
        return not self.name.strip() or self.name.startswith("Unnamed: ")

    @property
    def counts_up(self) -> bool:
        """All whole numbers of a range; of every tenth row, every tenth of them."""
        numbers = self._whole_numbers
        steps = {after - before for before, after in pairwise(numbers)}
        return self._is_range(numbers) or (len(steps) == 1 and min(steps) > 0)

    @property
    def counts_classes(self) -> bool:
        """Named as classes are, and all numbers from 0 or 1 to the last one."""
        numbers = self._whole_numbers
        named = bool(words_of_name(self.name) & CLASS_NAMES)
        return named and self._is_range(numbers) and min(numbers) in (0, 1)

    @property
    def _whole_numbers(self) -> list[float]:
        """The different ones, in the order of the rows."""
        are_whole = self.holds == "numbers" and self.whole
        return [float(value) for value in self.values] if are_whole else []

    @staticmethod
    def _is_range(numbers: list[float]) -> bool:
        return bool(numbers) and max(numbers) - min(numbers) == len(numbers) - 1

    @property
    def lengths(self) -> Counter[int]:
        """Numbers of items, of lists."""
        found = Counter[int]()
        for value, rows in self.values.items():
            found[value.count(LIST) + 1 if value else 0] += rows
        return found

    def is_as_long_as(self, other: "Column") -> bool:
        """Whether the lists of nearly all rows may have the lengths of those of another column, as
        words and their tags have."""
        common = (self.lengths & other.lengths).total()
        return common >= SAME_LENGTHS * max(self.num, other.num)

    def described(self) -> str:
        if self.holds in ("numbers", "strings"):
            kind = "numbers" if self.holds == "numbers" else "texts" if self.is_text else "strings"
            words = f" of {self.words:.0f} words" if self.is_text else ""
            return (
                f"{self.name}: {kind}{words}, {self.distinct:,} different in {self.filled:,} rows"
            )
        return f"{self.name}: {self.holds}"


def profile(records: Iterable[Record]) -> dict[str, Column]:
    """The columns of records by their names; those in objects are ``translation.de``."""
    cells: dict[str, list[object]] = {}
    for number, record in enumerate(records):
        for name, value in _flat(record.cells):
            earlier: list[object] = [None] * number
            column = cells.setdefault(name, earlier)
            column.append(value)
        for column in cells.values():
            column.extend([None] * (number + 1 - len(column)))
    return {name: _column(name, values) for name, values in cells.items()}


def words_of_name(name: str) -> set[str]:
    """``{"sentence", "a"}`` of ``sentence_A``, ``Sentence A`` and ``sentenceA``."""
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return {word for word in re.split(r"[^a-z0-9]+", parted.lower()) if word}


def is_mark(value: str) -> bool:
    """An address in the web, or a day with or without a time."""
    return bool(re.fullmatch(ADDRESS, value) or re.fullmatch(DAY, value))


def is_answers(value: object) -> bool:
    """As SQuAD's files or the hub have them."""
    if isinstance(value, Mapping):
        return value.keys() >= ANSWER
    return isinstance(value, list) and any(
        isinstance(each, Mapping) and each.keys() >= ANSWER for each in value
    )


def _flat(cells: Mapping[str, object], before: str = "") -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for name, value in cells.items():
        if isinstance(value, Mapping) and not is_answers(value):
            found += _flat(value, f"{before}{name}.")
        else:
            found.append((f"{before}{name}", value))
    return found


def _column(name: str, cells: list[object]) -> Column:
    filled = [cell for cell in cells if not is_empty(cell)]
    texts = [str(cell) for cell in filled] if _are_single(filled) else []
    numbers = [number for text in texts if (number := _number(text)) is not None]
    are_numbers = bool(texts) and len(numbers) == len(texts)
    holds = "numbers" if are_numbers else _held(filled)
    values = Counter(text.strip() for text in texts)
    if holds == "lists":
        values = Counter(LIST.join(map(str, cell)) for cell in filled if isinstance(cell, list))
    return Column(
        name=name,
        holds=holds,
        num=len(cells),
        filled=len(filled),
        values=values,
        words=_mean([len(text.split()) for text in texts]),
        letters=_mean([len(text) for text in texts]),
        whole=not are_numbers or all(number.is_integer() for number in numbers),
    )


def _held(filled: list[object]) -> Holds:
    if not filled:
        return "nothing"
    if _are_single(filled):
        return "strings"
    if any(is_answers(cell) for cell in filled):
        return "answers"
    if all(isinstance(cell, list) for cell in filled):
        return "lists"
    return "objects"


def _are_single(cells: list[object]) -> bool:
    return bool(cells) and all(isinstance(cell, str | int | float) for cell in cells)


def is_empty(cell: object) -> bool:
    return cell is None or cell != cell or (isinstance(cell, str) and not cell.strip())


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def _mean(values: list[int]) -> float:
    return sum(values) / len(values) if values else 0.0
