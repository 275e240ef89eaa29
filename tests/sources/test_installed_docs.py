"""Installed documentation is read without being imported, and is always the same."""

import itertools
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, cast

import pytest

from stages.core.study_file import load
from stages.kinds._kind import KINDS
from stages.sources import installed_docs
from stages.sources._source import SOURCES, Labelled, split_of
from stages.sources.installed_docs import InstalledDocs
from tests.installed_package import install, module
from tests.smoke import ROOT

pytestmark = pytest.mark.slow

Installer = Callable[..., None]
CLASSIFICATION = KINDS["classification"]


def rooms(number: int, topic: str = "books") -> dict[str, str]:
    return {f"shelf/room_{i}.py": module(topic, i) for i in range(number)}


@pytest.fixture
def shelf(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Installer:
    """Installs files as the package ``shelf``."""
    return partial(install, folder / "site", monkeypatch)


def source(**settings: Any) -> InstalledDocs:
    settings = {"path": "requirements.lock", "packages": ["shelf"], **settings}
    entry = {"name": "installed_docs", **settings}
    return cast(InstalledDocs, SOURCES.build(entry, where="corpora.all.source"))


def annotated(annotation: str, **settings: Any) -> list[Labelled]:
    return list(source(annotation=annotation, **settings).examples(CLASSIFICATION))


def test_installed_docs_import_nothing(shelf: Installer) -> None:
    shelf(rooms(20))  # importing them would end this process
    before = set(sys.modules)
    assert list(source().documents()) and annotated("sections")
    assert not {name for name in set(sys.modules) - before if name.startswith("shelf")}


def test_documents_are_the_prose_of_files(shelf: Installer) -> None:
    shelf({"shelf/room_3.py": module("books", 3)})
    assert source().versions() == {"shelf": "1.2"}
    (document,) = source().documents()
    assert document.id == "shelf/room_3.py"
    assert document.split == split_of("shelf/room_3.py")
    assert document.sentences == [
        "Keep the books of shelf 3 in order, whatever a reader takes away.",
        "Sort the books on shelf 3 by their titles.",
        "A call of order_3 leaves the books of room 3 where they are.",
        "A list of strings, the titles of the books in room 3.",
        "Whether the last title of room 3 comes first.",
        "How many of the books are kept in room 3 at most.",
        "The titles of the books in the order of room 3.",
        "If room 3 has no books that could be sorted.",
        "The sort of the books in room 3 is stable.",
    ]


def test_documents_keep_their_split_when_files_are_added(shelf: Installer) -> None:
    shelf(rooms(20))
    few = {d.id: d.split for d in source().documents()}
    shelf(rooms(20) | {f"shelf/a_{i}.py": module("maps", i) for i in range(9)})
    many = {d.id: d.split for d in source().documents()}
    assert len(few) == 20 and len(many) == 29
    assert few.items() <= many.items()


def test_documents_have_a_sentence_once_and_rather_in_test(shelf: Installer) -> None:
    same = dict.fromkeys(rooms(60), module("books", 0))
    assert {split_of(file) for file in same} == {"train", "validation", "test"}
    shelf(same)
    documents = list(source().documents())
    counts = Counter(s for d in documents for s in d.sentences)
    assert set(counts.values()) == {1}
    assert [d.split for d in documents] == ["test"]


def test_documents_are_not_of_tests_copies_and_generated_files(shelf: Installer) -> None:
    skipped = {f"shelf/{name}/a.py": module(name, 1) for name in ("tests", "_vendor", "externals")}
    generated = "# This file was automatically generated from b.py.\n" + module("maps", 2)
    shelf(rooms(20) | skipped | {"shelf/generated.py": generated})
    assert {d.id for d in source().documents()} == set(rooms(20))


def test_documents_are_the_same_whether_a_pool_parses_them_or_not(
    shelf: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf(rooms(120))
    pooled = list(source().documents())
    (stored,) = installed_docs.PARSED.iterdir()
    content = stored.read_bytes()
    stored.unlink()
    monkeypatch.setattr(installed_docs, "_FEW", 1000)
    assert list(source().documents()) == pooled
    assert stored.read_bytes() == content
    assert [json.loads(line)[0] for line in content.splitlines()] == sorted(rooms(120))


def test_documents_are_stored_until_a_file_changes(
    shelf: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf(rooms(20))
    first = list(source().documents())
    monkeypatch.setattr(installed_docs, "docstrings", None)  # parsing would fail
    assert list(source().documents()) == first
    shelf(rooms(20) | {"shelf/room_0.py": module("books", 0) + "\n"})
    with pytest.raises(TypeError):
        list(source().documents())


def test_reading_s_is_the_time_to_parse_what_is_not_stored(
    shelf: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time per byte is estimated from a sample of files. A package counts once, and a stored
    package not at all."""
    shelf(rooms(80))
    ticks = itertools.count(step=0.25)
    monkeypatch.setattr(installed_docs.time, "perf_counter", lambda: next(ticks))
    read: set[str] = set()
    sizes = [len(text.encode()) for text in rooms(80).values()]
    about = 0.25 * len(sizes)  # a file takes a quarter of a second, and all are about as large
    assert source().reading_s(read) == pytest.approx(about, rel=max(sizes) / min(sizes) - 1)
    assert len(read) == 1 and source().reading_s(read) == 0
    list(source().documents())
    assert source().reading_s(set()) == 0


def test_examples_of_a_class_are_as_many_as_the_median_and_no_input_comes_twice(
    shelf: Installer,
) -> None:
    shelf(rooms(90))
    examples = annotated("sections")
    counts = Counter(e.row["label"] for e in examples if e.split == "train")
    assert set(counts) == {"summary", "body", "params", "returns", "raises", "notes"}
    assert max(counts.values()) == counts["returns"]  # params has three times as many
    inputs = {(e.split, CLASSIFICATION.same_input(e.row)) for e in examples}
    assert len(inputs) == len(examples)


@pytest.mark.parametrize(
    ("annotation", "labels"),
    [
        ("code_spans", {"B-CODE", "O"}),
        ("parameter_types", {"bool", "int", "list"}),
        ("libraries", {"shelf", "desk"}),
    ],
)
def test_examples_have_the_labels_of_their_annotation(
    annotation: str, labels: set[str], shelf: Installer
) -> None:
    shelf(rooms(20))
    shelf({"desk/a.py": module("pens", 1)}, name="desk")
    rows = [e.row for e in annotated(annotation, packages=["shelf", "desk"])]
    assert {label for row in rows for label in row.get("tags", [row.get("label")])} == labels


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"packages": ["numpyy"]}, "all.source: packages: not installed: unknown 'numpyy'; did yo"),
        ({"packages": ["numpy", "numpy"]}, "packages: 'numpy' is listed twice"),
        ({"path": "nowhere.lock"}, "path: no such file or folder: nowhere.lock"),
        ({"path": "/dev/zero"}, "path: /dev/zero must be a regular file"),
        ({"annotation": "colours"}, "corpora.all.source.annotation: "),
        ({"package": ["numpy"]}, "did you mean 'packages'?"),
    ],
)
def test_installed_docs_name_settings_that_are_wrong(settings: dict, message: str) -> None:
    with pytest.raises(ValueError) as error:
        source(**{"packages": ["numpy"], **settings})
    assert message in str(error.value)


def test_installed_docs_refuse_a_task_without_annotation() -> None:
    with pytest.raises(ValueError, match="annotation: a task needs one of code_spans, "):
        source(packages=["numpy"]).check(KINDS["tagging"])


def test_installed_docs_refuse_a_package_without_source(shelf: Installer) -> None:
    shelf({"shelf/data.txt": "no source"})
    with pytest.raises(ValueError, match="packages: 'shelf' is installed, but without Python"):
        list(source().documents())


def test_packages_of_every_study_have_one_version_in_the_lock() -> None:
    """Every machine and every Python then has the same documentation."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pinned = [line.partition("==")[0] for line in lines if "==" in line]
    for path in [ROOT / "params.yaml", *(ROOT / "studies").glob("*.yaml")]:
        study = load(path)
        entries = [*study.corpora.values(), *study.tasks.values()]
        for package in {p for entry in entries for p in entry.source.get("packages", [])}:
            assert pinned.count(package.replace("_", "-")) == 1, (path.name, package)


def test_documents_are_parsed_once_by_stages_that_need_them_at_once(
    shelf: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second stage starts while the first parses, and reads the first one's file."""
    shelf(rooms(3))
    parsed, parse = list[list[Path]](), installed_docs._parse
    others = list[Thread]()

    def slowly(missing: dict[Path, list[installed_docs.Where]]) -> None:
        parsed.append([*missing])
        if not others:
            others.append(Thread(target=lambda: [*source().documents()]))
            others[0].start()
            time.sleep(0.5)
        parse(missing)

    monkeypatch.setattr(installed_docs, "_parse", slowly)
    assert [*source().documents()]
    others[0].join()
    assert len(parsed[0]) == 1 and parsed[1:] == [[]]
