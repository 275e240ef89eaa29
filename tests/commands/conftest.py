"""Fixtures that run commands in this process."""

import importlib
import io
import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest


class Ended(NamedTuple):
    """The exit status of a command and what it printed."""

    status: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command, by its name and arguments."""

    def run(name: str, *arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        status = 0
        try:
            importlib.import_module(f"stages.commands.{name}").main()
        except SystemExit as ended:
            status = int(ended.code or 0)
        return Ended(status, *capsys.readouterr())

    return run


@pytest.fixture
def predict(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, list[dict[str, Any]], str]]:
    """Runs ``predict``; returns its exit status, the rows that it wrote, and its errors."""

    def predict(*arguments: str, stdin: str | bytes = "") -> tuple[int, list[dict[str, Any]], str]:
        content = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        status, out, err = run("predict", *arguments)
        return status, [json.loads(line) for line in out.splitlines()], err

    return predict
