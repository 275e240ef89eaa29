"""Finds the files of a path, their splits and their form, as settings of the source `files`."""

import csv
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import dropwhile, islice
from pathlib import Path

from stages.core.artifacts import Json
from stages.core.text_files import repeats_header, sep_line, text_lines
from stages.proposal.columns import HINTS
from stages.proposal.flags import Flags
from stages.proposal.questions import Unclear, refuse_lines
from stages.proposal.roles import as_list
from stages.sources._columns import SPLIT_SEED
from stages.sources._formats import DELIMITERS, FORMATS, Delimiter, format_of, read
from stages.sources._records import SourceFile
from stages.sources._source import SOURCES
from stages.sources.files import PARALLEL, Files
from stages.tasks._cells import number_of, short
from stages.tasks._task import SPLITS, Split, split_named

LABELLED_FORMATS = tuple(form for form in FORMATS if form != "txt")
FIRST = 10  # number of files of a folder that are shown, or looked at
LOOKED_AT = 500  # rows that are read to find the delimiter and the header
LONG_WORDS, LONG_LETTERS = 8, 60  # a longer cell is not the name of a column
LEAST_SENTENCES, LONG_SENTENCE = 3, 60  # fewest sentences, and most words of one on average
WORDS_PER_TOKEN = 1.5  # the cells of a table of texts have more words on average
TAG = r"[BIESLUMWO]([-_:].+)?|0"
SENTENCES = 50  # of a conll file, read to find columns with only a placeholder


def source_of(path: Path, flags: Flags, notes: list[str]) -> Json:
    """Returns the settings of the source, without its columns.

    Raises ValueError for missing and empty files, and if the names or the contents of files do not
    show their split, format, delimiter or header. The message names the flag to use.
    """
    settings: Json = {"name": "files", "path": path.as_posix(), **flags.splits}
    if path.is_dir():
        settings |= _files_of_folder(path, flags)
    if flags.format != "auto":
        settings["format"] = flags.format
    if flags.split_seed:
        settings[SPLIT_SEED] = flags.split_seed
    names = {split: as_list(settings[split]) for split in SPLITS if split in settings}
    if names and not flags.splits:
        shown = "; ".join(f"{split}: {', '.join(names[split])}" for split in names)
        notes.append(f"Splits by the names of files: {shown}. (--set train=FILE)")
    if settings.get("format") == PARALLEL:
        if not {"text", "target"} <= flags.columns.keys():
            raise Unclear("parallel", path)
        sides = {role: flags.columns[role] for role in ("text", "target")}
        notes.append(f"seq2seq: {sides['text']} is read, {sides['target']} is predicted.")
        return settings | sides
    files = [path / name for split in names for name in names[split]] or [Path(settings["path"])]
    refuse_lines(files[:1])
    for file in files:
        if not file.is_file():
            raise ValueError(f"no such file or folder: {file}")
        if not file.stat().st_size:
            raise ValueError(f"{file}: the file is empty")
        if flags.format == "auto" and format_of(file) not in LABELLED_FORMATS:
            next(text_lines(file), None)  # raises ValueError for a file that is not text
            raise Unclear("format", file, ", ".join(LABELLED_FORMATS))
    return settings | _form(files_of(settings)[0], flags, notes)


def files_of(settings: Json) -> list[SourceFile]:
    """Returns the files of a source with these settings."""
    source = SOURCES.build(settings, where="DATA")
    assert isinstance(source, Files)
    return list(source.each_file())


def _files_of_folder(folder: Path, flags: Flags) -> Json:
    """Returns the settings with the files of each split, or with the only file."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and file.name[0] != "."]
    data = [file for file in files if format_of(file) in LABELLED_FORMATS]
    names: Mapping[Split, list[str]] = flags.splits
    form: Json = {}
    if not names and not data and (names := _parallel_stems(folder, files)):
        form = {"format": PARALLEL}
    if not names:
        data = data if flags.format == "auto" else files
        if len(data) == 1:
            return {"path": data[0].as_posix()}
        listed = ", ".join(file.relative_to(folder).as_posix() for file in files[:FIRST])
        if not data:
            refuse_lines(files[:FIRST])
            raise Unclear("folder", folder, "/".join(LABELLED_FORMATS), listed or "no file")
        by_split: dict[Split, list[Path]] = defaultdict(list)
        for file in data:
            if split := split_named(file.name):
                by_split[split].append(file)
        mixed = [files for files in by_split.values() if len({*map(format_of, files)}) > 1]
        if "train" not in by_split or mixed:
            raise Unclear("train", folder, listed)
        names = {s: [f.relative_to(folder).as_posix() for f in by_split[s]] for s in by_split}
    one = {split: of[0] if len(of) == 1 else of for split, of in names.items()}
    return form | {split: one[split] for split in SPLITS if split in one}


def _parallel_stems(folder: Path, files: list[Path]) -> dict[Split, list[str]]:
    """Returns the stem of each split's parallel files: ``train`` for train.en and train.de."""
    endings: dict[str, set[str]] = defaultdict(set)
    for file in files:
        name = file.relative_to(folder).as_posix().removesuffix(".gz")
        stem, _, ending = name.rpartition(".")
        if re.fullmatch("[a-z]{2,3}", ending) and ending not in FORMATS:
            endings[stem].add(ending)
    stems = {split_named(stem): [stem] for stem in endings if len(endings[stem]) > 1}
    return {s: stems[s] for s in SPLITS if s in stems} if "train" in stems else {}


# Tables ------------------------------------------------------------------------------------------


