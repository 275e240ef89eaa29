"""The top level of params.yaml: typed, every fault with its path."""

import datetime
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dvc.parsing.interpolate import to_str

from stages.core.params import load, read_yaml
from stages.core.process import flags
from tests.smoke import (
    DELETED,
    ROOT,
    SMOKE,
    STUDIES,
    edited,
    faults_of,
    paths_of,
    smoke_with,
    with_values,
)

DVC = {"bool": "boolean_optional", "list": "nargs"}  # as in .dvc/config


@pytest.mark.parametrize("path", [ROOT / "params.yaml", *STUDIES], ids=lambda p: p.name)
def test_every_study_that_is_shipped_is_typed(path) -> None:
    params = load(path)
    assert params.pretrain and params.tasks


def test_params_yaml_is_one_of_the_studies() -> None:
    assert (ROOT / "params.yaml").read_text() in [path.read_text() for path in STUDIES]


RUN, FULL = "pretrain.encoder_mlm.training", "finetune.methods.full.training"


@pytest.mark.parametrize(
    ("changes", "path", "word"),
    [
        ({"finetune.keep_weight": "all"}, "finetune.keep_weight", "'keep_weights'"),
        ({"finetune.keep_weights": "some"}, "finetune.keep_weights", "'first_seed'"),
        ({"finetune.keep_weights": DELETED}, "finetune.keep_weights", "missing"),
        ({f"{RUN}.num_steps": 0}, f"{RUN}.num_steps", "0"),
        ({f"{RUN}.num_steps": "forty"}, f"{RUN}.num_steps", "integer"),
        ({f"{RUN}.lr": -1}, f"{RUN}.lr", "number"),
        ({f"{RUN}.lr": [3e-3, 3e-3]}, f"{RUN}.lr", "repeat"),
        ({f"{FULL}.lr": [1e-3, 0]}, f"{FULL}.lr", "number"),
        ({f"{FULL}.lr": "fast"}, f"{FULL}.lr", "number"),
        ({f"{FULL}.lr": [1, 1.0]}, f"{FULL}.lr", "repeat"),
        ({f"{FULL}.lr": []}, f"{FULL}.lr", "empty"),
        ({f"{FULL}.num_epoch": 3}, f"{FULL}.num_epoch", "'num_epochs'"),
        ({"finetune.label_budgets": ["some"]}, "finetune.label_budgets.0", "'all'"),
        ({"finetune.seeds": []}, "finetune.seeds", "empty"),
        ({"finetune.seeds": None}, "finetune.seeds", "empty"),
        ({"study": "my-study"}, "study", "pattern"),
        ({"stduy": "smoke"}, "stduy", "'study'"),
        ({"size": 1}, "size", "DVC"),
        ({"pretrain.encoder-mlm": {}}, "pretrain.encoder-mlm", "pattern"),
        ({"pretrain.encoder_mlm": {1: 2}}, "pretrain.encoder_mlm", "string"),
    ],
)
def test_a_fault_has_its_path(changes: dict[str, Any], path: str, word: str) -> None:
    faults = faults_of(smoke_with(changes))
    assert any(f.path.startswith(path) and word in f.message for f in faults), faults


@pytest.mark.parametrize("key", [1, None, True, 1.5, datetime.date(2020, 1, 1), (1, 2)])
def test_a_key_that_is_no_string_is_refused(key: Any) -> None:
    raw = smoke_with({})
    raw["pretrain"]["encoder_mlm"]["model"][key] = 1
    assert paths_of(raw) == ["pretrain.encoder_mlm.model"]
    assert paths_of(smoke_with({}) | {key: 1}) == ["params.yaml"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("corpora:", "corpora: ["),
        ("corpora:", "<<: *training\ncorpora:"),
        ("study: smoke", "study: smoke\nstudy: other"),
    ],
)
def test_what_is_no_yaml_or_breaks_dvc_is_refused(tmp_path: Path, old: str, new: str) -> None:
    path = edited(tmp_path, old, new)
    with pytest.raises(ValueError, match="params.yaml: "):
        load(path)


def test_an_alias_inside_its_anchor_is_refused(tmp_path: Path) -> None:
    path = edited(tmp_path, "study: smoke", "study: &loop {again: *loop}")
    with pytest.raises(ValueError, match=r"study\.again: "):
        load(path)


