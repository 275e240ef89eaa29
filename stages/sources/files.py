"""The user's own files: text for a corpus, or labelled rows for a task."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Literal

from stages.core.components import unknown
from stages.sources._columns import (
    EMPTY_CELLS,
    NONE,
    TEXT,
    TIME,
    WORDS,
    Columns,
    Placed,
    RecordSource,
    SourceFile,
    cell,
)
from stages.sources._formats import FORMATS, Delimiter, Format, Record, Unit, format_of, sides
from stages.tasks._task import SPLITS, Split, Task, split_in

PARALLEL = "parallel"
_UNNAMED = "; if its first line names none, give their names: `columns: [...]`"
_ABSENT = f"; `{EMPTY_CELLS}: skip` leaves out objects without it"
# What helps if a column is missing, by format.
_HINTS = {"csv": _UNNAMED, "tsv": _UNNAMED, "json": _ABSENT, "jsonl": _ABSENT}


def files_below(folder: Path) -> list[Path]:
    """Returns the files in a folder and below, without hidden ones and Excel's lock files."""
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    return [file for file in files if not file.name.startswith((".", "~$"))]


class Files(RecordSource):
    """Documents or examples of txt, csv, tsv, jsonl, json, conll, conllu and parquet files, and of
    parallel text; all but parquet also as .gz.

    ``path`` is a file or a folder; ``format`` is needed if the files' names do not show it.
    ``train``, ``validation`` and ``test`` name files in the folder, one or a list, or the column
    ``split`` names the split of each row. Splits that are not given are drawn (``Columns``) from
    train, or from all files if none is given. By default the hash is that of the input (of the
    context for questions), or of the file's name if ``unit`` is ``file``.

    The documents of a corpus are the units of txt files (``unit``; a paragraph ends at a blank
    line), or the column ``text`` of the other formats, or the column ``words`` of conll files.

    A task reads the columns of its kind of rows (``stages/tasks``). A setting with the name of such
    a column gives the column's name in the files. ``columns`` names the columns of a file without a
    header; the default is ``[words, tags]`` for conll, and FORM and UPOS for conllu. ``delimiter``
    separates the columns of csv and tsv files. A json file is a list of objects or has SQuAD's
    form.

    ``format: parallel`` reads translations: ``train: train, text: en, target: de`` reads the files
    ``train.en`` and ``train.de`` line by line.

    Raises ValueError with the file and the line for a missing file or column, an empty text or
    label, and bytes that are not UTF-8.
    """

    is_local = True

    def __init__(
        self,
        naming: Columns,
        *,
        path: str,
        train: str | list[str] = NONE,
        validation: str | list[str] = NONE,
        test: str | list[str] = NONE,
        format: Format = "auto",
        columns: list[str] | Literal["none"] = NONE,
        unit: Unit = "paragraph",
        delimiter: Delimiter = "auto",
        split: str = NONE,
    ) -> None:
        self.columns, self.root, self.format = naming, Path(path), format
        self.names = None if isinstance(columns, str) else columns
        self.split_column = None if split == NONE else split
        self.languages, self.unit = (str(naming.text), naming.target), unit
        self.reading = {"unit": unit, "languages": self.languages, "delimiter": delimiter}
        if self.split_column and naming.time != NONE:
            raise ValueError(
                f"{TIME}: the column {split} gives the splits (`split`; --split {NONE} of make "
                f"new), but {TIME} draws all three; leave one of them out"
            )
        if not self.root.exists():
            raise ValueError(f"path: no such file or folder: {path}")
        listed = zip(SPLITS, (train, validation, test), strict=True)
        named = {s: [n] if isinstance(n, str) else n for s, n in listed if n != NONE}
        self.files = self._named(named) if named else dict.fromkeys(self._listed(), "train")
        [*self.each_file()]  # raises ValueError for a file of no known format

    @cached_property
    def given(self) -> set[Split]:
        splits = {*self.files.values()}
        if self.split_column is not None:
            splits = {
                self._split(file, record) for file in self.each_file() for record in file.records()
            }
            if "train" not in splits:
                raise ValueError(f"split: no row of {self.split_column} is of train")
        return splits if self.split_column or len(splits) > 1 else set()

    def each_file(self) -> Iterator[SourceFile]:
        for path, split in self.files.items():
            name = path.name if path == self.root else path.relative_to(self.root).as_posix()
            format, names = format_of(path) if self.format == "auto" else self.format, self.names
            if format not in (*FORMATS, PARALLEL):
                formats = ", ".join(FORMATS)
                raise ValueError(f"format: name it, since {name} does not end in one of {formats}")
            if format == "conll" and names is None:
                names = [self.columns.words, self.columns.tags]
            yield SourceFile(path, name, format, split, self.reading | {"columns": names})

    def parts(self, kind: Task | None) -> Iterator[Iterator[Placed]]:
        return (self._placed(file, kind) for file in self.each_file())

    def _placed(self, file: SourceFile, kind: Task | None) -> Iterator[Placed]:
        row_kind = kind or (WORDS if file.format in ("conll", "conllu") else TEXT)
        key = file.name if self.unit == "file" and kind is None else None
        hint = _HINTS.get(file.format, "") if self.names is None else ""
        if file.split != "train":
            hint = "; leave out a file without labels, and its split is drawn from train"
        if kind and file.format == "txt" and [*self.columns.of(kind)] != ["text"]:
            raise ValueError(f"{file.path}: a txt file has no labels; if it has, name its `format`")
        for record in file.records():
            cells, place = record.cells, f"{file.path} {record.place}"
            split = self._split(file, record)
            if file.format == "conllu":
                cells = {"words": cells["FORM"], "tags": cells["UPOS"]} | cells
            yield Placed(f"{file.name}:{record.key}", split, place, cells, row_kind, key, hint)

    def _split(self, file: SourceFile, record: Record) -> Split:
        if self.split_column is None:
            return file.split
        place = f"{file.path} {record.place}"
        value = cell(record.cells, self.split_column, place)
        if (split := split_in(self.split_column, value)) is None:
            raise ValueError(f"{place}: {self.split_column} is {value!r}, not one of {SPLITS}")
        return split

    def _named(self, named: dict[Split, list[str]]) -> dict[Path, Split]:
        if self.split_column:
            raise ValueError("split: train, validation and test name files already")
        if self.root.is_file():
            raise ValueError(f"path: {self.root} is a file, but splits name files in a folder")
        if "train" not in named:
            raise ValueError("train: name its file too, since another split has one")
        files: dict[Path, Split] = {}
        for split, name in ((split, name) for split, names in named.items() for name in names):
            file = self.root / name
            if file in files:
                raise ValueError(f"{split}: {name} already belongs to {files[file]}")
            if self.format == PARALLEL:
                sides(file, self.languages)
            elif not file.is_file():
                existing = sorted(path.name for path in self.root.iterdir())
                raise ValueError(f"{split}: no such file: {file}; {unknown(name, existing)}")
            files[file] = split
        return files

    def _listed(self) -> list[Path]:
        if self.format == PARALLEL:
            first, second = self.languages
            raise ValueError(
                "train: name what parallel files begin with, such as train of "
                f"train.{first} and train.{second}"
            )
        if self.root.is_file():
            return [self.root]
        is_given = self.format != "auto"
        files = [p for p in files_below(self.root) if is_given or format_of(p) in FORMATS]
        if not files:
            raise ValueError(f"path: no {'/'.join(FORMATS)} file is in {self.root}")
        return files
