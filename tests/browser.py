"""A headless browser, for tests that look at the report's page."""

import shutil
from pathlib import Path

BROWSERS = ("chromium", "google-chrome")
FRAME = """<!DOCTYPE html>
<body style="margin: 0">
<iframe src="{page}" style="border: 0; width: {width}px; height: {height}px"></iframe>
<script>
addEventListener("message", ({{data}}) => {{
  const probe = document.createElement("pre");
  probe.id = "probe";
  probe.textContent = data;
  document.body.append(probe);
}});
</script></body>
"""


def browser_command(profile: Path) -> list[str]:
    """Returns the command of a headless browser with the profile folder ``profile``.

    Raises ValueError if there is no browser.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise ValueError(f"none of these browsers is installed: {', '.join(BROWSERS)}")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    return [browser, *flags, "--disable-background-networking", f"--user-data-dir={profile}"]


def framed(page: Path, width: int, height: int) -> Path:
    """Writes a file next to ``page`` that shows it in a frame, since no window of Chromium is
    narrower than 500 pixels. A message that ``page`` posts to its parent becomes ``#probe``."""
    frame = page.with_name(f"{page.stem}_{width}.html")
    frame.write_text(FRAME.format(page=page.as_uri(), width=width, height=height), "utf-8")
    return frame
