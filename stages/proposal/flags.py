"""What a user says about files, where the files do not show it, and how `make` takes it."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt

from stages.core.params import NumberOrAll
from stages.sources._formats import Delimiter, Format
from stages.tasks._cells import Decimal
from stages.tasks._labels import LabelCase
from stages.tasks._tags import Scheme
from stages.tasks._task import TASKS, Split, Task

WORDS = "words"  # the tag scheme for tags of single words
KINDS_OF_STUDIES = (
    *("classification", "multi_label", "regression", "tagging"),
    *("span_qa", "multiple_choice", "seq2seq"),
)


def roles_of(kind: Task) -> tuple[str, ...]:
    """Returns the columns that a row of the kind may have."""
    return (*kind.inputs, *kind.optional, kind.target)


# Roles that several columns of the data may fill together; those of texts are joined.
GATHERED = {role for kind in KINDS_OF_STUDIES for role in TASKS[kind].several}
ROLES = tuple(dict.fromkeys(role for kind in KINDS_OF_STUDIES for role in roles_of(TASKS[kind])))


def _listed(value: Any) -> Any:
    """Turns ``a,b`` of the command line into a list; an empty text is an empty list."""
    return list(filter(None, value.split(","))) if isinstance(value, str) else value


def _by_role(columns: Any) -> Any:
    return {r: _listed(n) if r in GATHERED and "," in n else n for r, n in columns.items()}


Names = Annotated[list[str] | None, BeforeValidator(_listed)]


class Flags(BaseModel):
    """How files are read. Settings that are not given are found from the files."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    task: str | None = None
    """A kind of rows."""
    columns: Annotated[Mapping[str, str | list[str]], BeforeValidator(_by_role)] = {}
    """The columns of the data, by their role in a row."""
    names: Names = None
    """The names of the columns of a file without a header."""
    splits: Mapping[Split, list[str]] = {}
    """Files in the folder, by split."""
    split: str | None = None
    """The column that names splits, or ``none``."""
    group: str | None = None
    """The column whose equal values stay in one split."""
    time: str | None = None
    """The column of times: train is earliest, test latest."""
    published: bool | None = False
    """Checkpoint: True requires one, None adds one if possible."""
    format: Format = "auto"
    delimiter: Delimiter = "auto"
    """Between columns."""
    header: bool = False
    """The first line names the columns, whatever it looks like."""
    time_format: str | None = None
    """The form of the times, such as ``%d/%m/%Y``."""
    split_seed: int = 0
    """Another seed makes another draw of the splits."""
    decimal: Decimal | None = None
    """What separates decimals."""
    no_label: Names = None
    """Labels that mean that there is none; empty if none do."""
    label_names: Names = None
    """Of labels that are numbers, from 0; empty if they have none."""
    label_case: LabelCase | None = None
    """Whether labels that differ in case or spelling alone are one."""
    label_separator: str | None = None
    """What stands between the labels of a cell."""
    min_rows_per_class: PositiveInt = 1
    """Rarer classes are left out."""
    empty_signs: Names = None
    """Texts and numbers that mean an empty cell; empty if none do."""
    first_choice: Literal["0", "1", "A"] | None = None
    """What the first choice is called."""
    tag_scheme: Scheme | Literal["words"] | None = None
    """Of the tags of words."""
    tag_names: Names = None
    """Of tags that are numbers, from 0."""
    max_tokens: Annotated[int, Field(ge=8)] | None = None
    """Of a text; longer ones are cut."""
    label_budgets: Annotated[list[NumberOrAll], BeforeValidator(_listed)] = []
    """Numbers of labels, or ``all``."""

    @property
    def most_labels(self) -> int:
        """The largest number among the label budgets; 0 if there is none."""
        return max((int(number) for number in self.label_budgets if number != "all"), default=0)


# The fields that have no flag of their own on the command line.
SETTINGS = [*Flags.model_fields][[*Flags.model_fields].index("delimiter") :]


def settings_help() -> Iterator[str]:
    """Yields a line for each key of ``--set``."""
    yield f"{', '.join(r for r in ROLES if r not in ('text', 'label'))}: the column of this role"
    yield "train, validation, test: a file in the folder DATA"
    for key in SETTINGS:
        about = Flags.model_fields[key].description or ""
        yield f"{key}: {about[:1].lower()}{about[1:].rstrip('.')}"


def flag_of(role: str) -> str:
    """Returns how a column's role is given: ``--text NAME``, ``--set text_pair=NAME``."""
    return f"--{role} NAME" if role in ("text", "label") else f"--set {role}=NAME"
