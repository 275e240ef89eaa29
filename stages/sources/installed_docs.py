"""The documentation of installed packages: real English on every machine, without a download."""

import gc
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from importlib import metadata
from pathlib import Path
from statistics import median_low
from typing import Literal

from tqdm import tqdm

from stages.core.components import Settings, unknown
from stages.sources._docs import Sentence, docstrings, prose, tagged, with_section
from stages.sources._source import Document, Labelled, Source, split_of
from stages.tasks._task import SPLITS, Task

# Tests, copies of other distributions, and numpy's distutils, which is missing on newer Pythons.
_SKIPPED = {
    *("test", "tests", "testing", "_testing", "conftest", "site-packages", "dist-packages"),
    *("..", "_vendor", "vendor", "_vendored", "third_party", "externals", "extern", "distutils"),
}


class InstalledDocs(Source):
    """Docstrings of installed distributions.

    They are read from source files with ``ast``; nothing is imported. So a version of a package
    has the same docstrings with every Python and on every machine. The standard library
    is left out, because it differs between versions of Python. A document is a source file; its
    split is a hash of its path within the package, so it does not depend on the other packages. A
    repeated sentence is kept only where it is found first; test files are searched first, then
    validation files, then train files.

    ``annotation`` decides what becomes a labelled example. ``code_spans``: a sentence's words with
    BIO tags of one type, CODE, for those in code markup. ``sections``: a sentence of at least five
    words, labelled with its section of the docstring, if the docstring has sections of parameters,
    results or errors; classes larger than the (lower) median class of their split are cut to the
    median size. A repeated input is kept once in each split.

    ``path`` is the lock file that decides which versions are installed. Raises ValueError for a
    package that is not installed.
    """

    def __init__(
        self,
        *,
        path: str,
        packages: list[str],
        annotation: Literal["none", "code_spans", "sections"] = "none",
    ) -> None:
        if not Path(path).exists():
            raise ValueError(f"path: no such file or folder: {path}")
        if repeated := [package for package in packages if packages.count(package) > 1]:
            raise ValueError(f"packages: {repeated[0]!r} is listed twice")
        self.packages, self.annotation = packages, annotation
        self._versions = {package: _version(package) for package in packages}

    @classmethod
    def draws_test(cls, settings: Settings) -> bool:
        return True

    def versions(self) -> dict[str, str]:
        return self._versions

    def check(self, kind: Task | None) -> None:
        if kind is not None and self.annotation == "none":
            raise ValueError("annotation: a task needs one of code_spans, sections")

    def documents(self) -> Iterator[Document]:
        kept, seen = dict[str, list[str]](), set[str]()
        for path in sorted(self._files, key=lambda path: -SPLITS.index(split_of(path))):
            texts = (sentence.text for sentence in self._files[path])
            kept[path] = [text for text in texts if _is_new(text.lower(), seen)]
        for path in self._files:
            if kept[path]:
                yield Document(path, split_of(path), kept[path])

    def examples(self, kind: Task) -> Iterator[Labelled]:
        """Yields the examples of ``annotation``; ``kind`` decides only which inputs are equal."""
        self.check(kind)
        row_of = tagged if self.annotation == "code_spans" else with_section
        seen: set[str] = set()
        distinct: list[Labelled] = []
        for path, of_file in self._files.items():
            split = split_of(path)
            for number, row in enumerate(map(row_of, of_file)):
                if row and _is_new(f"{split} {kind.same_input(row)}", seen):
                    name = f"{path}:{number}"
                    distinct.append(Labelled(name, split, row, cluster=path.split("/")[0]))
        return iter(distinct if self.annotation == "code_spans" else _balanced(distinct))

    @cached_property
    def _files(self) -> dict[str, list[Sentence]]:
        """The sentences of each file that has any, by its path within the package's folder; no
        tests and no copies of other packages."""
        paths: dict[str, Path] = {}
        for package in self.packages:
            distribution = metadata.distribution(package)
            files = {
                str(file): Path(str(distribution.locate_file(file)))
                for file in distribution.files or []
                if file.suffix == ".py" and not {*file.with_suffix("").parts} & _SKIPPED
            }
            if not files:
                raise ValueError(f"packages: {package!r} is installed, but without Python source")
            paths |= {name: files[name] for name in sorted(files) if files[name].exists()}
        by_file: dict[str, list[Sentence]] = {}
        gc.disable()  # parsing makes many objects, none in a cycle
        for name, path in tqdm(paths.items(), desc="documentation", unit="file", disable=None):
            texts = docstrings(path.read_bytes())
            by_file[name] = [sentence for text in texts for sentence in prose(text)]
        gc.enable()
        return {name: of_file for name, of_file in by_file.items() if of_file}


def _is_new(key: str, seen: set[str]) -> bool:
    return not (key in seen or seen.add(key))


def _balanced(examples: Iterable[Labelled]) -> Iterator[Labelled]:
    """Cuts classes to the size of the (lower) median class of their split. A hash of the id decides
    which examples are kept."""
    groups: dict[tuple[int, str], list[Labelled]] = defaultdict(list)
    for example in examples:
        groups[SPLITS.index(example.split), example.row["label"]].append(example)
    for (split, _), group in sorted(groups.items(), key=lambda item: item[0]):
        most = median_low([len(other) for (of, _), other in groups.items() if of == split])
        yield from sorted(group, key=lambda e: hashlib.sha256(e.id.encode()).digest())[:most]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        installed = sorted({d.name.lower() for d in metadata.distributions() if d.name})
        raise ValueError(f"packages: not installed: {unknown(package, installed)}") from None
