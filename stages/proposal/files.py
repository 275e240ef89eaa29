"""Finds the files of a path, their splits and their form, as settings of the source `files`, and
the command that converts a file in a form that is not read (forms.yaml)."""

import csv
import json
import math
import re
import shlex
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice, product
from pathlib import Path

from ruamel.yaml import YAML

from stages.core.artifacts import Json
from stages.core.text_files import opened, repeats_header, sep_line, text_lines
from stages.proposal.columns import HINTS, SHAPES
from stages.proposal.flags import Flags
from stages.proposal.questions import Note, Unclear
from stages.proposal.roles import as_list
from stages.sources._columns import SPLIT_SEED, SourceFile
from stages.sources._formats import DELIMITERS, FORMATS, Delimiter, format_of, read
from stages.sources._source import SOURCES
from stages.sources.files import PARALLEL, Files, files_below
from stages.tasks._cells import number_of, short
from stages.tasks._task import SPLITS, split_named

FORMS = YAML(typ="safe").load(Path(__file__).with_name("forms.yaml"))
LABELLED_FORMATS = [form for form in FORMATS if form != "txt"]
NAMES = ("classes.txt", "labels.txt")  # files with the name of a class on each line
IDS = "label2id.json"  # as models of transformers have it: {"negative": 0, "positive": 1}
FIRST = 10  # number of files of a folder that are shown
LOOKED_AT = 500  # rows that are read to find the delimiter and the header
LONG_WORDS, LONG_LETTERS = 8, 60  # a longer cell is not the name of a column
HEAD = 2**16  # bytes that are looked at
MOST_FILES = 1_000  # that are looked at
MANY_FILES = 5  # fewest files of a kind in a folder that is a class
MANY = 0.05  # share of texts with a form from which on a note says so
SENTENCES = 50  # of a conll file, read to find columns with only a placeholder
# Of a column in the card of a dataset (README.md), in YAML: {0: negative, 1: positive}.
CARD = r"- name: {0}\n\s+(?:dtype|sequence):\n\s+class_label:\n\s+names:\n((?:\s+'?\d+'?: .*\n)+)"


def source_of(path: Path, flags: Flags, notes: list[Note]) -> Json:
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
        notes.append(Note("splits", "; ".join(f"{s}: {', '.join(names[s])}" for s in names)))
    if settings.get("format") == PARALLEL:
        if not {"text", "target"} <= flags.columns.keys():
            raise Unclear("parallel", path)
        sides = {role: flags.columns[role] for role in ("text", "target")}
        notes.append(Note("parallel", *sides.values()))
        return settings | sides
    for file in [path / name for of in names.values() for name in of] or [Path(settings["path"])]:
        if not file.is_file():
            raise ValueError(f"no such file or folder: {file}")
        if not file.stat().st_size:
            raise ValueError(f"{file}: the file is empty")
        if flags.format == "auto" and format_of(file) not in LABELLED_FORMATS:
            next(text_lines(file), None)  # raises ValueError for a file that is not text
            raise Unclear("format", file, LABELLED_FORMATS)
    return settings | _form(files_of(settings)[0], flags, notes)


def files_of(settings: Json) -> list[SourceFile]:
    """Returns the files of a source with these settings."""
    source = SOURCES.build(settings, where="DATA")
    assert isinstance(source, Files)
    return list(source.each_file())


def _files_of_folder(folder: Path, flags: Flags, notes: list[Note]) -> Json:
    """Returns the settings with the files of each split, or with the only file."""
    files = [file.relative_to(folder).as_posix() for file in files_below(folder)]
    is_any = flags.format != "auto"
    rest = [name for name in files if Path(name).name != IDS]
    data = [name for name in rest if is_any or format_of(Path(name)) in LABELLED_FORMATS]
    names: Json = {**flags.splits} or ({} if data else _parallel_stems(files))
    form: Json = {} if data or flags.splits or not names else {"format": PARALLEL}
    if not data and not names:
        raise Unclear("folder", folder, "/".join(LABELLED_FORMATS), _listed(files) or "no file")
    if len(data) == 1 and not names:
        form = {"path": (folder / data[0]).as_posix()}
    elif not names:
        splits = {name: split_named(Path(name).name) for name in data}
        evals = [n for n in data if splits[n] == "test" and "eval" in Path(n).name.lower()]
        others = [name for name in data if splits[name] == "test" and name not in evals]
        if others and "validation" not in splits.values():
            splits |= dict.fromkeys(evals, "validation")
        names = {s: [name for name in data if splits[name] == s] for s in SPLITS}
        names = {split: of for split, of in names.items() if of}
        mixed = [of for of in names.values() if len({format_of(Path(name)) for name in of}) > 1]
        if "train" not in names or (mixed and not is_any):
            raise Unclear("train", folder, _listed(files))
    read = [*NAMES, IDS, *(name for of in names.values() for name in of)] + data * ("path" in form)
    stems = tuple(f"{name}." for name in read) if "format" in form else ()
    if left := [name for name in files if name not in read and not name.startswith(stems)]:
        notes.append(Note("files", _listed(left)))
    return form | {split: of[0] if len(of) == 1 else of for split, of in names.items()}


