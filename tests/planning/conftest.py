from pathlib import Path

import pytest

from stages.core.params import Params
from stages.core.study_file import load
from stages.planning import estimate
from stages.planning.finetuning_costs import Finetuning
from stages.planning.pretraining_costs import Pretraining
from stages.planning.speed import Calibration, operations
from stages.sources.installed_docs import InstalledDocs
from tests.small import with_encoder_decoder
from tests.smoke import SMOKE

SPEED = 1e9  # operations a second


class Known(Calibration):
    """A calibration that measures a billion operations a second."""

    def seconds(self, cost: Pretraining | Finetuning) -> float | None:
        return operations(cost) / SPEED


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """The smoke study with a third architecture, in a folder where nothing has run and where no
    source is slow."""
    monkeypatch.chdir(tmp_path)
    Path("requirements.lock").touch()
    monkeypatch.setattr(estimate, "Calibration", Known)
    monkeypatch.setattr(InstalledDocs, "reading_s", lambda source, read: 0.0)
    return with_encoder_decoder(load(SMOKE))
