"""Which files a path has, of which split, and how each is read: settings of the source `files`."""

import csv
import re
from collections import defaultdict
from pathlib import Path

import pandas

from stages.core.artifacts import Json
from stages.kinds._kind import SPLITS, Split
from stages.proposal.flags import Flags
from stages.sources._file import SourceFile
from stages.sources._formats import (
    DELIMITERS,
    FORMATS,
    Delimiter,
    format_of,
    read,
)
from stages.sources._source import SOURCES
from stages.sources.files import PARALLEL, Files

LABELLED_FORMATS = tuple(form for form in FORMATS if form != "txt")
LOOKED_AT = 500  # rows that indicate the delimiter and the header
LONG_WORDS, LONG_LETTERS = 8, 60  # no name of a column is as long
SPLIT_NAMES: dict[Split, str] = {
    "train": r"(?<![a-z])train",
    "validation": r"(?<![a-z])(dev|valid|val(?![a-z])|trial|testa)",
    "test": r"(?<![a-z])(test|eval)",
}


def source_of(path: Path, flags: Flags, notes: list[str]) -> Json:
    """The settings of the source, without its columns.

    Raises ValueError for missing and empty files, and where the names or the contents of files do
    not say which split, format, delimiter or header they have; the message names the flag that
    does.
    """
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder")
    if path.is_dir():
        settings = _folder(path, flags, notes)
    elif flags.splits:
        raise ValueError(f"{path}: is a file, but --train, --validation and --test name files")
    else:
        settings: Json = {"name": "files", "path": path.as_posix()}
    if flags.format != "auto":
        settings["format"] = flags.format
    if settings.get("format") == PARALLEL:
        if not {"text", "target"} <= flags.columns.keys():
            names = ", ".join(sorted(file.name for file in path.iterdir())[:6])
            raise ValueError(
                f"{path}: files line by line ({names}); --text ENDING and --target ENDING say "
                "which is written from which, such as --text en --target de"
            )
        return settings | {role: flags.columns[role] for role in ("text", "target")}
    files = [path / name for split in SPLITS for name in _list(settings.get(split, []))]
    for file in files or [Path(settings["path"])]:
        if not file.is_file() or not file.stat().st_size:
            raise ValueError(f"{file}: the file is {'empty' if file.exists() else 'missing'}")
        if flags.format == "auto" and format_of(file) not in LABELLED_FORMATS:
            raise ValueError(
                f"{file}: the name does not say the format; --format NAME says which of "
                f"{', '.join(LABELLED_FORMATS)} it is (text without labels is --corpus FOLDER)"
            )
    return settings | _form(files_of(settings)[0], flags, notes)


def files_of(settings: Json) -> list[SourceFile]:
    """The files of a source with these settings."""
    source = SOURCES.build(settings, where="DATA")
    assert isinstance(source, Files)
    return list(source.each_file())


# Folders -----------------------------------------------------------------------------------------


def split_of_name(name: str) -> Split | None:
    """The split that a file's name indicates."""
    matching = (split for split, pattern in SPLIT_NAMES.items() if re.search(pattern, name.lower()))
    return next(matching, None)


def _folder(folder: Path, flags: Flags, notes: list[str]) -> Json:
    """The files of each split, or the only file."""
    settings: Json = {"name": "files", "path": folder.as_posix()}
    if flags.splits:
        return settings | {split: _one(names) for split, names in flags.splits.items()}
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and file.name[0] != "."]
    data = [file for file in files if format_of(file) in LABELLED_FORMATS]
    if not data and (stems := _parallel_stems(folder, files)):
        return settings | stems | {"format": PARALLEL}
    if flags.format != "auto":
        data = files
    if len(data) == 1:
        return settings | {"path": data[0].as_posix()}
    names: dict[Split, list[str]] = defaultdict(list)
    for file in data:
        if split := split_of_name(file.name):
            names[split].append(file.relative_to(folder).as_posix())
    listed = ", ".join(file.relative_to(folder).as_posix() for file in files[:10]) or "no file"
    if not data:
        raise ValueError(
            f"{folder}: no {'/'.join(LABELLED_FORMATS)} file is in this folder, but {listed}; "
            "--format NAME says what they are, and text without labels is --corpus FOLDER"
        )
    formats = {split: {format_of(Path(name)) for name in names[split]} for split in names}
    if "train" not in names or any(len(forms) > 1 for forms in formats.values()):
        raise ValueError(
            f"{folder}: the names of files do not say which to train on; --train FILE, "
            f"--validation FILE and --test FILE name them. The folder has {listed}"
        )
    settings |= {split: _one(names[split]) for split in SPLITS if split in names}
    said = "; ".join(f"{split}: {', '.join(names[split])}" for split in SPLITS if split in names)
    notes.append(f"Splits by the names of files: {said}. (--train, --validation, --test)")
    return settings


