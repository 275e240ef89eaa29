"""Which files there are, of which split, and how each is read."""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from stages.core.artifacts import Json
from stages.kinds._kind import SPLITS, Split
from stages.proposal.asked import Asked, Notes
from stages.proposal.form import (
    content_format,
    delimiter_of,
    is_header,
    is_quoted,
    refuse_orange,
    rows_of,
)
from stages.sources._formats import FORMATS, Delimiter, Format, Record, format_of, read

PARALLEL, TABLES = "parallel", ("csv", "tsv")
LARGE_BYTES = 200_000_000  # of such a file only the first rows are looked at
SAMPLED = 50_000  # rows of it
PROFILED = 5_000  # rows that tell what the columns hold
OTHER_FILES = {"md", "rst", "py", "sh", "zip", "tar", "tgz", "pdf", "html", "yaml", "yml", "png"}
SPLIT_NAMES: dict[Split, str] = {
    "train": r"(?<![a-z])train",
    "validation": r"(?<![a-z])(dev|valid|val(?![a-z])|trial|testa)",
    "test": r"(?<![a-z])(test|eval)",
}


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The files of a path and how they are read."""

    path: Path
    files: dict[Path, Split | None]  # None: splits are drawn
    format: Format  # auto: the names tell
    delimiter: Delimiter = "auto"
    names: list[str] | None = None  # of columns, where the files have none
    languages: list[str] = field(default_factory=list)  # of parallel text

    @property
    def form(self) -> str:
        """The format of the files."""
        return format_of(next(iter(self.files))) if self.format == "auto" else self.format

    @property
    def is_sampled(self) -> bool:
        return any(self.is_large(file) for file in self.files)

    def is_large(self, file: Path) -> bool:
        return file.is_file() and file.stat().st_size > LARGE_BYTES

    def settings(self) -> Json:
        """Of the source, without its columns."""
        found: Json = {"name": "files", "path": self.path.as_posix()}
        for split in SPLITS:
            named = [
                f.relative_to(self.path).as_posix() for f, s in self.files.items() if s == split
            ]
            if named:
                found[split] = named if len(named) > 1 else named[0]
        if self.format != "auto":
            found["format"] = self.format
        if self.delimiter != "auto":
            found["delimiter"] = self.delimiter
        if self.names is not None:
            found["columns"] = self.names
        return found

    def records(self, file: Path) -> Iterator[Record]:
        form = self.form if self.format != "auto" else format_of(file)
        return read(
            file,
            form,
            columns=self.names,
            unit="paragraph",
            languages=self.languages,
            delimiter=self.delimiter,
        )

    def profiled(self) -> list[Record]:
        """Records of train, or of each file if no split is named: from all over a file, since rows
        are often sorted by their labels; of a large one from its beginning.

        Raises ValueError if there are none.
        """
        files = [file for file, split in self.files.items() if split in ("train", None)]
        found: list[Record] = []
        for file in files:
            most = SAMPLED if self.is_large(file) else None
            there = list(islice(self.records(file), most))
            found += there[:: max(len(there) * len(files) // PROFILED, 1)]
        if not found:
            raise ValueError(f"{files[0]}: the file has no rows")
        return found


def lay_out(path: Path, asked: Asked, notes: Notes) -> Layout:
    """Raises ValueError for what is missing, empty or of no format that is known."""
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder")
    if path.is_dir():
        parallel = _parallel(path, asked, notes)
        if parallel is not None:
            return parallel
        path, files = _of_folder(path, asked, notes)
    else:
        if asked.splits:
            raise ValueError(f"{path}: is a file, but --train, --validation and --test name files")
        files: dict[Path, Split | None] = {path: None}
    for file in files:
        if not file.stat().st_size:
            raise ValueError(f"{file}: the file is empty")
    first = next(iter(files))
    format = _format(list(files), asked, notes)
    form = format_of(first) if format == "auto" else format
    layout = Layout(path=path, files=files, format=format)
    if layout.is_sampled and form == "json":
        raise ValueError(f"{first}: a json file is read as a whole; write it as jsonl first")
    if layout.is_sampled:
        notes.seen.append(f"A large file: of it the first {SAMPLED:,} rows are looked at.")
    if form in TABLES:
        return _table(layout, form, first, asked, notes)
    if form == "conll":
        return replace(layout, names=_words_and_tags(layout, asked))
    return layout


def _format(files: list[Path], asked: Asked, notes: Notes) -> Format:
    """``auto`` if the names tell it."""
    if asked.format != "auto":
        return asked.format
    suffixes = {format_of(file) for file in files}
    if suffixes <= set(FORMATS) - {"txt"}:
        return "auto"
    found: set[Format] = {content_format(file) for file in files}
    if len(found) > 1:
        raise ValueError(f"{files[0].parent}: files of several formats: {', '.join(sorted(found))}")
    (format,) = found
    names = ", ".join(sorted(f".{suffix}" for suffix in suffixes))
    notes.seen.append(f"Read as {format}, by what the {names} files hold. (--format)")
    return format


def _table(layout: Layout, form: str, first: Path, asked: Asked, notes: Notes) -> Layout:
    """The layout of csv and tsv files: what is between columns, and whether a header is there."""
    delimiter = asked.delimiter
    if form == "tsv" and asked.format == "auto" and not layout.is_sampled and is_quoted(first):
        notes.seen.append("Tabs between columns, some of them inside quotation marks. (--format)")
        layout, form, delimiter = replace(layout, format="csv"), "csv", "tab"
    if delimiter == "auto":
        delimiter = delimiter_of(first, form)
        if delimiter != "auto":
            notes.seen.append(f"Columns are separated by a {delimiter}. (--delimiter)")
    names = asked.names
    rows = rows_of(first, form, delimiter)
    refuse_orange(first, rows)
    if names is None and not asked.header:
        why = is_header(rows)
        if why:
            names = [f"column{i}" for i in range(1, len(rows[0]) + 1)]
            notes.seen.append(
                f"No header: {why}. --columns NAME,NAME,... names the columns, --header says that "
                "the first line does."
            )
    return replace(layout, delimiter=delimiter, names=names)


def _words_and_tags(layout: Layout, asked: Asked) -> list[str] | None:
    """Names of the columns of a conll file; None for a word and its tag."""
    if asked.names is not None:
        return asked.names
    first = next(layout.records(next(iter(layout.files))), None)
    if first is None:
        raise ValueError(f"{next(iter(layout.files))}: the file has no sentences")
    columns = list(first.cells.values())
    if len(columns) == 2:
        return ["words", "tags"]
    if len(columns) < 2:
        raise ValueError(f"{next(iter(layout.files))}: one column; words need tags beside them")
    words = 1 if all(each.isdecimal() for each in columns[0]) else 0  # 0 are numbers of words
    names = [f"column{i}" for i in range(1, len(columns) + 1)]
    names[words], names[-1] = "words", "tags"
    return names


# Folders -----------------------------------------------------------------------------------------


def split_of_name(name: str) -> Split | None:
    """The split that a file's name tells."""
    for split, pattern in SPLIT_NAMES.items():
        if re.search(pattern, name.lower()):
            return split
    return None


