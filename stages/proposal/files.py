"""Finds the files of a path, their splits and their form, as settings of the source `files`."""

import csv
import math
import re
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from itertools import dropwhile, islice
from pathlib import Path

from stages.core.artifacts import Json
from stages.core.text_files import is_comment, repeats_header, sep_line, text_lines
from stages.proposal.column import LABELS, READ
from stages.proposal.flags import Flags
from stages.proposal.forms import refuse_lines
from stages.proposal.roles import as_list
from stages.sources._columns import SPLIT_SEED
from stages.sources._formats import DELIMITERS, FORMATS, Delimiter, format_of, read
from stages.sources._records import SourceFile
from stages.sources._source import SOURCES
from stages.sources.files import PARALLEL, Files
from stages.tasks._kind import SPLITS, Split, split_named
from stages.tasks._numbers import number_of

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
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder")
    if path.is_dir():
        settings = _folder(path, flags, notes)
    elif flags.splits:
        raise ValueError(f"{path}: is a file, but --set train=FILE names files of a folder")
    else:
        settings: Json = {"name": "files", "path": path.as_posix()}
    if flags.format != "auto":
        settings["format"] = flags.format
    if flags.split_seed:
        settings[SPLIT_SEED] = flags.split_seed
    if settings.get("format") == PARALLEL:
        if not {"text", "target"} <= flags.columns.keys():
            names = ", ".join(sorted(file.name for file in path.iterdir())[:6])
            raise ValueError(
                f"{path}: files line by line ({names}); --text ENDING --set target=ENDING say "
                "which is written from which, such as --text en --set target=de"
            )
        text, target = flags.columns["text"], flags.columns["target"]
        notes.append(f"seq2seq: {text} is read, {target} is predicted, line by line.")
        stems = {split: as_list(settings.get(split, [])) for split in SPLITS}
        files = {s: [f"{n}.{end}" for n in stems[s] for end in (text, target)] for s in stems}
        notes.append(_split_by_names(files))
        return settings | {"text": text, "target": target}
    files = [path / name for split in SPLITS for name in as_list(settings.get(split, []))]
    files = files or [Path(settings["path"])]
    refuse_lines(files[:1])
    for file in files:
        if not file.is_file() or not file.stat().st_size:
            raise ValueError(f"{file}: the file is {'empty' if file.exists() else 'missing'}")
        if flags.format == "auto" and format_of(file) not in LABELLED_FORMATS:
            next(text_lines(file), None)  # raises ValueError for a file that is not text
            raise ValueError(
                f"{file}: the name does not say the format; --format NAME says which of "
                f"{', '.join(LABELLED_FORMATS)} it is (text without labels is --corpus FOLDER)"
            )
    return settings | _form(files_of(settings)[0], flags, notes)


def files_of(settings: Json) -> list[SourceFile]:
    """Returns the files of a source with these settings."""
    source = SOURCES.build(settings, where="DATA")
    assert isinstance(source, Files)
    return list(source.each_file())


# Folders -----------------------------------------------------------------------------------------


def _folder(folder: Path, flags: Flags, notes: list[str]) -> Json:
    """Returns the settings with the files of each split, or with the only file."""
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
        if split := split_named(file.name):
            names[split].append(file.relative_to(folder).as_posix())
    listed = ", ".join(file.relative_to(folder).as_posix() for file in files[:FIRST]) or "no file"
    if not data:
        refuse_lines(files[:FIRST])
        raise ValueError(
            f"{folder}: no {'/'.join(LABELLED_FORMATS)} file is in this folder, but {listed}; "
            "--format NAME says what they are; a file or a folder for each class must become one "
            "csv file of text and label; text without labels is --corpus FOLDER"
        )
    formats = {split: {format_of(Path(name)) for name in names[split]} for split in names}
    if "train" not in names or any(len(forms) > 1 for forms in formats.values()):
        raise ValueError(
            f"{folder}: the names of files do not say which to train on; --set train=FILE --set "
            f"validation=FILE --set test=FILE name them. The folder has {listed}"
        )
    settings |= {split: _one(names[split]) for split in SPLITS if split in names}
    notes.append(_split_by_names(names))
    return settings


def _split_by_names(names: Mapping[Split, list[str]]) -> str:
    """Returns a sentence that says which files are which split."""
    said = "; ".join(f"{split}: {', '.join(names[split])}" for split in SPLITS if names.get(split))
    return f"Splits by the names of files: {said}. (--set train=FILE)"


def _parallel_stems(folder: Path, files: list[Path]) -> Json:
    """Returns the stem of each split's parallel files: ``train`` for train.en and train.de."""
    endings: dict[str, set[str]] = defaultdict(set)
    for file in files:
        name = file.relative_to(folder).as_posix().removesuffix(".gz")
        stem, _, ending = name.rpartition(".")
        if re.fullmatch("[a-z]{2,3}", ending) and ending not in FORMATS:
            endings[stem].add(ending)
    stems = {split_named(stem): stem for stem in endings if len(endings[stem]) > 1}
    return {split: stems[split] for split in SPLITS if split in stems} if "train" in stems else {}


