"""Commands in a real terminal of some width."""

import os
import pty
import re
import subprocess
from pathlib import Path

from tests import warm_python

ROOT = Path(__file__).parents[1]
WIDTHS = (60, 80, 100, 200)
END = "\f"  # of what is printed at a width
AT_EACH_WIDTH = f"""
import importlib, sys, termios
_, name, once, *sys.argv[1:] = sys.argv
command = importlib.import_module(f"stages.commands.{{name}}")
if once:
    function, results = getattr(command, once), []
    def known(*given):
        results or results.append(function(*given))
        return results[0]
    setattr(command, once, known)
for width in {WIDTHS}:
    termios.tcsetwinsize(1, (50, width))
    command.main()
    print(end={END!r})
"""
STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminals(
    command: str, *arguments: str, folder: Path, once: str = "", **environment: str
) -> dict[int, str]:
    """Returns what a command of the project prints to a terminal of each width, when it is run in
    ``folder``. One process runs it at all widths; it calls the function ``once`` of its module at
    the first alone."""
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
    """Returns what was written since, or nothing once the command has ended."""
    try:
        return os.read(terminal, 65536)
    except OSError:  # on Linux, the end of the other side
        return b""


def check_fits(text: str, width: int, *words: str) -> None:
    """Asserts that no line is wider than the terminal and that the text has all words, uncut."""
    assert all(len(line) <= width for line in text.splitlines())
    assert "…" not in text
    missing = [word for word in words if word not in text]
    assert not missing, (width, missing, text)