def _listed(folder: Path) -> list[Path]:
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name[0] != ".")
    return [p for p in files if format_of(p) not in OTHER_FILES]


def _of_folder(folder: Path, asked: Asked, notes: Notes) -> tuple[Path, dict[Path, Split | None]]:
    """The folder and its files with their splits, or its only file."""
    if asked.splits:
        named: dict[Path, Split | None] = {
            folder / name: split for split in SPLITS for name in asked.splits.get(split, [])
        }
        if missing := [file for file in named if not file.is_file()]:
            raise ValueError(f"{missing[0]}: no such file")
        return folder, named
    listed = _listed(folder)
    by_split: dict[Split, list[Path]] = defaultdict(list)
    for file in listed:
        split = split_of_name(file.name)
        if split is not None:
            by_split[split].append(file)
    if by_split["train"]:
        kept = _of_one_format(by_split)
        files: dict[Path, Split | None] = {
            file: split for split in SPLITS for file in kept.get(split, [])
        }
        said = ", ".join(f"{split} is {file.name}" for file, split in files.items())
        notes.seen.append(f"Splits by the names of files: {said}. (--train, --validation, --test)")
        if ignored := [file.name for file in listed if file not in files]:
            notes.seen.append(f"Not read: {', '.join(ignored[:5])}.")
        return folder, files
    data = [file for file in listed if format_of(file) in FORMATS and format_of(file) != "txt"]
    if not data:
        raise ValueError(f"{folder}: {_why_no_data(listed)}")
    if len(data) == 1:
        return data[0], {data[0]: None}
    notes.unclear.append(
        f"No file of {folder} is named train, so {len(data)} files are read as one set, of which "
        "splits are drawn; --train FILE, --validation FILE and --test FILE name them."
    )
    return folder, dict.fromkeys(data, "train")


