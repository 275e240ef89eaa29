import pytest

from tests.smoke import ROOT


@pytest.fixture(autouse=True)
def in_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source's path is relative to the project."""
    monkeypatch.chdir(ROOT)
