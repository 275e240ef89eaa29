import io
from pathlib import Path

import pytest
from rich.console import Console

from stages.commands import plan
from stages.params import Params, load
from tests.small import with_encoder_decoder

ROOT = Path(__file__).parents[2]


@pytest.fixture
def smoke(monkeypatch: pytest.MonkeyPatch) -> Params:
    monkeypatch.chdir(ROOT)  # a source's path is relative to the project
    return with_encoder_decoder(load(ROOT / "studies" / "smoke.yaml"))


def shown(params: Params) -> dict[str, list[str]]:
    """The cells of each run's line."""
    screen = io.StringIO()
    plan.show(params, Console(file=screen, width=120))
    lines = [line.split() for line in screen.getvalue().splitlines()]
    return {cells[0]: cells[1:] for cells in lines if cells and cells[0] in params.pretrain}


def test_each_run_has_a_line_of_its_own(smoke: Params) -> None:
    rows = shown(smoke)
    assert list(rows) == list(smoke.pretrain)
    assert rows["encoder_mlm"][0] == "mlm"
    assert rows["encoder_scratch"][-3:] == ["–", "–", "–"]
    assert rows["decoder_causal"][-2] == "0.04M"


def test_what_a_public_checkpoint_took_is_nobodys_plan(smoke: Params) -> None:
    model = {"name": "hub", "path": "openai-community/gpt2", "revision": "0" * 40}
    public = smoke.pretrain["encoder_scratch"].model_copy(
        update={"model": model, "tokenizer": "none"}
    )
    rows = shown(smoke.model_copy(update={"pretrain": {**smoke.pretrain, "gpt2": public}}))
    assert rows["gpt2"] == ["hub", "–", "–", "–", "–", "–"]


def test_matched_operations_are_alike(smoke: Params) -> None:
    budget = smoke.budget.model_copy(update={"matched": "flops"})
    rows = shown(smoke.model_copy(update={"budget": budget}))
    trained = [rows[key] for key in ("encoder_mlm", "decoder_causal", "encoder_decoder_span")]
    spent = [float(row[-1]) for row in trained]
    assert max(spent) < 1.06 * min(spent)  # one step of the largest in about 20
    assert len({row[-3] for row in trained}) > 1


def test_a_faulty_study_is_refused(smoke: Params) -> None:
    budget = smoke.budget.model_copy(update={"reference": "bert"})
    with pytest.raises(ValueError, match=r"budget\.reference: unknown 'bert'"):
        plan.show(smoke.model_copy(update={"budget": budget}), Console(file=io.StringIO()))
