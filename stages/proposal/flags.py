"""The command-line flags that describe a user's files, and how `make` takes them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from stages.kinds._kind import KINDS, Kind, Split
from stages.kinds._labels import LabelCase
from stages.kinds._tags import Scheme
from stages.kinds.regression import Decimal
from stages.sources._formats import Delimiter, Format

WORDS = "words"  # the tag scheme for tags of single words
KINDS_OF_STUDIES = (
    "classification",
    "multi_label",
    "regression",
    "tagging",
    "span_qa",
    "multiple_choice",
    "seq2seq",
)


def roles_of(kind: Kind) -> tuple[str, ...]:
    """Returns the columns that a row of the kind may have."""
    return (*kind.inputs, *kind.optional, kind.target)


# Roles that several columns of the data may fill together.
GATHERED = {role for kind in KINDS_OF_STUDIES for role in KINDS[kind].gathered}
ROLES = tuple(dict.fromkeys(role for kind in KINDS_OF_STUDIES for role in roles_of(KINDS[kind])))


@dataclass(frozen=True, kw_only=True)
class Flags:
    """The flags that say how files are read. Settings without a flag are found from the files."""

    task: str | None = None  # a kind of rows
    columns: Mapping[str, str | list[str]] = field(default_factory=dict)  # of the data, by role
    names: list[str] | None = None  # of the columns of a file without a header
    header: bool = False  # the first line names the columns, whatever it looks like
    format: Format = "auto"
    delimiter: Delimiter = "auto"
    tag_scheme: Scheme | Literal["words"] | None = None
    tag_names: list[str] | None = None  # of tags that are numbers
    no_label: list[str] | None = None  # signs that mean no label
    label_case: LabelCase | None = None
    min_rows: int = 1  # fewest rows of a class; rarer classes are left out
    decimal: Decimal | None = None
    split: str | None = None  # the column that names splits, or "none"
    group: str | None = None  # rows with the same value in this column stay in one split
    time: str | None = None  # the column in whose order splits are drawn
    time_format: str | None = None  # of the cells of ``time``
    split_seed: int = 0  # another seed draws other splits
    first_choice: Literal["0", "1", "A"] | None = None
    splits: Mapping[Split, list[str]] = field(default_factory=dict)  # files in the folder, by split
    max_tokens: int | None = None
    published: bool | None = False  # checkpoint: True requires one, None adds one if possible
    budgets: list[int | Literal["all"]] = field(default_factory=list)


def flag_of(role: str) -> str:
    """Returns the flag of a role: ``--text-pair`` for ``text_pair``."""
    return f"--{role.replace('_', '-')}"


def as_make_takes_them(text: str) -> str:
    """Returns how `make` takes the flags that a text names; "" if the command does not run below
    `make`, or the text names none."""
    if "--" not in text or "MAKELEVEL" not in os.environ:
        return ""
    return 'With make: FLAGS="--label NAME", TEXT=FOLDER for --corpus, MINUTES=20 for --minutes.'
