"""The documentation of installed packages: real English on every machine, without a download."""

import gc
import hashlib
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path, PurePosixPath
from typing import Literal, TypeVar

import numpy as np
from filelock import FileLock, Timeout
from tqdm import tqdm

from stages.core import paths
from stages.core.artifacts import refuse_endless
from stages.core.code import syntax_hash
from stages.core.components import Settings, unknown
from stages.kinds._kind import SPLITS, Kind
from stages.sources import _docstrings, _prose, _sentences
from stages.sources._annotations import ANNOTATIONS, File
from stages.sources._docstrings import docstrings
from stages.sources._prose import Parameter, Prose, Sentence, prose
from stages.sources._source import Document, Labelled, Source, split_of

PARSERS = (_docstrings, _prose, _sentences)
PARSED = paths.SCRATCH / "installed_docs"
# Tests, copies of other distributions, and numpy's distutils, which is missing on newer Pythons.
_SKIPPED = {
    *("test", "tests", "testing", "_testing", "conftest", "site-packages", "dist-packages"),
    *("_vendor", "vendor", "_vendored", "third_party", "externals", "extern", "distutils"),
}
_GENERATED = b"file was automatically generated"  # marks a copy of another file of the package
_SAMPLED = 60  # files that are timed to estimate the time for all
_LONGEST_S = 300.0  # longest wait for another stage that parses
_FEW = 100  # so few files are parsed faster than processes start
_WORKERS = 2 if (count := os.cpu_count()) is None else min(8, count)
T = TypeVar("T")
Where = tuple[str, str]  # path relative to the package's folder, path on this machine


class InstalledDocs(Source):
    """Docstrings of installed distributions.

    They are read from source files with ``ast``; nothing is imported. So a version of a package
    has the same docstrings with every Python and on every machine. The standard library
    is left out, because it differs between versions of Python. A document is a source file; its
    split is a hash of its path within the package, so it does not depend on the other packages. A
    repeated sentence is kept only where it is found first; test files are searched first, then
    validation files, then train files.

    ``annotation`` decides what becomes a labelled example; see ``_annotations.py``. A repeated
    input is kept once in each split; classes larger than the (lower) median class of their split
    are cut to the median size.

    ``path`` is the lock file that decides which versions are installed. Raises ValueError for a
    package that is not installed.
    """

    def __init__(
        self,
        *,
        path: str,
        packages: list[str],
        annotation: Literal[
            "none", "code_spans", "parameter_types", "sections", "libraries"
        ] = "none",
    ) -> None:
        if not Path(path).exists():
            raise ValueError(f"path: no such file or folder: {path}")
        refuse_endless(Path(path))
        for package in packages:
            if packages.count(package) > 1:
                raise ValueError(f"packages: {package!r} is listed twice")
        self.packages, self.annotation = packages, annotation
        self._versions = {package: _version(package) for package in packages}

    @classmethod
    def draws_test(cls, settings: Settings) -> bool:
        return True

    def versions(self) -> dict[str, str]:
        return self._versions

    def check(self, kind: Kind | None) -> None:
        if kind is not None and self.annotation == "none":
            raise ValueError(f"annotation: a task needs one of {', '.join(ANNOTATIONS)}")

    def documents(self) -> Iterator[Document]:
        files = self._files()
        sentences_by_file: dict[str, list[str]] = {}
        seen: set[str] = set()
        for split in reversed(SPLITS):
            for file in files:
                if split_of(file.path) == split:
                    sentences_by_file[file.path] = [
                        s.text
                        for doc in file.docs
                        for s in doc.sentences
                        if _is_new(s.text.lower(), seen)
                    ]
        for file in files:
            if sentences := sentences_by_file[file.path]:
                yield Document(file.path, split_of(file.path), sentences)

    def examples(self, kind: Kind) -> Iterator[Labelled]:
        """Returns the examples of ``annotation``; ``kind`` decides only which inputs are equal."""
        self.check(kind)
        annotated = ANNOTATIONS[self.annotation](self._files(), self.packages)
        examples = [
            Labelled(key, split_of(key.rsplit(":", 1)[0]), row, original)
            for key, row, original in annotated
        ]
        seen: set[tuple[str, str]] = set()
        distinct = [e for e in examples if _is_new((e.split, kind.same_input(e.row)), seen)]
        return iter(distinct if self.annotation == "code_spans" else _balanced(distinct))

    def reading_s(self, read: set[str]) -> float:
        """Estimates the seconds by parsing some of the files, drawn with probabilities in
        proportion to their sizes."""
        files = []
        for package in self.packages:
            path, package_files = _kept(package, self._versions[package])
            if not path.exists() and path.name not in read:
                read.add(path.name)
                files += package_files
        sizes = np.cumsum([os.path.getsize(path) for _, path in files])
        if not files or not sizes[-1]:
            return 0.0
        places = (np.arange(_SAMPLED) + 0.5) * sizes[-1] / _SAMPLED
        paces = []
        with _without_collection():
            for number in np.searchsorted(sizes, places, side="right"):
                began = time.perf_counter()
                if line := _parse_file(files[number]):
                    _file_of(line, "")
                paces.append((time.perf_counter() - began) / os.path.getsize(files[number][1]))
        at_once = _WORKERS if len(files) > _FEW else 1
        return float(np.mean(paces) * sizes[-1]) / at_once

    def _files(self) -> list[File]:
        stored = {package: _kept(package, self._versions[package]) for package in self.packages}
        if not all(path.exists() for path, _ in stored.values()):
            with _one_at_a_time():
                _parse({path: files for path, files in stored.values() if not path.exists()})
        docs: list[File] = []
        for package, (path, _) in stored.items():
            with path.open(encoding="utf-8") as lines, _without_collection():
                docs += [_file_of(line, package) for line in lines]
        return docs


