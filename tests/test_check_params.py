"""params.yaml is refused as a whole before anything runs, whatever is wrong with it."""

import copy
import datetime
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stages import check_params
from stages.core.params import load, typed
from stages.matching.budget import plans
from stages.text.packaged import PACKAGED
from tests.project import write_environment
from tests.smoke import STUDIES, faults_of, smoke_with

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def in_project(monkeypatch) -> Iterator[None]:
    monkeypatch.chdir(ROOT)  # a source's path is relative to the project
    yield


@pytest.mark.slow
@pytest.mark.parametrize("path", STUDIES, ids=lambda p: p.name)
def test_the_studies_that_are_shipped_have_no_fault(path, monkeypatch) -> None:
    if "../shared/datasets" in path.read_text() and not (ROOT / "../shared/datasets").is_dir():
        pytest.skip("the published datasets are not beside the repository")
    monkeypatch.chdir(ROOT)
    params = load(path)
    named = {run.model.get("path"): key for key, run in params.pretrain.items()}
    for packaged in PACKAGED:  # fetched only for those who ask for it
        if str(packaged.folder) in named and not packaged.folder.exists():
            (fault,) = faults_of(params)
            assert "EXTRA=published" in fault.message
            return
    assert faults_of(params) == []


# Any mistake is refused with its path, and none ends in another exception.

KEYS = (1, None, True, 1.5, datetime.date(2020, 1, 1), (1, 2), "", "misspelt", "size")
VALUES = (
    *("", "x", "none", "all", "hub", "\n", 0, -1, 3, 10**9, 10**30, 1.5, float("nan"), True, None),
    *([], [1], ["a"], [[1]], {}, {"name": "x"}, {"name": ["mlm"]}, {"name": 3}, {1: 2}),
    datetime.date(2020, 1, 1),
)


def places(node: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything below a node."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield (*above, key)
        if isinstance(value, dict | list):
            yield from places(value, (*above, key))


def mutated(raw: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The study with one thing removed, renamed, given another value or that of another place."""
    every = list(places(raw))

    def node_at(path: list[Any]) -> Any:
        node: Any = raw
        for part in path:
            node = node[part]
        return node

    *above, key = rng.choice(every)
    node = node_at(above)
    change = rng.choice(("remove", "rename", "move", "value", "value", "value"))
    if change == "remove":
        del node[key]
    elif change == "rename" and isinstance(node, dict):
        node[rng.choice(KEYS)] = node.pop(key)
    elif change == "move":
        node[key] = copy.deepcopy(node_at(list(rng.choice(every))))
    else:
        node[key] = copy.deepcopy(rng.choice(VALUES))
    return raw


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_mutated_study_is_valid_or_refused_with_the_path_of_each_fault(seed: int) -> None:
    rng = random.Random(seed)
    smoke, num_refused = smoke_with({}), 0
    for _ in range(75):
        raw = mutated(copy.deepcopy(smoke), rng)
        known = {".".join(map(str, place)) for study in (smoke, raw) for place in places(study)}
        known.add("params.yaml")
        found = faults_of(raw)
        for path, message in found:
            # The place may be a new one, below or beside a known one.
            above = path.rpartition(".")[0]
            assert path in known or above in known or not above, (path, message)
            assert message.strip() and " " not in path
        if not found:
            plans(typed(raw))
        num_refused += bool(found)
    assert num_refused > 50


def test_what_is_listed_no_more_goes_from_what_stages_depend_on_as_a_whole(
    tmp_path, monkeypatch
) -> None:
    """Else a clone that never had it would run them again."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "requirements.lock").write_text("")
    write_environment(tmp_path)
    params = load(ROOT / "studies" / "smoke.yaml")
    measured = ("contamination", "likeness")
    kept = ("tasks/tag/examples", *(f"{folder}/prose/unigram.json" for folder in measured))
    old = (
        "tasks/old/examples",
        *(f"{folder}/{name}.json" for folder in measured for name in ("old/unigram", "prose/bpe")),
    )
    for name in (*kept, *old):
        Path("data", name).mkdir(parents=True)
    check_params.main(params)
    assert all(Path("data", name).exists() for name in kept)
    assert not any(Path("data", name).exists() for name in old)
    for folder in measured:
        assert sorted(path.name for path in Path("data", folder).iterdir()) == ["none", "prose"]
    assert not Path("data/tasks/old").exists()


def test_what_it_writes_is_the_same_whatever_is_valid(tmp_path, monkeypatch) -> None:
    params = load(ROOT / "studies" / "smoke.yaml")
    shutil.copyfile(ROOT / "requirements.lock", tmp_path / "requirements.lock")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"environment\.json is missing: run `make setup`"):
        check_params.main(params)
    write_environment(tmp_path)
    check_params.main(params)
    written = {p.relative_to("data"): p.read_text() for p in Path("data").rglob("*") if p.is_file()}
    plans = {f"plans/{run}.json" for run in params.pretrain}
    code = {f"code/{stage}.json" for stage in check_params.code_by_stage(params)}
    assert {str(p) for p in written} == plans | code | {
        "environment.json",
        "none",
        "contamination/none",
        "likeness/none",
        "corpora/none/train.jsonl",
        "pretrained/none",
        "about.json",
        "seeds.json",
        "tokenizers/none",
        "encoded/none/unigram",
        "encoded/none/none",
    }
    check_params.main(params.model_copy(update={"study": "other"}))
    assert {p: Path("data", p).read_text() for p in written} == written
