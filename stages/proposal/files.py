"""Finds the files of a path, their splits and their form, as settings of the source `files`."""

import csv
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from itertools import dropwhile, islice
from pathlib import Path

from stages.core.artifacts import Json
from stages.core.text_files import repeats_header, sep_line, text_lines
from stages.proposal.columns import HINTS
from stages.proposal.flags import Flags
from stages.proposal.questions import Unclear
from stages.proposal.roles import as_list
from stages.sources._columns import SPLIT_SEED
from stages.sources._formats import DELIMITERS, FORMATS, Delimiter, format_of, read
from stages.sources._records import SourceFile
from stages.sources._source import SOURCES
from stages.sources.files import PARALLEL, Files, files_below
from stages.tasks._cells import number_of, short
from stages.tasks._task import SPLITS, Split, split_named

LABELLED_FORMATS = tuple(form for form in FORMATS if form != "txt")
NAMES = ("classes.txt", "labels.txt")  # files with the name of a class on each line
FIRST = 10  # number of files of a folder that are shown
LOOKED_AT = 500  # rows that are read to find the delimiter and the header
LONG_WORDS, LONG_LETTERS = 8, 60  # a longer cell is not the name of a column
TAG = r"[BIESLUMWO]([-_:].+)?|0"
SENTENCES = 50  # of a conll file, read to find columns with only a placeholder


def source_of(path: Path, flags: Flags, notes: list[str]) -> Json:
    """Returns the settings of the source, without its columns.

    Raises ValueError for missing and empty files, and if the names or the contents of files do not
    show their split, format, delimiter or header. The message names the flag to use.
    """
    settings: Json = {"name": "files", "path": path.as_posix(), **flags.splits}
    if path.is_dir():
        settings |= _files_of_folder(path, flags, notes)
    settings |= {} if flags.format == "auto" else {"format": flags.format}
    settings |= {SPLIT_SEED: flags.split_seed} if flags.split_seed else {}
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
    for file in [path / name for of in names.values() for name in of] or [Path(settings["path"])]:
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


def _files_of_folder(folder: Path, flags: Flags, notes: list[str]) -> Json:
    """Returns the settings with the files of each split, or with the only file. The files that are
    not read are added to ``notes``."""
    files = files_below(folder)
    data = [file for file in files if format_of(file) in LABELLED_FORMATS]
    names: Mapping[Split, list[str]] = flags.splits
    form: Json = {}
    if not names and not data and (names := _parallel_stems(folder, files)):
        form = {"format": PARALLEL}
    if not names:
        data = data if flags.format == "auto" else files
        listed = _listed(files, folder)
        if len(data) == 1:
            notes.extend(_not_read(files, folder, data))
            return {"path": data[0].as_posix()}
        if not data:
            raise Unclear("folder", folder, "/".join(LABELLED_FORMATS), listed or "no file")
        by_split: dict[Split, list[Path]] = defaultdict(list)
        for file in data:
            if split := split_named(file.name):
                by_split[split].append(file)
        evals = [file for file in by_split["test"] if "eval" in file.name.lower()]
        if "validation" not in by_split and len(evals) < len(by_split["test"]):
            by_split["validation"] = evals
            by_split["test"] = [file for file in by_split["test"] if file not in evals]
        by_split = {split: files for split, files in by_split.items() if files}
        mixed = [files for files in by_split.values() if len({*map(format_of, files)}) > 1]
        if "train" not in by_split or mixed:
            raise Unclear("train", folder, listed)
        names = {s: [f.relative_to(folder).as_posix() for f in by_split[s]] for s in by_split}
    read = [folder / name for of in names.values() for name in of]
    read += [file for file in files if form and any(f"{file}".startswith(f"{s}.") for s in read)]
    notes.extend(_not_read(files, folder, read))
    one = {split: of[0] if len(of) == 1 else of for split, of in names.items()}
    return form | {split: one[split] for split in SPLITS if split in one}


def _listed(files: list[Path], folder: Path) -> str:
    names = ", ".join(file.relative_to(folder).as_posix() for file in files[:FIRST])
    return f"{names} and {len(files) - FIRST} more" if len(files) > FIRST else names


def _not_read(files: list[Path], folder: Path, read: Collection[Path]) -> Iterator[str]:
    """Yields a note on the files that are not ``read``, and have no names of classes either."""
    if left := [file for file in files if file not in read and file.name not in NAMES]:
        yield f"Not read: {_listed(left, folder)}."


def _parallel_stems(folder: Path, files: list[Path]) -> dict[Split, list[str]]:
    """Returns the stem of each split's parallel files: ``train`` for train.en and train.de. The
    only stem is train whatever it is called."""
    endings: dict[str, set[str]] = defaultdict(set)
    for file in files:
        name = file.relative_to(folder).as_posix().removesuffix(".gz")
        stem, _, ending = name.rpartition(".")
        if re.fullmatch("[a-z]{2,3}", ending) and ending not in FORMATS:
            endings[stem].add(ending)
    pairs = [stem for stem in endings if len(endings[stem]) > 1]
    stems = {split_named(stem) if len(pairs) > 1 else "train": [stem] for stem in pairs}
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
        rows = [row for row in rows if row and not repeats_header(row, header)]
        for why in _no_header(header, rows) if flags.names is None and not flags.header else ():
            raise Unclear("header", file.path, why, len(header), ", ".join(map(short, header)))
    if flags.names is not None:
        settings["columns"] = flags.names
    elif file.format == "conll":
        settings["columns"] = _conll_columns(file)
    return settings


def _conll_columns(file: SourceFile) -> list[str]:
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


def _no_header(header: list[str], rows: list[list[str]]) -> Iterator[str]:
    """Yields why the first row may not be a header."""
    if header == [str(i) for i in range(len(header))]:  # as pandas numbers columns
        return
    has_text = any(name.strip().lower() in HINTS["no class"] for name in header)
    for place, name in enumerate(header):
        cells = {row[place].strip() for row in rows if place < len(row)} - {""}
        plain = name.strip()
        is_long = len(name) > LONG_LETTERS or len(name.split()) > LONG_WORDS
        if is_long or plain[:1] in ("[", "{") or not math.isnan(number_of(plain or "no")):
            yield f"the first line reads like data ({short(name)})"
        if place and not plain and cells:
            yield f"the first line does not name column {place + 1}"
        # A label may be called as a class is, such as y above cells of y and n.
        if plain in cells and not (has_text and plain.lower() in HINTS["label"]):
            yield f"{name!r} of the first line is also in a row below"
