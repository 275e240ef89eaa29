"""Take screenshots of the page's first screen and forest at three widths and in two themes."""

import shutil
import subprocess
import tempfile
from itertools import product
from pathlib import Path

from stages.commands._parser import parser_of
from stages.core import paths
from stages.core.process import exit_on_mistake

BROWSERS = ("chromium", "google-chrome")
SIZES = {390: 844, 768: 1024, 1280: 800}  # pixels: width -> height
PLACES = ("answer", "contrasts")
THEMES = {"dark": 0, "light": 1}  # as Chromium numbers them
DRAWN_MS = 20_000  # time for the page's charts, by the page's own clock

# Reports every chart as visible: a real observer waits for frames, but virtual time does not.
SEEN = """
<script>
window.IntersectionObserver = class {
  constructor(call) { this.call = call; }
  observe(target) { this.call([{target, isIntersecting: true}]); }
  unobserve() {}
};
</script>
"""


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


def main() -> None:
    parser = parser_of("screenshots", __doc__)
    parser.add_argument(
        "--folder", type=Path, default=paths.SCRATCH / "screenshots", help="where they are written"
    )
    folder: Path = parser.parse_args().folder
    exit_on_mistake(lambda: take(paths.REPORTS / "index.html", folder))


def browser_command(profile: Path) -> list[str]:
    """Returns the command of a headless browser with the profile folder ``profile``.

    Raises ValueError if there is no browser.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise ValueError(f"none of these browsers is installed: {', '.join(BROWSERS)}")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    return [browser, *flags, "--disable-background-networking", f"--user-data-dir={profile}"]


def take(page: Path, folder: Path) -> None:
    """Writes a PNG for each place, width and theme into ``folder``.

    Raises ValueError if there is no page or no browser.
    """
    if not page.exists():
        raise ValueError(f"{page}: no such file; `dvc repro` writes the report")
    with tempfile.TemporaryDirectory() as profile:
        browser = browser_command(Path(profile))
        folder.mkdir(parents=True, exist_ok=True)
        for place, (width, height), (theme, number) in product(
            PLACES, SIZES.items(), THEMES.items()
        ):
            file = folder / f"{place}_{width}_{theme}.png"
            part = Path(profile, f"{place}.html")
            part.write_text(alone(page.read_text(encoding="utf-8"), place), encoding="utf-8")
            command = [
                *browser,
                "--hide-scrollbars",
                f"--blink-settings=preferredColorScheme={number}",
                f"--virtual-time-budget={DRAWN_MS}",
                f"--window-size={width},{height}",
                f"--screenshot={file.resolve()}",
                framed(part, width, height).as_uri(),
            ]
            subprocess.run(command, check=True, capture_output=True)
            print(file)


def framed(page: Path, width: int, height: int) -> Path:
    """Writes a file next to ``page`` that shows it in a frame, since no window of Chromium is
    narrower than 500 pixels. A message that ``page`` posts to its parent becomes ``#probe``."""
    frame = page.with_name(f"{page.stem}_{width}.html")
    frame.write_text(FRAME.format(page=page.as_uri(), width=width, height=height), "utf-8")
    return frame


def alone(html: str, place: str) -> str:
    """Returns the page with all sections hidden except ``place``, since Chromium's picture of a
    scrolled page is empty. The style is in the head, so that it applies before charts are drawn."""
    hidden = f"<style>main > section:not(#{place}) {{ display: none }}</style>"
    return html.replace("</head>", f"{SEEN}{hidden}</head>", 1)


if __name__ == "__main__":
    main()
