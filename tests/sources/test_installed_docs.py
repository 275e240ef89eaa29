"""Installed documentation is read without being imported, and is always the same."""

import itertools
import json
import sys
from collections import Counter
from pathlib import Path
from typing import cast

import pytest
import yaml

from stages.kinds._kind import KINDS
from stages.sources import installed_docs
from stages.sources._source import SOURCES, split_of
from stages.sources.installed_docs import InstalledDocs
from tests.installed_package import install, module
from tests.smoke import ROOT

pytestmark = pytest.mark.slow

FILES = {f"shelf/room_{i}.py": module("books", i) for i in range(20)}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("requirements.lock").touch()
    return tmp_path / "site"


def source(**settings) -> InstalledDocs:
    settings = {"path": "requirements.lock", "packages": ["shelf"], **settings}
    return cast(
        InstalledDocs,
        SOURCES.build({"name": "installed_docs", **settings}, where="corpora.all.source"),
    )


def test_nothing_is_imported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(folder, monkeypatch, FILES)  # importing them would end this process
    before = set(sys.modules)
    assert list(source().documents()) and list(
        source(annotation="sections").examples(KINDS["classification"])
    )
    assert not {name for name in set(sys.modules) - before if name.startswith("shelf")}


def test_a_document_is_the_prose_of_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(folder, monkeypatch, {"shelf/room_3.py": module("books", 3)})
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


