"""The root stage: params.yaml is refused as a whole before anything runs, or plans are written."""

import copy
import datetime
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from stages import resolve
from stages.core.artifacts import read_json
from stages.core.plans import path_of
from stages.core.study_file import load, typed
from tests.project import clone_of_working_tree
from tests.smoke import (
    ROOT,
    SMOKE,
    STUDIES,
    faults_of,
    plans,
    short_smoke_with,
    smoke_with,
    with_values,
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the smoke study in which nothing has run."""
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(SMOKE, "params.yaml")
    shutil.copyfile(ROOT / "requirements.lock", "requirements.lock")
    return tmp_path


TO_FETCH = "path: no such file or folder: data/own/"  # the head of a study says how to fetch rows


@pytest.mark.slow
@pytest.mark.parametrize("path", STUDIES, ids=lambda p: p.name)
def test_find_faults_accepts_the_studies_that_are_shipped(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "../shared/datasets" in path.read_text() and not (ROOT / "../shared/datasets").is_dir():
        pytest.skip("the published datasets are not beside the repository")
    monkeypatch.chdir(ROOT)
    faults = [fault for fault in faults_of(load(path)) if TO_FETCH not in fault.message]
    assert faults == []


# Any mistake is refused with its path, and none ends in another exception.

KEYS = (1, None, True, 1.5, datetime.date(2020, 1, 1), (1, 2), "", "misspelt", "size")
VALUES = (
    *("", "x", "none", "all", "hub", "\n", 0, -1, 3, 10**9, 10**30, 1.5, float("nan"), True, None),
    *([], [1], ["a"], [[1]], {}, {"name": "x"}, {"name": ["mlm"]}, {"name": 3}, {1: 2}),
    datetime.date(2020, 1, 1),
)


def places(node: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the path of everything below a node."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield (*above, key)
        if isinstance(value, dict | list):
            yield from places(value, (*above, key))


def mutated(raw: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Returns the study with one entry removed, renamed, or given one of ``VALUES`` or the value of
    another entry."""
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
def test_find_faults_has_a_path_for_each_fault_of_a_mutated_study(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    rng, smoke, num_refused = random.Random(seed), short_smoke_with({}), 0
    shared = {".".join(map(str, place)) for place in places(smoke_with({}))}  # with every setting
    for _ in range(75):
        raw = mutated(copy.deepcopy(smoke), rng)
        paths = {".".join(map(str, place)) for study in (smoke, raw) for place in places(study)}
        paths |= shared | {"params.yaml"}
        faults = faults_of(raw)
        for path, message in faults:
            # The path may be new, below a known one or next to it.
            above = path.rpartition(".")[0]
            assert path in paths or above in paths or not above, (path, message)
            assert message.strip() and " " not in path
        if not faults:
            plans(typed(raw))
        num_refused += bool(faults)
    assert num_refused > 50


def test_resolve_writes_plans_and_files_that_never_change(folder: Path) -> None:
    resolve.main()
    written = {path: path.read_text() for path in Path("data").rglob("*") if path.is_file()}
    params, planned = load(), set[str]()
    for keys, plan in plans(params).items():
        path = path_of(*keys)
        assert type(plan).model_validate(read_json(path)) == plan
        planned.add(str(path))
    assert {*map(str, written)} == planned | {
        "data/checkpoints/none",
        "data/contamination/none",
        "data/corpora/none/train.jsonl",
        "data/encoded/none",
        "data/likeness/none",
        "data/none",
        "data/tokenizers/none",
    }
    with_values(folder, {"title": "Which?"})  # this also writes out every default
    resolve.main()
    changed = [path for path, text in written.items() if path.read_text() != text]
    assert changed == [path_of("report")]


@pytest.mark.parametrize("by_dvc", [True, False])
def test_resolve_discards_what_params_yaml_no_longer_lists(
    folder: Path, monkeypatch: pytest.MonkeyPatch, by_dvc: bool
) -> None:
    """Stages depend on whole folders: if old entries stayed, a clone without them would run these
    stages again. Run by hand, the root stage discards nothing, as it may be another study's."""
    monkeypatch.delenv("DVC_STAGE", raising=False)
    if by_dvc:
        monkeypatch.setenv("DVC_STAGE", "resolve")
    measured = ("contamination", "likeness")
    kept = [
        "tasks/tag/examples",
        "pretrained/encoder_mlm/1",
        "tokenizers/unigram",
        "encoded/prose/unigram",
        *(f"{name}/prose/unigram.json" for name in measured),
    ]
    old = [
        "tasks/old",
        "pretrained/old",
        "checkpoints/old",
        "tokenizers/old",
        "encoded/old",
        "encoded/prose/old",
        *(f"{name}/{place}" for name in measured for place in ("old", "prose/bpe.json")),
    ]
    for name in (*kept, *old):
        Path("data", name).mkdir(parents=True)
    Path("data/plans/pretrain").mkdir(parents=True)
    Path("data/plans/pretrain/old.json").write_text("{}")
    resolve.main()
    assert all(Path("data", name).exists() for name in kept)
    assert all(Path("data", name).exists() != by_dvc for name in old)
    assert not Path("data/plans/pretrain/old.json").exists()


def test_resolve_refuses_every_fault_at_once_and_keeps_the_plans(folder: Path) -> None:
    resolve.main()
    with_values(folder, {"pretrain.reference": "bert", "finetune.seeds": [1, 1]})
    with pytest.raises(ValueError) as error:
        resolve.main()
    paths = [line.partition(": ")[0] for line in str(error.value).splitlines()]
    assert paths == ["pretrain.reference", "finetune.seeds"]
    assert path_of("report").is_file()


def run_stage(folder: Path, stage: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"stages.{stage}", *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_run_stage_says_what_a_stage_does_and_a_mistake_has_no_traceback(folder: Path) -> None:
    helped = run_stage(folder, "encode_corpus", "--help")
    assert helped.returncode == 0 and "Encode the documents" in helped.stdout
    early = run_stage(folder, "encode_corpus", "prose", "unigram")
    assert early.returncode == 2
    assert early.stderr.endswith("encode_corpus/prose/unigram.json: missing; run `dvc repro`\n")
    assert run_stage(folder, "resolve").returncode == 0
    unknown = run_stage(folder, "encode_corpus", "prse", "unigram")
    assert (unknown.returncode, unknown.stderr) == (
        2,
        "error: encode_corpus: unknown 'prse/unigram'; did you mean 'prose/unigram'? Valid: "
        "prose/unigram\n",
    )
    with_values(folder, {"study": 1})
    broken = run_stage(folder, "resolve")
    assert broken.returncode == 2 and broken.stderr.startswith("error: study: ")
    assert "Traceback" not in broken.stderr


def test_every_stage_with_a_key_depends_on_the_root_stage_whatever_the_key_is() -> None:
    """Otherwise `dvc repro --keep-going` would run a refused key in a shell."""
    stages = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text())["stages"]
    outs = [Path(out) for out in stages["resolve"]["outs"]]
    for name, entry in stages.items():
        stage = entry.get("do", entry)
        if "key}" in stage["cmd"] or "item." in stage["cmd"]:
            fixed = [Path(path) for path in stage["deps"] if "$" not in path]
            pairs = [(dep, out) for dep in fixed for out in outs]
            assert any(d.is_relative_to(o) or o.is_relative_to(d) for d, o in pairs), name


@pytest.mark.slow
def test_repro_that_keeps_going_runs_no_key_in_a_shell(tmp_path: Path) -> None:
    project = clone_of_working_tree(tmp_path / "clone")
    key = "../../x; touch RAN; #"
    (project.folder / f"data/{Path(key).name}.json").write_text("{}")
    source = {"name": "files", "path": "params.yaml"}
    corpus = {"source": source, "max_tokens": "all", "decontaminate_against": "../params.yaml"}
    project.edit("corpora", value={key: corpus})
    project.edit("tokenizers", value={})
    project.edit("pretrain", "runs", value={})
    output = project.run("dvc", "repro", "--keep-going", check=False)
    assert f"corpora.{key}: " in output and "will be skipped" in output
    assert "Running stage 'prepare_corpus" not in output
    assert not (project.folder / "RAN").exists()