def _listed(names: Iterable[str]) -> str:
    first, more = [*names][:FIRST], len([*names]) - FIRST
    return ", ".join(first) + (f" and {more} more" if more > 0 else "")


def _parallel_stems(names: list[str]) -> Json:
    """Returns the stem of each split's parallel files; the only stem is train."""
    endings = defaultdict[str, set[str]](set)
    for name in names:
        stem, _, ending = name.removesuffix(".gz").rpartition(".")
        if re.fullmatch("[a-z]{2,3}", ending) and ending not in FORMATS:
            endings[stem].add(ending)
    pairs = [stem for stem in endings if len(endings[stem]) > 1]
    stems = {split_named(stem) if len(pairs) > 1 else "train": [stem] for stem in pairs}
    return {split: stems[split] for split in SPLITS if split in stems and "train" in stems}


def _form(file: SourceFile, flags: Flags, notes: list[Note]) -> Json:
    """Returns the settings for a delimiter or names of columns that differ from the usual ones."""
    settings: Json = {}
    if file.format in ("csv", "tsv"):
        usual: Delimiter = "tab" if file.format == "tsv" else "comma"
        tables = {sign: [row for row in _rows(file, sign) if row] for sign in DELIMITERS}
        # The only delimiter that gives every row the same number of cells, at least two
        even = [
            d for d, rows in tables.items() if rows and {*map(len, rows)} == {max(2, len(rows[0]))}
        ]
        delimiter = even[0] if len(even) == 1 else usual
        delimiter = delimiter if flags.delimiter == "auto" else flags.delimiter
        if delimiter != usual:
            settings["delimiter"] = delimiter
            notes.append(Note("delimiter", delimiter))
        header, *rows = tables[delimiter] or [[]]
        rows = [row for row in rows if not repeats_header(row, header)]
        for why in _no_header(header, rows) if flags.names is None and not flags.header else ():
            raise Unclear("header", file.path, why, len(header), [*map(short, header)])
    if flags.names is not None:
        settings["columns"] = flags.names
    elif file.format == "conll":
        settings["columns"] = _conll_columns(file)
    return settings


def _rows(file: SourceFile, delimiter: Delimiter) -> list[list[str]]:
    """Returns the first rows. A first line such as ``sep=;`` overrides ``delimiter``."""
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
    texts = HINTS["no class"] | HINTS["text"]
    has_text = any(name.strip().lower() in texts for name in header)
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


def _conll_columns(file: SourceFile) -> list[str]:
    """Returns the columns' names; the two with more than a placeholder are words and tags."""
    records = [record.cells for record in islice(read(file.path, "conll"), SENTENCES)]
    if not records:
        raise ValueError(f"{file.path}: the file has no rows")
    values = {key: {cell for cells in records for cell in cells[key]} for key in records[0]}
    full = [key for key in values if not values[key] <= {"", "_", "-"}]
    if len(full) != 2:
        line = " ".join(cells[0] for cells in records[0].values() if cells[0])
        raise Unclear("words and tags", file.path, line)
    are_tags = [all(re.fullmatch(SHAPES["tag"], cell) for cell in values[key]) for key in full]
    order = ("tags", "words") if are_tags == [True, False] else ("words", "tags")
    names = dict(zip(full, order, strict=True))
    return [names.get(key, f"column{key}") for key in values if values[key] != {""}]


def names_of_numbers(source: Json, column: str, values: Iterable[str]) -> tuple[list[str], str]:
    """Returns the names of a column's numbers from 0, and the file that has them; nothing if a
    value is no number, or no file has a name for each."""
    labels = {value for value in values if value != "-1"}
    numbers = {int(value) for value in labels if value.isdecimal()}
    for file, names in _named_classes(source, column) if len(numbers) == len(labels) else ():
        if file in NAMES and numbers == {*range(1, len(names) + 1)}:  # as in AG News
            names = ["0", *names]
        if max(numbers, default=len(names)) < len(names) and len(names) == len({*names}):
            return names, file
    return [], ""


