"""The root stage: params.yaml is refused as a whole before anything runs, or plans are written."""

import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from stages import resolve
from stages.core.artifacts import read_json
from stages.core.plans import path_of
from stages.core.study_file import load
from tests.smoke import (
    ROOT,
    SMOKE,
    STUDIES,
    faults_of,
    plans,
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
    kept = ["tasks/tag/examples", "pretrained/encoder_mlm/1", "tokenizers/unigram"]
    kept += ["encoded/prose/unigram"]
    old = [f"{name}/old" for name in ("tasks", "pretrained", "checkpoints", "tokenizers")]
    old += ["encoded/old", "encoded/prose/old", "contamination/prose/bpe.json"]
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
    with_values(folder, {"pretrain.reference": "bert", "tokenizers.unigram.vocab_size": 9})
    with pytest.raises(ValueError) as error:
        resolve.main()
    paths = [line.partition(": ")[0] for line in str(error.value).splitlines()]
    assert paths == ["tokenizers.unigram.vocab_size", "pretrain.reference"]
    assert path_of("report").is_file()


def test_every_stage_with_a_key_depends_on_the_root_stage_whatever_the_key_is() -> None:
    """Otherwise `dvc repro --keep-going` would run a refused key in a shell."""
    stages = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text())["stages"]
    outs = [Path(out) for out in stages["resolve"]["outs"]]
    for name, entry in stages.items():
        stage = entry.get("do", entry)
        if "${" in str(entry.get("foreach", entry.get("matrix"))):
            fixed = [Path(path) for path in stage["deps"] if "$" not in path]
            pairs = [(dep, out) for dep in fixed for out in outs]
            assert any(d.is_relative_to(o) or o.is_relative_to(d) for d, o in pairs), name
