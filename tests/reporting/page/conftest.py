"""Runs a script in a page in a browser."""

import html
import json
import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple


class Probed(NamedTuple):
    """The JSON that a page's script wrote to the element ``probe``, and the browser's messages."""

    found: Any
    messages: str


def with_script(page: str, script: str) -> str:
    """The page with a script at its end."""
    body, end, rest = page.rpartition("</body>")  # the runtime has another one, in a string
    return f"{body}{script}{end}{rest}"


def probed(browser: list[str], page: Path | str, *options: str) -> Probed:
    """Opens the page, a file or an address, and waits for its script."""
    address = page if isinstance(page, str) else page.as_uri()
    command = [*browser, *options, "--dump-dom", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    probe = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, flags=re.DOTALL)
    assert probe, done.stderr
    return Probed(json.loads(html.unescape(probe[1])), done.stderr)