def _parallel_stems(folder: Path, files: list[Path]) -> Json:
    """Returns the stem of the files of each split in a folder with train.en, train.de, val.en."""
    endings: dict[str, set[str]] = defaultdict(set)
    for file in files:
        name = file.relative_to(folder).as_posix().removesuffix(".gz")
        stem, _, ending = name.rpartition(".")
        if re.fullmatch("[a-z]{2,3}", ending) and ending not in FORMATS:
            endings[stem].add(ending)
    stems = {split_of_name(stem): stem for stem in endings if len(endings[stem]) > 1}
    return {split: stems[split] for split in SPLITS if split in stems} if "train" in stems else {}


def _list(names: str | list[str]) -> list[str]:
    return names if isinstance(names, list) else [names]


def _one(names: list[str]) -> str | list[str]:
    return names[0] if len(names) == 1 else names


# Tables ------------------------------------------------------------------------------------------


def _form(file: SourceFile, flags: Flags, notes: list[str]) -> Json:
    """The delimiter and the names of the columns, where they are not the usual ones."""
    settings: Json = {}
    if file.format in ("csv", "tsv"):
        usual: Delimiter = "tab" if file.format == "tsv" else "comma"
        delimiter = flags.delimiter if flags.delimiter != "auto" else _delimiter(file, usual)
        if delimiter != usual:
            settings["delimiter"] = delimiter
            notes.append(f"Columns are separated by a {delimiter}. (--delimiter)")
        rows = _rows(file, delimiter)
        if flags.names is None and not flags.header and (why := _why_no_header(rows)):
            raise ValueError(
                f"{file.path}: {why}; if it is a row, --columns NAME,... names its {rows.shape[1]} "
                f"columns ({', '.join(map(_short, rows.iloc[0]))}), such as text,label; if it "
                "names them, --header says so"
            )
    if flags.names is not None:
        settings["columns"] = flags.names
    elif file.format == "conll":
        lines = read(file.path, "conll", columns=None, unit="paragraph", languages=[])
        cells = next(([*record.cells.values()] for record in lines), [])
        if len(cells) != 2:
            raise ValueError(
                f"{file.path}: which column has the words and which the tags? --columns NAME,... "
                f"names those of {' '.join(column[0] for column in cells)!r}, such as words,tags"
            )
        settings["columns"] = ["words", "tags"]
    return settings


def _delimiter(file: SourceFile, usual: Delimiter) -> Delimiter:
    """The usual delimiter, unless another one alone gives every row the same number of cells."""
    tables = {delimiter: _rows(file, delimiter) for delimiter in DELIMITERS}
    even = [d for d, rows in tables.items() if rows.shape[1] > 1 and not rows.isna().any(axis=None)]
    return even[0] if len(even) == 1 else usual


def _rows(file: SourceFile, delimiter: Delimiter) -> pandas.DataFrame:
    """The first rows of a table; none if one has more cells than the first."""
    try:
        return pandas.read_csv(
            file.path,
            sep=DELIMITERS[delimiter],
            quoting=csv.QUOTE_NONE if file.format == "tsv" else csv.QUOTE_MINIMAL,
            header=None,
            nrows=LOOKED_AT,
            dtype=str,
            keep_default_na=False,
            encoding="utf-8-sig",
            encoding_errors="replace",
        )
    except (pandas.errors.ParserError, pandas.errors.EmptyDataError):
        return pandas.DataFrame()


def _why_no_header(rows: pandas.DataFrame) -> str:
    """Why the first row may be no header; empty if it looks like one."""
    if rows.empty or list(rows.iloc[0]) == [str(i) for i in rows]:  # as pandas numbers columns
        return ""
    for place, cell in enumerate(rows.iloc[0].fillna("")):
        if len(cell) > LONG_LETTERS or len(cell.split()) > LONG_WORDS:
            return f"the first line reads like data ({_short(cell)!r})"
        if place and not cell.strip():
            return f"the first line does not name column {place + 1}"
        if pandas.notna(pandas.to_numeric(cell, errors="coerce")):
            return f"the first line has a number ({cell!r})"
        if cell.strip() and cell.strip() in set(rows[place][1:].str.strip()):
            return f"{cell!r} of the first line is also in a row below"
    return ""


def _short(cell: str) -> str:
    return cell if len(cell) <= LONG_LETTERS else f"{cell[:LONG_LETTERS]}..."