def _one(names: list[str]) -> str | list[str]:
    return names[0] if len(names) == 1 else names


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
        if flags.format == "auto" and (why := _why_other_format(file, [header, *rows])):
            raise ValueError(f"{file.path}: {why}; --format {file.format} reads the file as it is")
        rows = [row for row in rows if row and not repeats_header(row, header)]
        if flags.names is None and not flags.header and (why := _why_no_header(header, rows)):
            raise ValueError(
                f"{file.path}: {why}; if it is a row, --columns NAME,... names its {len(header)} "
                f"columns ({', '.join(map(_short, header))}), such as text,label; if it names "
                "them, --set header=yes says so"
            )
        _, texts = sep_line(text_lines(file.path))
        lines = [line.strip("\ufeff\r\n").casefold() for line in texts if line.strip()]
        if repeated := lines[1:].count(lines[0] if lines else ""):
            notes.append(f"{repeated:,} lines repeat the header and are not read.")
    if flags.names is not None:
        settings["columns"] = flags.names
    elif file.format == "conll":
        settings["columns"] = _conll_columns(file, notes)
    return settings


def _conll_columns(file: SourceFile, notes: list[str]) -> list[str]:
    """Returns the names of a conll file's columns. The two that hold more than a placeholder are
    the words and the tags. Raises ValueError if not exactly two hold more."""
    lines = read(file.path, "conll", columns=None, unit="paragraph", languages=[])
    records = [record.cells for record in islice(lines, SENTENCES)]
    if not records:
        raise ValueError(f"{file.path}: the file has no rows")
    values = {key: {cell for cells in records for cell in cells[key]} for key in records[0]}
    empty = [key for key in values if values[key] == {""}]
    full = [key for key in values if not values[key] <= {"", "_", "-"}]
    if len(full) != 2:
        line = " ".join(cells[0] for cells in records[0].values() if cells[0])
        last = f" (column {empty[-1]} is empty: lines end in a tab)" if empty else ""
        raise ValueError(
            f"{file.path}: which column has the words and which the tags? --columns NAME,... "
            f"names those of {line!r}{last}, such as words,pos,tags"
        )
    texts = text_lines(file.path)
    comments = sum(line[0] == "#" and is_comment(line, line.split(), full) for line in texts)
    if comments:
        notes.append(f"{comments:,} lines are comments and are not read.")
    are_tags = [all(re.fullmatch(TAG, cell) for cell in values[key]) for key in full]
    order = ("tags", "words") if are_tags == [True, False] else ("words", "tags")
    names = dict(zip(full, order, strict=True))
    return [names.get(key, f"column{key}") for key in values if key not in empty]


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


def _why_other_format(file: SourceFile, rows: list[list[str]]) -> str:
    """Returns why the file may have another format than its name says, or an empty text."""
    cells = [cell.strip() for row in rows for cell in row]
    quoted = [cell[1:-1] for cell in cells if len(cell) > 1 and cell[0] == cell[-1] == '"']
    is_quoted = len(rows[0]) > 1 and all(cell[:1] == cell[-1:] == '"' for cell in rows[0])
    if file.format == "tsv" and (is_quoted or any('""' in cell for cell in quoted)):
        return "cells are in quotation marks, which --format csv --set delimiter=tab removes"
    after_blank = [row for row in rows if any(re.fullmatch(' +".*"', cell) for cell in row)]
    if file.format == "csv" and len(after_blank) > len(rows) / 2:
        return "a blank stands before quotation marks; sed 's/, *\"/,\"/g' FILE > NEW removes it"
    blank = rows[1:-1].count([])
    is_words = sum(len(cell.split()) for cell in cells) < WORDS_PER_TOKEN * len(cells)
    if blank >= LEAST_SENTENCES and blank * LONG_SENTENCE > len(rows) and is_words:
        with_tabs = " (with tabs instead of commas)" if file.format == "csv" else ""
        return f"blank lines separate sentences; --format conll{with_tabs} reads words and tags"
    return ""


def _why_no_header(header: list[str], rows: list[list[str]]) -> str:
    """Returns why the first row may not be a header, or an empty text if it looks like one."""
    if header == [str(i) for i in range(len(header))]:  # as pandas numbers columns
        return ""
    if header[:1] and header[0].lstrip()[:1] in ("[", "{"):
        return "the first line looks like JSON (--format jsonl, or --format json for one list)"
    is_title = len(header) != 2 and len([*filter(None, header)]) == 1
    if is_title and any(row[1:] and all(row[:2]) for row in rows):
        return f"the first line has only {header[0]!r}, which may be a title above them (delete it)"
    has_text = any(name.strip().lower() in READ for name in header)
    for place, name in enumerate(header):
        cells = {row[place].strip() for row in rows if place < len(row)} - {""}
        if len(name) > LONG_LETTERS or len(name.split()) > LONG_WORDS:
            return f"the first line reads like data ({_short(name)!r})"
        if place and not name.strip() and cells:
            return f"the first line does not name column {place + 1}"
        if name.strip() and not math.isnan(number_of(name)):
            return f"the first line has a number ({name!r})"
        is_label = has_text and name.strip().lower() in LABELS  # such as y above cells of y and n
        if name.strip() in cells and not is_label:
            return f"{name!r} of the first line is also in a row below"
    return ""


def _short(cell: str) -> str:
    return cell if len(cell) <= LONG_LETTERS else f"{cell[:LONG_LETTERS]}..."
