import pytest

from tests.smoke import ROOT


@pytest.fixture(autouse=True)
def in_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of sources are relative to the project."""
    monkeypatch.chdir(ROOT)
