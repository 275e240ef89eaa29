"""A study that has not begun, and changes of it."""

from pathlib import Path
from typing import Any

import pytest

from stages.core.params import Params
from stages.core.study_file import load
from stages.planning import speed
from tests.small import with_encoder_decoder
from tests.smoke import SMOKE

SPEED = 1e9  # work a second


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """The smoke study with a third architecture, in a folder where nothing has run. A
    calibration measures the same speed for all kinds."""
    monkeypatch.chdir(tmp_path)
    Path("requirements.lock").touch()
    monkeypatch.setattr(speed, "calibration", lambda study, cost, jobs: SPEED)
    return with_encoder_decoder(load(SMOKE))


def with_model(params: Params, name: str, like: str = "", **settings: Any) -> Params:
    """Returns the study with a model that differs in some settings from the one of this name, or
    from ``like``."""
    model = params.models[like or name].model_copy(update=settings)
    return params.model_copy(update={"models": params.models | {name: model}})


def with_finetune(params: Params, **settings: Any) -> Params:
    """Returns the study with other settings of fine-tuning."""
    return params.model_copy(update={"finetune": params.finetune.model_copy(update=settings)})
