"""Each command says what it does."""

import importlib
from pathlib import Path

import pytest

from stages import commands

COMMANDS = [
    path.stem
    for path in Path(commands.__file__).parent.glob("*.py")
    if "def main() -> None:" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_begins_with_what_the_command_does(name: str, run) -> None:
    command = importlib.import_module(f"stages.commands.{name}")
    status, out, _ = run(name, "--help")
    shown = " ".join(out.split())
    assert status == 0 and f"python -m stages.commands.{name}" in shown
    assert command.__doc__ is not None
    assert " ".join(command.__doc__.split("\n\n")[0].split()).strip() in shown
