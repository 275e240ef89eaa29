"""What the command line says of one's files, and what was found out about the rest."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from stages.kinds._kind import Split
from stages.kinds._tags import Scheme
from stages.sources._formats import Delimiter, Format


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The flags. What they leave open is seen in the files."""

    task: str | None = None  # a kind of rows
    columns: Mapping[str, list[str]] = field(default_factory=dict)  # of the data, by those of a row
    names: list[str] | None = None  # of the columns of a file without a header
    header: bool = False  # the first line names the columns, whatever it looks like
    format: Format = "auto"
    delimiter: Delimiter = "auto"
    tag_scheme: Scheme | None = None
    first_choice: Literal["0", "1", "A"] | None = None
    splits: Mapping[Split, list[str]] = field(default_factory=dict)  # files of the folder
    max_tokens: int | None = None
    budgets: list[int | Literal["all"]] = field(default_factory=list)


@dataclass
class Notes:
    """What was seen and why it was taken so, and what the data leave open."""

    seen: list[str] = field(default_factory=list)
    unclear: list[str] = field(default_factory=list)  # each with the flag that decides it
