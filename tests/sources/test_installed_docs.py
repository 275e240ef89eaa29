"""Installed documentation is read without being imported, and is always the same."""

import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from stages.core.study_file import load
from stages.sources._source import SOURCES, Labelled, split_of
from stages.sources.installed_docs import InstalledDocs
from stages.tasks._task import TASKS
from tests.installed_package import install, module
from tests.smoke import ROOT

pytestmark = pytest.mark.slow

Installer = Callable[..., None]
CLASSIFICATION = TASKS["classification"]


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


def test_documents_keep_their_split_when_files_are_added_and_are_not_of_tests(shelf) -> None:
    shelf(rooms(20))
    few = {d.id: d.split for d in source().documents()}
    more = {f"shelf/a_{i}.py": module("maps", i) for i in range(9)}
    copies = {f"shelf/{name}/a.py": module(name, 1) for name in ("tests", "_vendor", "externals")}
    shelf(rooms(20) | more | copies)
    many = {d.id: d.split for d in source().documents()}
    assert few.keys() == {*rooms(20)} and many.keys() == {*rooms(20), *more}
    assert few.items() <= many.items()


def test_documents_have_a_sentence_once_and_rather_in_test(shelf: Installer) -> None:
    same = dict.fromkeys(rooms(60), module("books", 0))
    assert {split_of(file) for file in same} == {"train", "validation", "test"}
    shelf(same)
    documents = list(source().documents())
    counts = Counter(s for d in documents for s in d.sentences)
    assert set(counts.values()) == {1}
    assert [d.split for d in documents] == ["test"]


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


def test_examples_of_code_spans_have_bio_tags_and_clusters(shelf: Installer) -> None:
    shelf(rooms(20))
    shelf({"desk/a.py": module("pens", 77)}, name="desk")
    packages = source(annotation="code_spans", packages=["shelf", "desk"])
    examples = [*packages.examples(TASKS["tagging"])]
    assert {tag for e in examples for tag in e.row["tags"]} == {"B-CODE", "O"}
    assert {e.cluster for e in examples} == {"shelf", "desk"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"packages": ["numpyy"]}, "all.source: packages: not installed: unknown 'numpyy'; did yo"),
        ({"packages": ["numpy", "numpy"]}, "packages: 'numpy' is listed twice"),
        ({"path": "nowhere.lock"}, "path: no such file or folder: nowhere.lock"),
        ({}, "annotation: a task needs one of code_spans, "),
        ({"packages": ["shelf"], "annotation": "sections"}, "'shelf' is installed, but without"),
    ],
)
def test_installed_docs_name_settings_that_are_wrong(
    settings: dict, message: str, shelf: Installer
) -> None:
    shelf({"shelf/data.txt": "no source"})
    with pytest.raises(ValueError) as error:
        list(source(**{"packages": ["numpy"], **settings}).examples(CLASSIFICATION))
    assert message in str(error.value)


def test_packages_of_every_study_have_one_version_in_the_lock() -> None:
    """Every machine and every Python then has the same documentation."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pinned = [line.partition("==")[0] for line in lines if "==" in line]
    for path in [ROOT / "params.yaml", *(ROOT / "studies").glob("*.yaml")]:
        study = load(path)
        entries = [*study.corpora.values(), *study.tasks.values()]
        for package in {p for entry in entries for p in entry.source.get("packages", [])}:
            assert pinned.count(package.replace("_", "-")) == 1, (path.name, package)
