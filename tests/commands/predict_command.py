"""The command `predict` in this process."""

import io
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from stages.commands import predict


def predict_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, list[dict[str, Any]], str]]:
    """Returns what runs the command, and gives its exit status, the rows that it wrote, and its
    errors."""

    def run(*arguments: str, stdin: str | bytes = "") -> tuple[int, list[dict[str, Any]], str]:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        monkeypatch.setattr(sys, "argv", ["predict", *arguments])
        status = 0
        try:
            predict.main()
        except SystemExit as ended:
            status = int(ended.code or 0)
        printed = capsys.readouterr()
        rows = [json.loads(line) for line in printed.out.splitlines()]
        return status, rows, printed.err

    return run
