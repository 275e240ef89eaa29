"""The root stage refuses params.yaml as a whole before anything runs, or writes the plans; and the
records of what corpora and models read, on which later stages depend."""

import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from stages import record_inputs, resolve
from stages.core.artifacts import read_json, sha256_of_tree, write_json
from stages.core.plans import InputsPlan, path_of
from stages.core.study_file import load, typed
from stages.planning.stage_plans import corpus_inputs, model_inputs
from tests.smoke import ROOT, SMOKE, STUDIES, faults_of, plans, short_smoke_with, with_values


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the smoke study in which nothing has run."""
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(SMOKE, "params.yaml")
    shutil.copyfile(ROOT / "requirements.lock", "requirements.lock")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("path", STUDIES, ids=lambda p: p.name)
def test_find_faults_accepts_the_studies_that_are_shipped(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "../shared/datasets" in path.read_text() and not (ROOT / "../shared/datasets").is_dir():
        pytest.skip("the published datasets are not beside the repository")
    monkeypatch.chdir(ROOT)
    to_fetch = "path: no such file or folder: data/own/"  # the head of a study says how
    assert [fault for fault in faults_of(load(path)) if to_fetch not in fault.message] == []


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


def test_resolve_names_the_tasks_that_a_baseline_has_no_file_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("predictions").mkdir()
    Path("predictions/tag.csv").write_text("words,prediction\na b,O O\n")
    with_values(folder, {"baselines.llm": {"name": "predictions"}})
    resolve.main()
    assert "baselines.llm: not compared on section: no file" in capsys.readouterr().err


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


# Records of inputs

UNIGRAM, PROSE = "data/tokenizers/unigram", "data/encoded/prose/unigram"
MINILM = "data/checkpoints/minilm"
INPUTS = {
    "mlm": [UNIGRAM, PROSE],
    "scratch": [UNIGRAM],
    "fetched": ["data/tokenizers/none", MINILM],
}
PLAN = InputsPlan(inputs=INPUTS, tasks=["tag", "type"], label_budgets=[50, "all"], code={})


def write(name: str, text: str) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def recorded() -> dict[str, bytes]:
    record_inputs.main(PLAN, "models")
    return {path.stem: path.read_bytes() for path in Path("data/inputs/models").iterdir()}


def test_record_inputs_changes_only_for_models_that_read_what_changed(folder: Path) -> None:
    """A label budget that a task cannot fill is refused here, before any training: every
    pretraining depends on this stage."""
    for name in (f"{UNIGRAM}/model", f"{PROSE}/train/tokens.npy", f"{MINILM}/model.safetensors"):
        write(name, name)
    write("data/tokenizers/none", "nothing")
    for task, number in (("tag", 50), ("type", 60)):
        Path(f"data/tasks/{task}/examples").mkdir(parents=True)
        record = {"num_examples": {"train": number, "test": 10}}
        write_json(Path(f"data/tasks/{task}/examples/task.json"), record)
    with pytest.raises(ValueError, match=r"^finetune\.label_budgets: 55 labels, but tasks\.tag h"):
        record_inputs.main(PLAN.model_copy(update={"label_budgets": [10, 55]}), "models")
    assert not Path("data/inputs").exists()
    write("data/inputs/models/old.json", "of a model that is no longer listed")
    before = recorded()
    assert before.keys() == INPUTS.keys()
    hashes = {path: sha256_of_tree(Path(path)) for path in (UNIGRAM, PROSE)}
    assert read_json(Path("data/inputs/models/mlm.json")) == hashes
    for name, changed in (
        (f"{PROSE}/train/tokens.npy", {"mlm"}),
        (f"{UNIGRAM}/model", {"mlm", "scratch"}),
        ("data/encoded/code/unigram/train/tokens.npy", set()),
        (f"{MINILM}/model.safetensors", {"fetched"}),
    ):
        write(name, "other")
        after = recorded()
        assert {model for model in before if before[model] != after[model]} == changed
        before = after


def test_inputs_are_those_of_a_model_and_its_parents() -> None:
    source = {"name": "files", "path": "more.txt"}
    more = {"source": source, "max_tokens": "all", "decontaminate_against": "tasks"}
    child = {"parent": "encoder_mlm", "corpus": "more"}
    study = typed(short_smoke_with({"models.child": child, "corpora.more": more}))
    models, corpora = model_inputs(study), corpus_inputs(study)
    assert models["encoder_mlm"] == [UNIGRAM, PROSE] and models["encoder_scratch"] == [UNIGRAM]
    assert models["child"] == [UNIGRAM, "data/encoded/more/unigram", PROSE]
    assert corpora["prose"] == [] and "data/tasks/tag/examples" in corpora["more"]