def _is_new(key: T, seen: set[T]) -> bool:
    return not (key in seen or seen.add(key))


def _balanced(examples: Iterable[Labelled]) -> Iterator[Labelled]:
    """Cuts classes to the size of the (lower) median class of their split. A hash of the id decides
    which examples are kept."""
    groups: dict[tuple[str, str], list[Labelled]] = defaultdict(list)
    for example in examples:
        groups[example.split, example.row["label"]].append(example)
    for split in SPLITS:
        classes = [group for (where, _), group in sorted(groups.items()) if where == split]
        cap = sorted(map(len, classes))[(len(classes) - 1) // 2] if classes else 0
        for group in classes:
            yield from sorted(group, key=lambda e: _hash(e.id))[:cap]


def _hash(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part.encode() if isinstance(part, str) else part).digest())
    return digest.hexdigest()


# Files of packages ---------------------------------------------------------------------------


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        installed = sorted({d.name.lower() for d in metadata.distributions() if d.name})
        raise ValueError(f"packages: not installed: {unknown(package, installed)}") from None


def _source_files(package: str) -> list[Where]:
    """Returns the Python files of a package, sorted, without tests and copies of other packages."""
    distribution = metadata.distribution(package)
    python_files = [
        (str(file), str(distribution.locate_file(file)))
        for file in distribution.files or []
        if file.suffix == ".py" and ".." not in file.parts
    ]
    return sorted(
        (name, path)
        for name, path in python_files
        if not _SKIPPED & set(PurePosixPath(name).with_suffix("").parts) and os.path.exists(path)
    )


# Parsing, once for each version of a package -------------------------------------------------


def _kept(package: str, version: str) -> tuple[Path, list[Where]]:
    """Returns the file in which the prose of a package is stored, and the files that it is read
    from.

    The stored file's name has a hash of everything that its content depends on, so the next stage
    that reads the package only loads the file. The folder can be deleted at any time.
    """
    files = _source_files(package)
    if not files:
        raise ValueError(f"packages: {package!r} is installed, but without Python source")
    inputs = json.dumps([[name, os.path.getsize(path)] for name, path in files])
    code = [syntax_hash(Path(str(module.__file__)).read_bytes()) for module in PARSERS]
    name = f"{package}-{version}-{_hash(inputs, *code)[:16]}.jsonl"
    return PARSED / name, files


@contextmanager
def _without_collection() -> Iterator[None]:
    """Switches garbage collection off. Parsing makes many objects, none in a cycle, and looking for
    cycles would take most of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _file_of(line: str, package: str) -> File:
    name, docs = json.loads(line)
    proses = [
        Prose([Sentence(*s) for s in sentences], [Parameter(*p) for p in parameters])
        for sentences, parameters in docs
    ]
    return File(name, package, proses)


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Waits while another stage parses on all cores, so that its results can be read instead. After
    ``_LONGEST_S`` both stages parse, which is harmless: they write the same content."""
    PARSED.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(PARSED.with_suffix(".lock"))
    try:
        with suppress(Timeout):
            lock.acquire(timeout=_LONGEST_S)
        yield
    finally:
        lock.release()


def _parse(missing: dict[Path, list[Where]]) -> None:
    """Writes the prose of packages: a line of JSON for each file that has any, in order."""
    total = sum(map(len, missing.values()))
    progress = tqdm(desc="documentation", total=total, unit="file", disable=None)
    with ExitStack() as stack:
        stack.enter_context(progress)
        run: Callable[..., Iterable[str]] = map
        if total > _FEW:  # worth starting processes; no fork: numpy's threads do not survive it
            context = get_context("spawn")
            pool = ProcessPoolExecutor(_WORKERS, mp_context=context, initializer=gc.disable)
            run = partial(stack.enter_context(pool).map, chunksize=16)
        # All packages are parsed at the same time.
        rows = [run(_parse_file, files) for files in missing.values()]
        for path, parsed in zip(missing, rows, strict=True):
            lines = []
            for line in parsed:
                progress.update()
                lines += [line] if line else []
            _write_once(path, lines)


def _parse_file(where: Where) -> str:
    name, path = where
    source = Path(path).read_bytes()
    if _GENERATED in source[:1000]:
        return ""
    docs = [doc for doc in map(prose, docstrings(source)) if any(doc)]
    return json.dumps([name, docs], ensure_ascii=False) if docs else ""


def _write_once(path: Path, lines: list[str]) -> None:
    """Writes a file under a unique temporary name and renames it, since other stages may write the
    same content at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
