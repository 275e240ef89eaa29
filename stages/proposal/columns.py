"""What the columns of the data hold: one table of facts, from their cells and names."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas
from ruamel.yaml import YAML

from stages.core.artifacts import Json
from stages.sources._formats import Record
from stages.tasks._cells import (
    SPACELESS,
    decimal_of,
    is_empty,
    is_missing,
    number_of,
    short,
    structured,
)
from stages.tasks._labels import label_of
from stages.tasks._task import split_in

TABLES = YAML(typ="safe").load(Path(__file__).with_suffix(".yaml"))
HINTS = {what: {*words.split()} for what, words in TABLES["names"].items()}
SHAPES: dict[str, str] = TABLES["shapes"]
MOST_LABELS = 300
NUM_FEW = 20  # with fewer rows, shares say nothing
RECUR, LONG_RECUR = 4, 10  # times that a label in lists, or with a long name, occurs on average
MOST_DISTINCT = 0.5  # most distinct values per row in a column of labels
TEXT_WORDS, TEXT_LETTERS, LABEL_WORDS = 3.0, 5.0, 5.0  # means: fewest, fewest, most
MOST = 0.9  # share of the cells or rows that is nearly all
LOOKED_AT = 200  # number of values whose shape is seen


class Column:
    """The facts about a column: what its filled cells are, and what they may be in a row.

    ``are_hot``: each list has a 0 or a 1 for each label; ``is_hot``: the column is 1 in rows that
    have its label and 0 in others; ``splits``: the splits that the cells name, if all name one.
    """

    def __init__(self, name: str, cells: pandas.Series) -> None:
        read = [structured(cell) for cell in cells]
        if any(isinstance(cell, str) and cell.strip() for cell in read):
            read = [*cells]  # a column of texts, some of them in brackets
        filled = [cell for cell in read if not is_empty(cell)]
        self.name, self.num, self.filled, self.cells = name, len(cells), len(filled), read
        self.is_full = self.filled >= MOST * self.num
        self.is_named_label = name.lower() in HINTS["label"]

        # Lists and objects
        lists = [cell for cell in filled if isinstance(cell, list)]
        parts = [part for cell in lists for part in cell]
        objects = [part for part in [*filled, *parts] if isinstance(part, Mapping)]
        lengths_of = [len(cell) if isinstance(cell, list) else 0 for cell in read]
        self.lengths = pandas.Series(lengths_of, dtype=int)
        self.items, lengths = Counter(map(str, parts)), {*map(len, lists)}
        self.are_lists = bool(filled) and len(lists) == len(filled)
        self.are_answers = any("answer_start" in part for part in objects)  # SQuAD's
        is_nested = any(isinstance(part, list | tuple) for part in parts)
        self.are_structures = not self.are_answers and (bool(objects) or is_nested)
        are_bits = all(re.fullmatch(SHAPES["bit"], item) for item in self.items)
        self.are_hot = are_bits and len(lengths) == 1 and max(lengths) > 1
        if self.are_lists and lengths == {1}:  # one label in each list, as doccano writes it
            self.are_lists, filled = False, parts

        # Values
        are_single = all(isinstance(cell, str | int | float) for cell in filled)
        texts = [_label(cell) for cell in filled]
        self.values = pandas.Series([*dict.fromkeys(texts)], dtype=object)
        self.distinct = len(self.values)
        self.words = sum(len(text.split()) for text in texts) / max(self.filled, 1)
        self.recurs = self.num < NUM_FEW or self.distinct <= MOST_DISTINCT * self.filled
        self.are_choices = self.are_lists and self.distinct > 1
        self.are_keys = self.share("key") == 1
        self.is_hot = self.share("bit") == 1 and {*self.values} != {"-1"}

        # Numbers; the few cells that are none are refused later, with their line numbers.
        spelt = [text for cell in filled if not is_missing(text := str(cell).strip())]
        self.texts = [*dict.fromkeys(spelt)]  # distinct cells, with their line breaks and tabs
        self.decimal, self.is_sure = decimal_of(spelt)
        numbers = pandas.Series([number_of(text, self.decimal) for text in spelt], dtype=float)
        numbers = numbers[numbers.between(-1e300, 1e300)]
        counts_up = {*numbers.drop_duplicates().diff()[1:]} == {1} and self.decimal == "point"
        has_zeros = any(re.match(r"0\d", text) for text in spelt)  # a code such as 005.1
        is_enough = len(numbers) >= MOST * max(len(spelt), 1)
        self.are_numbers = are_single and is_enough and (counts_up or not has_zeros)
        self.are_whole = not self.are_numbers or bool((numbers % 1 == 0).all())
        self.are_strings = self.filled > 0 and are_single and not self.are_numbers

        # Ids
        self.are_marks = self.are_strings and self.share("mark") > 0.5
        is_index = not name.strip() or name.startswith("Unnamed: ")  # pandas'
        are_codes = self.are_strings and self.share("code") > MOST
        is_unique = self.distinct == self.filled >= NUM_FEW and self.words <= 1
        looks_like_id = is_index or counts_up or are_codes or self.hints_at("id")
        self.is_id = is_unique and are_single and self.are_whole and looks_like_id

        # Texts and labels
        letters = "".join(self.values[:LOOKED_AT])
        is_spaceless = sum(ord(letter) >= SPACELESS for letter in letters) > len(letters) / 2
        is_long = sum(map(len, texts)) >= TEXT_LETTERS * max(self.filled, 1) and not self.recurs
        is_other = self.are_marks or self.is_id or (self.is_named_label and self.recurs)
        is_named_text, may_be = self.hints_at("no class", "text"), self.are_strings and not is_other
        self.is_text = may_be and (self.words >= TEXT_WORDS or (is_spaceless and is_long))
        self.may_be_text = self.is_text or (may_be and is_named_text)
        recurs_often = self.distinct * LONG_RECUR <= self.filled and not is_named_text
        is_short = self.words <= LABEL_WORDS or self.is_named_label or recurs_often
        are_values = (self.are_strings or self.are_numbers) and self.are_whole
        has_enough = self.is_full or self.is_named_label  # other rows may have no label yet
        are_few = 2 <= self.distinct <= MOST_LABELS and self.recurs and is_short
        self.is_label = are_values and has_enough and are_few and not self.are_marks
        if self.are_lists:
            most = min(MOST_LABELS, self.items.total() / RECUR)
            self.is_label = 0 < len(self.items) <= most and not self.are_structures
        says = name if name.lower() in HINTS["split"] else ""
        splits = {value: split_in(says, value) for value in self.values[:MOST_LABELS]}
        is_split = are_single and self.filled == self.num and None not in splits.values()
        if says.startswith("is_"):  # that most rows are valid may be meant otherwise
            is_split &= splits.get(Counter(texts).most_common(1)[0][0]) == "train"
        self.splits = {*splits.values()} if is_split and self.words < 2 else set()

    def share(self, shape: str) -> float:
        """Returns the share of the first values that have this shape of SHAPES."""
        return float(self.values[:LOOKED_AT].str.fullmatch(SHAPES[shape]).mean())

    def hints_at(self, *what: str) -> bool:
        """Whether a word of the name hints at this. The words of ``sentence_A``, ``Sentence A`` and
        ``sentenceA`` are sentence and a."""
        parted = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", self.name)
        words = re.split(r"[^a-z0-9]+", parted.lower())
        return any(not HINTS[each].isdisjoint(words) for each in what)

    def __str__(self) -> str:
        number = f"{self.distinct:,} different in {self.filled:,} of {self.num:,} rows"
        return f"{self.name}: {number}, such as {short(next(iter(self.values), ''))}"


def columns_of(records: Iterable[Record]) -> dict[str, Column]:
    """Returns the columns of records by their names. A field of an object becomes a column with a
    name such as ``translation.de``."""
    table = pandas.DataFrame([_flat(record.cells) for record in records], dtype=object)
    return {str(name): Column(str(name), table[name]) for name in table}


def _flat(cells: Mapping[str, object], prefix: str = "") -> Json:
    flat: Json = {}
    for name, value in cells.items():
        if isinstance(value, Mapping) and "answer_start" not in value:
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _label(cell: object) -> str:
    try:
        return label_of(cell, "")
    except ValueError:  # neither a text nor a number
        return str(cell)