def test_other_files_move_no_split(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(folder, monkeypatch, FILES)
    few = {d.id: d.split for d in source().documents()}
    install(folder, monkeypatch, FILES | {f"shelf/a_{i}.py": module("maps", i) for i in range(9)})
    many = {d.id: d.split for d in source().documents()}
    assert len(few) == 20 and len(many) == 29
    assert few.items() <= many.items()


def test_a_sentence_occurs_once_and_rather_in_test(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = dict.fromkeys((f"shelf/room_{i}.py" for i in range(60)), module("books", 0))
    assert {split_of(file) for file in same} == {"train", "validation", "test"}
    install(folder, monkeypatch, same)
    documents = list(source().documents())
    counts = Counter(s for d in documents for s in d.sentences)
    assert set(counts.values()) == {1}
    assert [d.split for d in documents] == ["test"]


def test_tests_and_copies_of_other_packages_are_skipped(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skipped = {f"shelf/{name}/a.py": module(name, 1) for name in ("tests", "_vendor", "externals")}
    generated = "# This file was automatically generated from b.py.\n" + module("maps", 2)
    install(folder, monkeypatch, {**FILES, **skipped, "shelf/generated.py": generated})
    assert {d.id for d in source().documents()} == set(FILES)


def test_the_pool_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = {f"shelf/room_{i}.py": module("books", i) for i in range(120)}
    install(folder, monkeypatch, many)
    pooled = list(source().documents())
    (stored,) = installed_docs.PARSED.iterdir()
    content = stored.read_bytes()
    stored.unlink()
    monkeypatch.setattr(installed_docs, "_FEW", 1000)
    assert list(source().documents()) == pooled
    assert stored.read_bytes() == content
    assert [json.loads(line)[0] for line in content.splitlines()] == sorted(many)


def test_what_is_kept_is_read_and_not_parsed_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(folder, monkeypatch, FILES)
    first = list(source().documents())
    monkeypatch.setattr(installed_docs, "docstrings", None)  # parsing would fail
    assert list(source().documents()) == first
    install(folder, monkeypatch, {**FILES, "shelf/room_0.py": module("books", 0) + "\n"})
    with pytest.raises(TypeError):
        list(source().documents())


def test_it_says_how_long_it_takes_to_parse_what_is_not_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time per byte is that of a sample of files, by size; each package counts once, and not
    again once it is stored."""
    many = {f"shelf/room_{i}.py": module("books", i) for i in range(80)}
    install(folder, monkeypatch, many)
    ticks = itertools.count(step=0.25)
    monkeypatch.setattr(installed_docs.time, "perf_counter", lambda: next(ticks))
    read: set[str] = set()
    sizes = [len(text.encode()) for text in many.values()]
    about = 0.25 * len(sizes)  # a file takes a quarter of a second, and all are about as large
    assert source().reading_s(read) == pytest.approx(about, rel=max(sizes) / min(sizes) - 1)
    assert len(read) == 1 and source().reading_s(read) == 0
    list(source().documents())
    assert source().reading_s(set()) == 0


def test_classes_are_cut_to_the_median(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(folder, monkeypatch, {f"shelf/room_{i}.py": module("books", i) for i in range(90)})
    examples = list(source(annotation="sections").examples(KINDS["classification"]))
    counts = Counter(e.row["label"] for e in examples if e.split == "train")
    assert set(counts) == {"summary", "body", "params", "returns", "raises", "notes"}
    assert max(counts.values()) == counts["returns"]  # params has three times as many
    assert len({(e.split, KINDS["classification"].same_input(e.row)) for e in examples}) == len(
        examples
    )


def test_examples_of_every_annotation(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(folder, monkeypatch, FILES)
    install(folder, monkeypatch, {"desk/a.py": module("pens", 1)}, name="desk")
    labels = {
        annotation: {
            label
            for e in source(annotation=annotation, packages=["shelf", "desk"]).examples(
                KINDS["classification"]
            )
            for label in e.row.get("tags", [e.row.get("label")])
        }
        for annotation in ("code_spans", "parameter_types", "libraries")
    }
    assert labels == {
        "code_spans": {"B-CODE", "O"},
        "parameter_types": {"bool", "int", "list"},
        "libraries": {"shelf", "desk"},
    }


def test_the_version_is_the_installed_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(folder, monkeypatch, FILES)
    assert source(packages=["shelf"]).versions() == {"shelf": "1.2"}


def test_source_files_of_a_package_are_sorted_and_without_its_tests() -> None:
    names = [name for name, _ in installed_docs._source_files("networkx")]
    assert "networkx/classes/graph.py" in names
    assert names == sorted(names)
    assert not any("tests" in name.split("/") for name in names)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"packages": ["numpyy"]},
            "corpora.all.source: packages: not installed: unknown 'numpyy';",
        ),
        ({"packages": ["numpyy"]}, "did you mean 'numpy'?"),
        ({"packages": ["numpy", "numpy"]}, "packages: 'numpy' is listed twice"),
        ({"path": "nowhere.lock"}, "path: no such file or folder: nowhere.lock"),
        ({"annotation": "colours"}, "corpora.all.source.annotation: "),
        ({"package": ["numpy"]}, "did you mean 'packages'?"),
    ],
)
def test_mistakes_are_named(settings: dict, message: str) -> None:
    with pytest.raises(ValueError) as error:
        source(**{"packages": ["numpy"], **settings})
    assert message in str(error.value)


def test_a_task_needs_an_annotation() -> None:
    with pytest.raises(ValueError, match="annotation: a task needs one of code_spans, "):
        source(packages=["numpy"]).check(KINDS["tagging"])


def test_a_package_without_source_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(folder, monkeypatch, {"shelf/data.txt": "no source"})
    with pytest.raises(ValueError, match="packages: 'shelf' is installed, but without Python"):
        list(source().documents())


def test_packages_of_every_study_have_one_version_in_the_lock() -> None:
    """Every machine and every Python then has the same documentation."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pinned = [line.partition("==")[0] for line in lines if "==" in line]
    for path in [ROOT / "params.yaml", *(ROOT / "studies").glob("*.yaml")]:
        params = yaml.safe_load(path.read_text())
        sources = [e["source"] for kind in ("corpora", "tasks") for e in params[kind].values()]
        for package in {p for source in sources for p in source.get("packages", [])}:
            assert pinned.count(package.replace("_", "-")) == 1, (path.name, package)
