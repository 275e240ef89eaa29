"""`make plan --resolved`: the value of every setting of a study."""

import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from stages.budgets.budget import matched
from stages.core.params import Params
from stages.core.study_file import typed
from tests.smoke import ROOT, short_smoke_with


@pytest.mark.parametrize(("budget", "equal_steps"), [("tokens", True), ("flops", False)])
def test_resolved_prints_the_study_under_the_matched_budget(
    budget: str, equal_steps: bool, run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(ROOT / "requirements.lock", "requirements.lock")
    raw = short_smoke_with({"pretrain.matched": budget, "pretrain.seeds": [1, 2]})
    with Path("params.yaml").open("w") as file:
        YAML().dump(raw, file)
    study = Params(**YAML(typ="safe").load(run("plan", "--resolved").out))
    assert study == matched(typed(raw))
    decoder = study.models["decoder_causal"]
    assert decoder.seeds == [1, 2] and "num_heads" in decoder.architecture
    assert (decoder.training.num_steps == 40) is equal_steps
