"""Commands in a real terminal of some width."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

ROOT = Path(__file__).parents[1]
WIDTHS = (60, 80, 100, 200)
STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(command: str, *arguments: str, width: int, folder: Path, **environment: str) -> str:
    """Returns what a command of the project prints to a terminal of ``width`` columns, when it is
    run in ``folder``."""
    terminal, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    inherited = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    running = subprocess.Popen(
        [sys.executable, "-m", f"stages.commands.{command}", *arguments],
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
    return STYLES.sub("", b"".join(parts).decode().replace("\r\n", "\n"))


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
