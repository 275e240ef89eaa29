"""The documentation of installed packages: real English on every machine, without a download."""

import gc
import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from importlib import metadata
from pathlib import Path
from statistics import median_low
from typing import Literal

from filelock import FileLock, Timeout
from tqdm import tqdm

from stages.core import paths
from stages.core.artifacts import Json, read_json, replacing, sha256
from stages.core.code import code_hash
from stages.core.components import Settings, unknown
from stages.sources._docs import Sentence, docstrings, prose, tagged, with_section
from stages.sources._source import Document, Labelled, Source, split_of
from stages.tasks._task import SPLITS, Split, Task

READ = paths.SCRATCH / "installed_docs"  # a cache: the sentences of each package
# Tests, copies of other distributions, and numpy's distutils, which is missing on newer Pythons.
_SKIPPED = {
    *("test", "tests", "testing", "_testing", "conftest", "site-packages", "dist-packages"),
    *("..", "_vendor", "vendor", "_vendored", "third_party", "externals", "extern", "distutils"),
}


class InstalledDocs(Source):
    """Docstrings of installed distributions, read with ``ast`` without importing anything: a
    version of a package has the same ones with every Python and on every machine. The standard
    library, which differs between versions of Python, is left out.

    A document is a source file; its split is a hash of its path within the package. A repeated
    sentence is kept only where it is found first: in test files, then validation, then train.

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
        try:
            self._versions = {package: metadata.version(package) for package in packages}
        except metadata.PackageNotFoundError as error:
            installed = sorted({d.name.lower() for d in metadata.distributions() if d.name})
            faults = unknown(error.name, installed)
            raise ValueError(f"packages: not installed: {faults}") from None

    @classmethod
    def draws_test(cls, settings: Settings) -> bool:
        return True

    def versions(self) -> dict[str, str]:
        return self._versions

    def check(self, kind: Task | None) -> None:
        if kind is not None and self.annotation == "none":
            raise ValueError("annotation: a task needs one of code_spans, sections")

    def documents(self) -> Iterator[Document]:
        kept, seen = defaultdict[str, list[str]](list), set[str]()
        for path in sorted(self._files, key=lambda path: -SPLITS.index(split_of(path))):
            for text in (sentence.text for sentence in self._files[path]):
                if text.lower() not in seen:
                    seen.add(text.lower())
                    kept[path].append(text)
        for path in self._files:
            if path in kept:
                yield Document(path, split_of(path), kept[path])

    def examples(self, kind: Task) -> Iterator[Labelled]:
        """Yields the examples of ``annotation``; ``kind`` decides only which inputs are equal."""
        self.check(kind)
        row_of = tagged if self.annotation == "code_spans" else with_section
        distinct: dict[tuple[Split, str], Labelled] = {}
        for path, of_file in self._files.items():
            split, package = split_of(path), path.split("/")[0]
            for number, row in enumerate(map(row_of, of_file)):
                if row:
                    example = Labelled(f"{path}:{number}", split, row, cluster=package)
                    distinct.setdefault((split, kind.same_input(row)), example)
        examples = distinct.values()
        return iter(examples if self.annotation == "code_spans" else _balanced(examples))

    @cached_property
    def _files(self) -> dict[str, list[Sentence]]:
        """The sentences of each file that has any, by its path within the package's folder; no
        tests and no copies of other packages."""
        files: dict[str, dict[str, Path]] = {}
        for package in self.packages:
            distribution = metadata.distribution(package)
            sources = {
                str(file): Path(str(distribution.locate_file(file)))
                for file in distribution.files or []
                if file.suffix == ".py" and not {*file.with_suffix("").parts} & _SKIPPED
            }
            if not sources:
                raise ValueError(f"packages: {package!r} is installed, but without Python source")
            files[package] = {
                name: sources[name] for name in sorted(sources) if sources[name].exists()
            }
        texts = dict[str, dict[str, list[Sentence]]]()
        READ.mkdir(parents=True, exist_ok=True)
        # Stages that run side by side share the work: the packages that others read come last.
        for wait_s in (0, -1):
            for package in files.keys() - texts.keys():
                with suppress(Timeout), FileLock(READ / f"{package}.lock", timeout=wait_s):
                    texts[package] = _sentences(package, files[package])
        return {name: rows for each in self.packages for name, rows in texts[each].items()}


def _sentences(package: str, files: Mapping[str, Path]) -> dict[str, list[Sentence]]:
    """Returns the sentences of a package's files, which are read once on this machine and again
    when one of them has changed or is read by other code."""
    kept = READ / f"{package}.json"
    names = hashlib.sha256("\n".join(files).encode()).hexdigest()
    identity = [sys.version, names, sha256(*files.values()), code_hash("sources/_docs")]
    known = Json()
    with suppress(OSError, ValueError):  # the file is missing or damaged
        known = read_json(kept)
    if known.get("identity") == identity:
        return {
            name: [Sentence(text, section, [*map(tuple, spans)]) for text, section, spans in rows]
            for name, rows in known["sentences"].items()
        }
    by_file = dict[str, list[Sentence]]()
    gc.disable()  # parsing makes many objects, none in a cycle
    for name, path in tqdm(files.items(), desc=package, unit="file", disable=None):
        texts = docstrings(path.read_bytes())
        if of_file := [sentence for text in texts for sentence in prose(text)]:
            by_file[name] = of_file
    gc.enable()
    with replacing(kept) as partial:
        content = {"identity": identity, "sentences": by_file}
        partial.write_text(json.dumps(content), encoding="utf-8")
    return by_file


def _balanced(examples: Iterable[Labelled]) -> Iterator[Labelled]:
    """Cuts classes to the size of the (lower) median class of their split. A hash of the id decides
    which examples are kept."""
    groups: dict[tuple[int, str], list[Labelled]] = defaultdict(list)
    for example in examples:
        groups[SPLITS.index(example.split), example.row["label"]].append(example)
    for (split, _), group in sorted(groups.items(), key=lambda item: item[0]):
        most = median_low([len(other) for (of, _), other in groups.items() if of == split])
        yield from sorted(group, key=lambda e: hashlib.sha256(e.id.encode()).digest())[:most]
