"""The user's own files: text for a corpus, or labelled rows for a task."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from stages.core.artifacts import refuse_endless
from stages.core.components import Settings, unknown
from stages.kinds._kind import Kind, Split
from stages.sources._columns import NONE, SCHEMA, TIME, Columns, draws_test
from stages.sources._file import SourceFile
from stages.sources._formats import FORMATS, Delimiter, Format, Unit, format_of, sides
from stages.sources._source import Document, Labelled, Part, Source
from stages.sources._times import Cuts, cuts_of

PARALLEL = "parallel"
_WORDS_AND_TAGS = {"conllu": {"words": "FORM", "tags": "UPOS"}}  # default columns of formats


class Files(Source):
    """Documents or examples of txt, csv, tsv, jsonl, json, conll, conllu and parquet files, and of
    parallel text; all but parquet also as .gz.

    ``path`` is a file or a folder. ``train``, ``validation`` and ``test`` name files in the folder,
    one or a list. A split without a file is drawn from the files of train, or from all files of the
    folder if no split has one. The draw is a hash of the input (of the context for questions), or
    of the file's name if ``unit`` is ``file``, or of the value in the column ``group``, so that all
    rows of a user, a document or a patient are in one split; ``split_seed`` makes another draw.
    ``time`` is a column of times by which splits are drawn instead: the earliest 80 % of the rows
    are train, the latest 10 % test, and rows of equal time are in one split. Times are ISO dates or
    numbers, or written as ``time_format`` says (``'%d/%m/%Y'``). ``format`` is needed if the files'
    names do not show it.

    The documents of a corpus are the units of txt files (``unit``; a paragraph ends at a blank
    line), or the column ``text`` of the other formats, or the column ``words`` of conll files.

    A task reads the columns of its kind of rows: ``text`` and ``label``, perhaps ``text_pair``;
    ``words`` and ``tags``; ``question``, ``context`` and ``answers``; ``text`` and ``target``;
    ``text``, ``choices`` (one column or several) and ``label``, perhaps ``question``. A setting
    with the name of such a column gives the column's name in the files. ``columns`` names the
    columns of a file that has no header; the default is ``[words, tags]`` for a conll file, and
    FORM and UPOS for a conllu file. ``split`` is a column that names the split of each row.
    ``delimiter`` separates the columns of csv and tsv files. Tags in ``tag_scheme`` become BIO.
    With ``empty_cells: skip`` a row that lacks a text or a label is left out. A json file is a list
    of objects or has SQuAD's form, for which ``unanswerable`` decides whether questions without an
    answer are kept.

    ``format: parallel`` reads translations: ``train: train, text: en, target: de`` reads the files
    ``train.en`` and ``train.de`` line by line.

    Raises ValueError with the file and the line for a missing file or column, an empty text or
    label, and bytes that are not UTF-8.
    """

    is_read_in_parts = is_local = True
    schema = SCHEMA

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
        self.root = Path(path)
        self.format = format
        self.columns = None if columns == NONE else tuple(columns)
        self.unit: Unit = unit
        self.delimiter: Delimiter = delimiter
        self.split_column = None if split == NONE else split
        self.languages = (naming.name_of("text"), naming.name_of("target"))
        self._read = naming
        self._cuts: dict[Kind | None, Cuts] = {}
        if self.split_column and naming.name_of(TIME) != NONE:
            raise ValueError(
                f"{TIME}: the column {split} gives the splits (`split`; --split {NONE} of make "
                f"new), but {TIME} draws all three; leave one of them out"
            )
        if not self.root.exists():
            home = "; write ~ out, since only a shell expands it" if path.startswith("~") else ""
            raise ValueError(f"path: no such file or folder: {path}{home}")
        refuse_endless(self.root)
        named: dict[Split, list[str]] = {
            "train": _list(train),
            "validation": _list(validation),
            "test": _list(test),
        }
        self.splits: set[Split] = {split for split, names in named.items() if names}
        self.files: dict[Path, Split]
        if self.splits:
            if self.split_column:
                raise ValueError("split: train, validation and test name files already")
            if self.root.is_file():
                raise ValueError(f"path: {path} is a file, but splits name files in a folder")
            if "train" not in self.splits:
                raise ValueError("train: name its file too, since another split has one")
            self.files = {}
            for split, names in named.items():
                self._name_files(split, names)
        else:
            self.files = {file: "train" for file in self._listed()}
        for file in self.files:
            self._format(file)

    @classmethod
    def draws_test(cls, settings: Settings) -> bool:
        return draws_test(settings)

    def check(self, kind: Kind | None) -> None:
        """Reads each file up to its first document or example, or to its first time if splits are
        drawn by time. If a file is one document, only its first paragraph is read."""
        for file in self.each_file():
            if file.unit == "file":
                file = replace(file, unit="paragraph")
            if self._read.name_of(TIME) != NONE:
                next(file.times(kind), None)
            else:
                next(iter(file.texts() if kind is None else file.examples(kind)), None)

    def documents(self) -> Iterator[Document]:
        for file in self._with_cuts(None):
            yield from file.documents()

    def parts(self) -> Iterator[Part]:
        for file in self._with_cuts(None):
            yield from file.parts()

    def examples(self, kind: Kind) -> Iterator[Labelled]:
        for file in self._with_cuts(kind):
            yield from file.examples(kind)

    def each_file(self) -> Iterator[SourceFile]:
        """Yields the files with the settings for reading them and the splits that the data has."""
        given = frozenset(self.splits or self._splits_of_column)
        self._read.check_draw(given)
        return (replace(file, given=given) for file in self._files())

    def _with_cuts(self, kind: Kind | None) -> Iterator[SourceFile]:
        """Yields the files. If splits are drawn by time, the times of all rows are read first, and
        each file has the cuts between the splits."""
        column = self._read.name_of(TIME)
        if column == NONE:
            return self.each_file()
        if kind not in self._cuts:
            times = (each for file in self.each_file() for each in file.times(kind))
            self._cuts[kind] = cuts_of(times, column)
        return (replace(file, cuts=self._cuts[kind]) for file in self.each_file())

    def _files(self) -> Iterator[SourceFile]:
        for path, split in self.files.items():
            yield SourceFile(
                path,
                self._name(path),
                self._format(path),
                split,
                frozenset(),
                self._columns(path),
                self.columns,
                self.unit,
                self.languages,
                self.delimiter,
                self.split_column,
            )

    @cached_property
    def _splits_of_column(self) -> set[Split]:
        """The splits that the column ``split`` names, if there is one."""
        files = self._files() if self.split_column else ()
        splits = {file.split_of(record) for file in files for record in file.records()}
        if self.split_column and "train" not in splits:
            raise ValueError(f"split: no row of {self.split_column} is of train")
        return splits

    # The files with their formats and splits -------------------------------------------------

    def _name_files(self, split: Split, names: list[str]) -> None:
        for name in names:
            file = self.root / name
            if file in self.files:
                raise ValueError(f"{split}: {name} already belongs to {self.files[file]}")
            if self.format == PARALLEL:
                try:
                    sides(file, list(self.languages))
                except ValueError as error:
                    raise ValueError(f"{split}: {error}") from None
            elif not file.is_file():
                existing = [p.name for p in self.root.iterdir()] if self.root.is_dir() else []
                raise ValueError(
                    f"{split}: no such file: {file}; {unknown(name, sorted(existing))}"
                )
            self.files[file] = split

    def _listed(self) -> list[Path]:
        if self.format == PARALLEL:
            raise ValueError(
                f"train: name what parallel files begin with, such as train of train."
                f"{self.languages[0]} and train.{self.languages[1]}"
            )
        if self.root.is_file():
            return [self.root]
        files = sorted(p for p in self.root.rglob("*") if p.is_file() and p.name[0] != ".")
        if self.format == "auto":
            files = [p for p in files if format_of(p) in FORMATS]
        if not files:
            raise ValueError(f"path: no {'/'.join(FORMATS)} file is in {self.root}")
        return files

    def _format(self, file: Path) -> str:
        if self.format != "auto":
            return self.format
        if format_of(file) not in FORMATS:
            raise ValueError(
                f"format: name it, since {file.name} does not end in one of {', '.join(FORMATS)}"
            )
        return format_of(file)

    def _name(self, file: Path) -> str:
        return file.name if file == self.root else file.relative_to(self.root).as_posix()

    def _columns(self, file: Path) -> Columns:
        """Returns the settings for a file. A column left at its default name gets the default name
        for the file's format."""
        of_format = {
            column: name
            for column, name in _WORDS_AND_TAGS.get(self._format(file), {}).items()
            if self._read.name_of(column) == column
        }
        return self._read.renamed(of_format)


def _list(names: str | list[str]) -> list[str]:
    if isinstance(names, list):
        return names
    return [] if names == NONE else [names]
