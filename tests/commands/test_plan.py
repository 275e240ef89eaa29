"""`make plan --resolved`: the value of every setting of a study."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from stages.budgets.budget import matched
from stages.core.params import Params
from stages.core.study_file import typed
from tests.project import clone_of_working_tree
from tests.smoke import ROOT, short_smoke_with
from tests.terminals import check_fits, on_terminals


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(ROOT / "requirements.lock", "requirements.lock")
    return tmp_path


def printed(run: Callable[..., Any], changes: dict[str, Any]) -> Params:
    """Returns the smoke study with some changes, as the command prints it."""
    with Path("params.yaml").open("w") as file:
        YAML().dump(short_smoke_with(changes), file)
    text = run("plan", "--resolved").out
    assert max(map(len, text.splitlines())) <= 100
    return Params(**YAML(typ="safe").load(text))


def test_resolved_prints_the_study_under_the_matched_budget(run) -> None:
    for matched_in in ("tokens", "flops"):
        changes = {"pretrain.matched": matched_in, "pretrain.seeds": [1, 2]}
        study = printed(run, changes)
        assert study == matched(typed(short_smoke_with(changes)))
        decoder = study.runs["decoder_causal"]
        assert decoder.corpus == "prose" and decoder.training.warmup_fraction == 0.1
        assert decoder.seeds == [1, 2] and "num_heads" in decoder.architecture
        assert (decoder.training.num_steps == 40) == (matched_in == "tokens")


@pytest.mark.slow
def test_plan_cuts_nothing_on_any_terminal(tmp_path: Path) -> None:
    """The clone has no results. Its costs are estimated once."""
    project = clone_of_working_tree(tmp_path / "project").folder
    for width, text in on_terminals("plan", folder=project, once="made").items():
        check_fits(text, width, "encoder_scratch", "decoder_causal", "in all")
        assert text.startswith("To run: ")
