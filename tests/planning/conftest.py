from pathlib import Path

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