def _named_classes(source: Json, column: str) -> Iterator[tuple[str, list[str]]]:
    import pyarrow.parquet

    for data in files_of(source):
        if data.format == "parquet":
            metadata = pyarrow.parquet.read_schema(data.path).metadata or {}
            info = json.loads(metadata.get(b"huggingface", b"{}")).get("info", {})
            feature = info.get("features", {}).get(column, {})
            yield data.name, feature.get("feature", feature).get("names", [])
    path = Path(source["path"])
    folder = path if path.is_dir() else path.parent
    for file in (folder / name for name in ("README.md", *NAMES, IDS)):
        text = file.read_text("utf-8", errors="replace") if file.is_file() else ""
        if file.name in NAMES:
            yield file.name, [line.strip() for line in text.splitlines() if line.strip()]
        elif file.name == IDS and text:
            ids = json.loads(text)
            numbers = ids.values() if isinstance(ids, dict) else ()
            if numbers and sorted(numbers, key=str) == sorted(range(len(ids)), key=str):
                yield file.name, sorted(ids, key=ids.__getitem__)
        elif card := re.search(CARD.format(re.escape(column)), text):
            yield file.name, [line.split(": ")[1].strip("'\" ") for line in card[1].splitlines()]


def refuse_known(data: Path, *, always: bool, is_named: bool = False) -> None:
    """Raises ValueError with a command if a file of ``data`` has a form that is not read; with
    ``always`` only for the forms that would be read wrongly, and if the user has named the format
    (``is_named``) only for those with a command."""
    files = files_below(data) if data.is_dir() else [data] * data.is_file()
    kinds = Counter(
        f"{file.parent.relative_to(data)}/*{file.suffix}" for file in files if file != data
    )
    listing = "".join(f"{kind}\n" for kind, number in kinds.items() if number >= MANY_FILES)
    heads = {data: listing} | {file: _head(file) for file in files[:MOST_FILES]}
    for form, (file, head) in product(FORMS["forms"], heads.items()):
        named = re.search(f"(^|/)[^/]*{form.get('name', '')}(\\.gz)?$", file.as_posix().lower())
        match = named and re.search(form.get("head", ""), head)
        is_meant = (not always or "always" in form) and "texts" not in form
        advice = _advice(form, file, match) if match and is_meant else ""
        if "\n" in advice or (advice and not is_named):
            raise ValueError(f"{file}: {advice}")


def odd_texts(texts: Sequence[str], file: Path) -> Iterator[Note]:
    """Yields notes on what many texts have in them that is no language."""
    for form in (form for form in FORMS["forms"] if "texts" in form):
        num = sum(bool(re.search(form["texts"], text)) for text in texts)
        if num > MANY * len(texts) and (match := re.search(form["name"] + "$", file.name)):
            yield Note("odd texts", num, len(texts), _advice(form, file, match))


def _head(file: Path) -> str:
    try:
        with opened(file) as binary:
            return binary.read(HEAD).decode(errors="replace").lstrip("\ufeff")
    except (OSError, EOFError, zlib.error):
        return ""


def _advice(form: Json, file: Path, match: re.Match[str]) -> str:
    """Returns what a form is, and the command that converts the file."""
    command = form.get("command", "")
    if kind := next((kind for kind in FORMS["commands"] if kind in form), None):
        command = FORMS["commands"][kind].replace("ROWS", form[kind])
    if file.suffix == ".gz" and "< FILE" in command:
        command = f"gzip -dc FILE | {command.replace('< FILE ', '')}"
    python, here = Path(sys.executable), Path.cwd()
    new = file.with_name(re.sub(r"(\.\w{1,7})+$", "", file.name) + "-rows")
    names = {"PYTHON": python.relative_to(here) if python.is_relative_to(here) else python}
    names |= {"FILE": file, "NEW": new, "FOLDER": file.parent, "ENDING": Path(file.suffix[1:])}
    for name, path in names.items():
        command = re.sub(rf"\b{name}\b", lambda _: shlex.quote(str(path)), command)  # noqa: B023
    text = form["what"] + "; --format NAME reads it as it is" * ("always" in form)
    text += f"; to convert it:\n  {command}" if command else ""
    return text.replace("SIGN", match.groupdict().get("SIGN", ""))