def test_numbers_are_read_as_dvc_reads_them(tmp_path) -> None:
    """1e-3 is a number (PyYAML reads a string), and so is a whole rate."""
    assert (
        load(edited(tmp_path, "lr: 3e-3", "lr: 1e-3")).pretrain["encoder_mlm"].training.lr == 1e-3
    )
    assert load(edited(tmp_path, "lr: 3e-3", "lr: 1")).pretrain["encoder_mlm"].training.lr == 1.0


def test_a_learning_rate_may_be_several(tmp_path) -> None:
    """Learning rates of a method may be whole numbers, and DVC's command has all of them."""
    path = with_values(tmp_path, {f"{FULL}.lr": [1e-3, 1, 3e-5]})
    training = load(path).finetune.methods["full"].training
    assert training is not None and training.rates == [1e-3, 1.0, 3e-5]
    assert training.at(1e-3).lr == 1e-3 and training.at(1e-3).decay == training.decay
    raw = read_yaml(path)["finetune"]
    assert flags(raw) == to_str(raw, DVC).split()
    assert "--methods.full.training.lr 0.001 1 3e-05 --" in " ".join(flags(raw))
    single = load(with_values(tmp_path, {f"{FULL}.lr": 1})).finetune.methods["full"].training
    assert single is not None and single.rates == [1.0]


def test_a_run_may_have_several_learning_rates(tmp_path) -> None:
    path = with_values(tmp_path, {f"{RUN}.lr": [1e-3, 1]})
    training = load(path).pretrain["encoder_mlm"].training
    assert training.rates == [1e-3, 1.0] and training.at(1.0).lr == 1.0
    raw = read_yaml(path)["pretrain"]["encoder_mlm"]
    assert flags(raw) == to_str(raw, DVC).split()
    assert "--training.lr 0.001 1 --" in " ".join(flags(raw))


@pytest.mark.parametrize(
    "lr", [0, -1e-3, [1e-3, 0], [1e-3, 1e-3], [1, 1.0], ["1e-3"], "fast", [], True]
)
def test_rates_that_are_none_are_refused_with_their_path(tmp_path, lr) -> None:
    with pytest.raises(ValueError, match=r"^pretrain\.encoder_mlm\.training\.lr: "):
        load(with_values(tmp_path, {f"{RUN}.lr": lr}))


def test_a_missing_file_says_what_to_do(tmp_path) -> None:
    with pytest.raises(ValueError, match="no such file; copy one of studies/"):
        load(tmp_path / "params.yaml")


@pytest.mark.parametrize("path", STUDIES, ids=lambda p: p.name)
def test_flags_are_those_that_dvc_writes(path) -> None:
    import shlex

    raw = read_yaml(path)
    for value in [*raw["pretrain"].values(), *raw["tasks"].values(), raw["finetune"]]:
        assert flags(value) == shlex.split(to_str(value, DVC))


def run_stage(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stages.encode_corpus", *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_stage_says_what_it_does_and_a_mistake_has_no_traceback(tmp_path) -> None:
    (tmp_path / "params.yaml").write_text(SMOKE.read_text())
    helped = run_stage(tmp_path, "--help")
    assert helped.returncode == 0 and "Encode the documents" in helped.stdout
    unknown = run_stage(tmp_path, "prse", "unigram")
    assert unknown.returncode == 2
    assert unknown.stderr == "error: corpora: unknown 'prse'; did you mean 'prose'? Valid: prose\n"
    with_values(tmp_path, {"study": 1})
    broken = run_stage(tmp_path, "prose", "unigram")
    assert broken.returncode == 2 and "Traceback" not in broken.stderr


def test_five_seeds_is_the_default_study_with_further_seeds() -> None:
    """After the default study only the further seeds are trained."""
    default, more = (
        read_yaml(ROOT / "studies" / f"{name}.yaml") for name in ("default", "five_seeds")
    )
    runs = more["pretrain"]
    assert {key: runs[key] for key in default["pretrain"]} == default["pretrain"]
    for key in runs.keys() - default["pretrain"].keys():
        first = runs[key.removesuffix(f"_{runs[key]['seed']}")]
        assert runs[key]["seed"] > 3 and runs[key] == first | {"seed": runs[key]["seed"]}
    own = {"study", "about", "pretrain"}
    assert {k: v for k, v in more.items() if k not in own} == {
        k: v for k, v in default.items() if k not in own
    }