def _why_no_data(listed: list[Path]) -> str:
    """Of a folder without a file that its name says can be read."""
    said = f"no {'/'.join(FORMATS[1:])} file is in this folder"
    if texts := [file.name for file in listed if format_of(file) == "txt"]:
        said += (
            f"; of its {len(texts)} .txt files one is looked at as DATA=FILE ({texts[0]}); files "
            "of one class each must become one csv file with a column of labels"
        )
    return f"{said}; text without labels is --text FOLDER, beside DATA"


def _of_one_format(by_split: dict[Split, list[Path]]) -> dict[Split, list[Path]]:
    """Without second copies in another format (train.csv beside train.jsonl)."""
    if all(len({format_of(file) for file in files}) < 2 for files in by_split.values()):
        return by_split
    suffixes = {format_of(file) for file in by_split["train"]}
    kept = max(
        sorted(suffixes),
        key=lambda s: sum(any(format_of(f) == s for f in files) for files in by_split.values()),
    )
    return {s: [f for f in files if format_of(f) == kept] for s, files in by_split.items()}


def _parallel(folder: Path, asked: Asked, notes: Notes) -> Layout | None:
    """Files such as train.en and train.de, if the folder has them."""
    endings: dict[str, list[str]] = defaultdict(list)
    for file in _listed(folder):
        ending = format_of(file)
        if re.fullmatch(r"[a-z]{2,3}", ending) and ending not in FORMATS:
            whole = file.relative_to(folder).as_posix().removesuffix(".gz")
            endings[whole.removesuffix(f".{ending}")].append(ending)
    stems = {stem: found for stem, found in endings.items() if len(found) > 1}
    splits: dict[str, Split] = {
        stem: split for stem in stems if (split := split_of_name(Path(stem).name))
    }
    train = [stem for stem, split in splits.items() if split == "train"]
    if not train:
        return None
    found = stems[train[0]]
    wanted = [asked.columns.get(role, [""])[0] for role in ("text", "target")]
    text = wanted[0] or next(each for each in ("en", *found) if each in found)
    target = wanted[1] or next(each for each in found if each != text)
    if missing := [each for each in (text, target) if each not in found]:
        raise ValueError(
            f"{folder}: no file {train[0]}.{missing[0]}; there are: {', '.join(found)}"
        )
    notes.seen.append(f"Parallel text, line by line: {train[0]}.{text} and {train[0]}.{target}.")
    notes.unclear.append(
        f"Written is {target} from {text}; the other way round: --column text={target} --column "
        f"target={text}. Languages: {', '.join(found)}."
    )
    languages = [text, target]
    files: dict[Path, Split | None] = {
        folder / stem: splits[stem] for stem in splits if set(languages) <= set(stems[stem])
    }
    return Layout(path=folder, files=files, format=PARALLEL, languages=languages)
