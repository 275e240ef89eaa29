"""Commands in a real terminal of some width."""

import os
import pty
import re
import subprocess
from pathlib import Path

from tests import warm_python

ROOT = Path(__file__).parents[1]
WIDTHS = (60, 80, 100, 200)
END = "\f"  # printed after the output at each width
AT_EACH_WIDTH = f"""
import importlib, sys, termios
_, name, once, *sys.argv[1:] = sys.argv
command = importlib.import_module(f"stages.commands.{{name}}")
if once:
    function, results = getattr(command, once), []
    def first_result(*arguments):
        results or results.append(function(*arguments))
        return results[0]
    setattr(command, once, first_result)
for width in {WIDTHS}:
    termios.tcsetwinsize(1, (50, width))
    command.main()
    print(end={END!r})
"""
STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminals(
    command: str, *arguments: str, folder: Path, once: str = "", **environment: str
) -> dict[int, str]:
    """Runs a command of the project in ``folder``; returns what it prints to a terminal of each
    width. One process runs the command at all widths, and calls the function ``once`` of the
    command's module only at the first width."""
    terminal, child = pty.openpty()
    inherited = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    running = subprocess.Popen(
        [warm_python.commands() / "python", "-c", AT_EACH_WIDTH, command, once, *arguments],
        cwd=folder,
        env=inherited | {"PYTHONPATH": str(ROOT), "TERM": "xterm"} | environment,
        stdin=subprocess.DEVNULL,
        stdout=child,
        stderr=subprocess.PIPE,
    )
    os.close(child)
    parts = list[bytes]()
    while part := _read(terminal):
        parts.append(part)
    os.close(terminal)
    _, errors = running.communicate()
    assert running.returncode == 0, errors.decode()
    texts = STYLES.sub("", b"".join(parts).decode().replace("\r\n", "\n")).split(END)
    return dict(zip(WIDTHS, texts[:-1], strict=True))


def _read(terminal: int) -> bytes:
    """Returns what the command has written since the last call, or nothing once it has ended."""
    try:
        return os.read(terminal, 65536)
    except OSError:  # on Linux: the other side is closed
        return b""


def check_fits(text: str, width: int, *words: str) -> None:
    """Asserts that no line is wider than the terminal and that the text has all words, uncut."""
    assert all(len(line) <= width for line in text.splitlines())
    assert "…" not in text
    missing = [word for word in words if word not in text]
    assert not missing, (width, missing, text)