def _form(file: SourceFile, flags: Flags, notes: list[str]) -> Json:
    """Returns the settings for a delimiter or names of columns that differ from the usual ones."""
    settings: Json = {}
    if file.format in ("csv", "tsv"):
        usual: Delimiter = "tab" if file.format == "tsv" else "comma"
        delimiter = flags.delimiter if flags.delimiter != "auto" else _delimiter(file, usual)
        if delimiter != usual:
            settings["delimiter"] = delimiter
            notes.append(f"Columns are separated by a {delimiter}. (--set delimiter)")
        header, *rows = [*dropwhile(lambda row: not row, _rows(file, delimiter))] or [[]]
        if flags.format == "auto":
            for why in _other_formats(file, [header, *rows]):
                raise Unclear("other format", file.path, why, file.format)
        repeated = [row for row in rows if repeats_header(row, header)]
        if flags.names is None and not flags.header:
            for why in _no_header(header, [row for row in rows if row and row not in repeated]):
                named = ", ".join(map(short, header))
                raise Unclear("header", file.path, why, len(header), named)
        if repeated:
            notes.append("Lines that repeat the header are not read.")
    if flags.names is not None:
        settings["columns"] = flags.names
    elif file.format == "conll":
        settings["columns"] = _conll_columns(file, notes)
    return settings


def _conll_columns(file: SourceFile, notes: list[str]) -> list[str]:
    """Returns the names of a conll file's columns. The two that hold more than a placeholder are
    the words and the tags. Raises ValueError if not exactly two hold more."""
    records = [record.cells for record in islice(read(file.path, "conll"), SENTENCES)]
    if not records:
        raise ValueError(f"{file.path}: the file has no rows")
    values = {key: {cell for cells in records for cell in cells[key]} for key in records[0]}
    full = [key for key in values if not values[key] <= {"", "_", "-"}]
    if len(full) != 2:
        line = " ".join(cells[0] for cells in records[0].values() if cells[0])
        raise Unclear("words and tags", file.path, line)
    are_tags = [all(re.fullmatch(TAG, cell) for cell in values[key]) for key in full]
    order = ("tags", "words") if are_tags == [True, False] else ("words", "tags")
    names = dict(zip(full, order, strict=True))
    return [names.get(key, f"column{key}") for key in values if values[key] != {""}]


def _delimiter(file: SourceFile, usual: Delimiter) -> Delimiter:
    """Returns the only delimiter that gives every row the same number of cells, at least two, or
    the usual one if no delimiter or several do so."""
    tables = {sign: [row for row in _rows(file, sign) if row] for sign in DELIMITERS}
    even = [d for d, rows in tables.items() if rows and len({*map(len, rows)}) == 1 < len(rows[0])]
    return even[0] if len(even) == 1 else usual


def _rows(file: SourceFile, delimiter: Delimiter) -> list[list[str]]:
    """Returns the first rows of a table; an empty line is a row without cells. A first line such as
    ``sep=;`` overrides ``delimiter``."""
    sign, texts = sep_line(text_lines(file.path))
    quoting = csv.QUOTE_NONE if file.format == "tsv" else csv.QUOTE_MINIMAL
    rows: list[list[str]] = []
    with suppress(csv.Error):  # the source raises these errors later
        lines = islice(texts, LOOKED_AT)
        rows.extend(csv.reader(lines, delimiter=sign or DELIMITERS[delimiter], quoting=quoting))
    return rows


def _other_formats(file: SourceFile, rows: list[list[str]]) -> Iterator[str]:
    """Yields why the file may have another format than its name says."""
    cells = [cell.strip() for row in rows for cell in row]
    quoted = [cell[1:-1] for cell in cells if len(cell) > 1 and cell[0] == cell[-1] == '"']
    is_quoted = len(rows[0]) > 1 and all(cell[:1] == cell[-1:] == '"' for cell in rows[0])
    if file.format == "tsv" and (is_quoted or any('""' in cell for cell in quoted)):
        yield "cells are in quotation marks, which --format csv --set delimiter=tab removes"
    after_blank = [row for row in rows if any(re.fullmatch(' +".*"', cell) for cell in row)]
    if file.format == "csv" and len(after_blank) > len(rows) / 2:
        yield "a blank stands before quotation marks; sed 's/, *\"/,\"/g' FILE > NEW removes it"
    blank = rows[1:-1].count([])
    is_words = sum(len(cell.split()) for cell in cells) < WORDS_PER_TOKEN * len(cells)
    if blank >= LEAST_SENTENCES and blank * LONG_SENTENCE > len(rows) and is_words:
        yield "blank lines separate sentences; --format conll reads words and tags with tabs"


def _no_header(header: list[str], rows: list[list[str]]) -> Iterator[str]:
    """Yields why the first row may not be a header."""
    if header == [str(i) for i in range(len(header))]:  # as pandas numbers columns
        return
    if header[:1] and header[0].lstrip()[:1] in ("[", "{"):
        yield "the first line looks like JSON (--format jsonl, or --format json for one list)"
    is_title = len(header) != 2 and len([*filter(None, header)]) == 1
    if is_title and any(row[1:] and all(row[:2]) for row in rows):
        yield f"the first line has only {header[0]!r}, which may be a title above them (delete it)"
    has_text = any(name.strip().lower() in HINTS["no class"] for name in header)
    for place, name in enumerate(header):
        cells = {row[place].strip() for row in rows if place < len(row)} - {""}
        if len(name) > LONG_LETTERS or len(name.split()) > LONG_WORDS:
            yield f"the first line reads like data ({short(name)})"
        if place and not name.strip() and cells:
            yield f"the first line does not name column {place + 1}"
        if name.strip() and not math.isnan(number_of(name)):
            yield f"the first line has a number ({name!r})"
        is_label = (
            has_text and name.strip().lower() in HINTS["label"]
        )  # such as y above cells of y and n
        if name.strip() in cells and not is_label:
            yield f"{name!r} of the first line is also in a row below"
