"""The top level of params.yaml: typed, without defaults, every fault with its path."""

import subprocess
import sys
from pathlib import Path

import pytest
from dvc.parsing.interpolate import to_str

from stages.core.params import load, read_yaml
from stages.core.process import flags

ROOT = Path(__file__).parents[2]
STUDIES = sorted((ROOT / "studies").glob("*.yaml"))
DVC = {"bool": "boolean_optional", "list": "nargs"}  # as in .dvc/config
SMOKE = (ROOT / "studies" / "smoke.yaml").read_text()


def edited(tmp_path: Path, old: str, new: str, *, count: int = 1) -> Path:
    assert old in SMOKE
    path = tmp_path / "params.yaml"
    path.write_text(SMOKE.replace(old, new, count))
    return path


@pytest.mark.parametrize("path", [ROOT / "params.yaml", *STUDIES], ids=lambda p: p.name)
def test_every_study_that_is_shipped_is_typed(path) -> None:
    params = load(path)
    assert params.pretrain and params.tasks


def test_params_yaml_is_one_of_the_studies() -> None:
    assert (ROOT / "params.yaml").read_text() in [path.read_text() for path in STUDIES]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("keep_weights: first_seed", "keep_weight: all", "finetune.keep_weight: unknown"),
        ("keep_weights: first_seed", "keep_weight: all", "did you mean 'keep_weights'"),
        (
            "keep_weights: first_seed",
            "keep_weights: some",
            "finetune.keep_weights: input should be",
        ),
        ("num_steps: 40", "num_steps: 0", "training.num_steps: input should be greater than 0"),
        (
            "num_steps: 40",
            "num_steps: forty",
            "training.num_steps: input should be a valid integer",
        ),
        ("lr: 3e-3", "lr: -1", "training.lr: input should be greater than 0, not -1"),
        ("lr: 1e-3", "lr: [1e-3, 0]", "methods.full.training.lr: value error, must be a number"),
        ("lr: 1e-3", "lr: fast", "methods.full.training.lr: value error, must be a number"),
        ("lr: 1e-3", "lr: [1, 1.0]", "methods.full.training.lr: value error, must not repeat"),
        ("lr: 1e-3", "lr: []", "methods.full.training.lr: must not be empty"),
        ("lr: 3e-3", "lr: [3e-3]", "training.lr: input should be a valid number"),
        ("label_budgets: [50]", "label_budgets: [some]", "finetune.label_budgets.0"),
        ("seeds: [1, 2]", "seeds: []", "finetune.seeds: must not be empty"),
        ("seeds: [1, 2]", "seeds:", "finetune.seeds: must not be empty"),
        (
            "num_epochs: 3",
            "num_epoch: 3",
            "methods.full.training.num_epoch: unknown 'num_epoch'; did",
        ),
        ("study: smoke", "study: my-study", "study: string should match pattern"),
        ("study: smoke", "stduy: smoke", "stduy: unknown 'stduy'; did you mean 'study'"),
        ("study: smoke", "study: smoke\nsize: 1", "size: the key 'size' is invisible to DVC"),
        ("  encoder_mlm:", "  encoder-mlm:", "pretrain.encoder-mlm"),
        ("corpora:", "corpora: [", "params.yaml: while parsing a flow sequence line"),
        ("corpora:", "<<: *training\ncorpora:", "merge keys"),
    ],
)
def test_a_fault_is_named_with_its_path(tmp_path, old, new, message) -> None:
    with pytest.raises(ValueError) as error:
        load(edited(tmp_path, old, new))
    assert message in str(error.value)


def test_numbers_are_read_as_dvc_reads_them(tmp_path) -> None:
    """1e-3 is a number (to PyYAML it is a string), and a whole rate is one too."""
    assert (
        load(edited(tmp_path, "lr: 3e-3", "lr: 1e-3")).pretrain["encoder_mlm"].training.lr == 1e-3
    )
    assert load(edited(tmp_path, "lr: 3e-3", "lr: 1")).pretrain["encoder_mlm"].training.lr == 1.0


def test_a_learning_rate_may_be_several(tmp_path) -> None:
    """Of a method; whole ones too, and DVC's command has them all."""
    path = edited(tmp_path, "lr: 1e-3", "lr: [1e-3, 1, 3e-5]")
    training = load(path).finetune.methods["full"].training
    assert training is not None and training.rates == [1e-3, 1.0, 3e-5]
    assert training.at(1e-3).lr == 1e-3 and training.at(1e-3).decay == training.decay
    raw = read_yaml(path)["finetune"]
    assert flags(raw) == to_str(raw, DVC).split()
    assert "--methods.full.training.lr 0.001 1 3e-05 --" in " ".join(flags(raw))
    single = load(edited(tmp_path, "lr: 1e-3", "lr: 1")).finetune.methods["full"].training
    assert single is not None and single.rates == [1.0]


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


def test_a_stage_says_what_it_does_and_a_mistake_has_no_traceback(tmp_path) -> None:
    (tmp_path / "params.yaml").write_text(SMOKE)
    helped = run_stage(tmp_path, "--help")
    assert helped.returncode == 0 and "Encode the documents" in helped.stdout
    unknown = run_stage(tmp_path, "prse", "unigram")
    assert unknown.returncode == 2
    assert unknown.stderr == "error: corpora: unknown 'prse'; did you mean 'prose'? Valid: prose\n"
    edited(tmp_path, "study: smoke", "study: 1")
    broken = run_stage(tmp_path, "prose", "unigram")
    assert broken.returncode == 2 and "Traceback" not in broken.stderr
