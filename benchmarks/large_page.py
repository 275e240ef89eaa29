"""Measures the page of a large study: its size, and how soon a browser has drawn its first screen.

Writes a synthetic study of about 500 or 50,000 trials and its page, whose pictures (not the charts)
are left out, opens it in Chromium without a screen, and prints what the browser measured. Times of
Python are those of the processor, which other work on the machine changes little. A study that is
already in the folder is reused. The result of a run by hand is in large_page.md:

    python -m benchmarks.large_page --trials 500 --folder .scratch/large
"""

import argparse
import copy
import os
import subprocess
import tempfile
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import product
from pathlib import Path
from typing import Any

from stages.core.params import Params
from stages.findings.results import load
from stages.reporting.figures import gallery
from stages.reporting.page import pages
from tests import synthetic_study
from tests.browser import browser_command
from tests.synthetic_study import raw_params, repeated, run, write_study

PICTURE = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"></svg>'
EMPTY = "<!DOCTYPE html><html><body>A page of one line, for comparison.</body></html>"
PAINTS = 5  # measurements in the browser, of which the median is printed
# Sent when the first screen is drawn and the page's own script has run.
PROBE = """<script>
addEventListener("load", () => setTimeout(() => {
  const ready = performance.now();
  const send = () => {
    const paint = performance.getEntriesByName("first-contentful-paint")[0];
    if (!paint) return setTimeout(send, 20);
    new Image().src = `http://127.0.0.1:PORT/${Math.round(paint.startTime)}/${Math.round(ready)}`;
  };
  send();
}, 0));
</script>"""


def study(trials: int) -> dict[str, Any]:
    """Returns a study of two architectures in three sizes on one or on twelve training sets."""
    large = trials > 10_000  # noqa: PLR2004
    corpora = [f"text_{i}" for i in range(12)] if large else ["all"]
    runs = {}
    for d_model, (name, objective) in product(
        (192, 96, 48), (("encoder", "mlm"), ("decoder", "causal"))
    ):
        for corpus in corpora:
            runs[f"{name}_{d_model}_{corpus}"] = run(name, objective, corpus, d_model)
        runs[f"{name}_{d_model}_scratch"] = run(name, "none", "none", d_model)
    if large:
        synthetic_study.METRICS |= {f"task_{i}": "macro_f1" for i in range(3)}
    raw = raw_params(repeated(runs, 5 if large else 2))
    raw["corpora"] |= {corpus: copy.deepcopy(raw["corpora"]["all"]) for corpus in corpora}
    raw["finetune"]["seeds"] = [1, 2, 3, 4, 5] if large else [1, 2, 3]
    raw["finetune"]["label_budgets"] = [50, 200] if large else [200]
    return raw


def first_paint(page: Path) -> tuple[int, int]:
    """Returns milliseconds until the first screen is drawn, and until the page is ready."""
    sent: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.extend(self.path.strip("/").split("/"))
            self.send_response(204)
            self.end_headers()

    server = HTTPServer(("127.0.0.1", 0), Answer)
    server.timeout = 300
    html = page.read_text().replace("default-src 'none'", "default-src *", 1)
    html = html.replace("img-src data:", "img-src *", 1)
    body, end, rest = html.rpartition("</body>")
    with tempfile.TemporaryDirectory() as folder:
        probed = Path(folder, "index.html")
        probed.write_text(f"{body}{PROBE.replace('PORT', str(server.server_port))}{end}{rest}")
        command = [*browser_command(Path(folder, "profile")), "--window-size=1280,800"]
        # A port to wait on keeps the browser open.
        browser = subprocess.Popen(
            [*command, "--remote-debugging-port=0", probed.as_uri()], stderr=subprocess.DEVNULL
        )
        try:
            server.handle_request()
        finally:
            browser.terminate()
            browser.wait()
    paint, ready = map(int, sent)
    return paint, ready


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500, choices=[500, 50_000])
    parser.add_argument("--folder", type=Path, required=True, help="of the study and its page")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    os.chdir(options.folder)
    synthetic_study.NUM_TEST = 100
    raw, begin = study(options.trials), time.process_time()
    params = Params(**raw) if Path("data").exists() else write_study(Path(), raw)
    print(f"study in {time.process_time() - begin:.0f} s", flush=True)
    begin = time.process_time()
    results = load(params)
    names = gallery.pictures(results)
    print(
        f"{len(results.trials):,} trials, {len(results.scores.cells):,} means, "
        f"{len(results.contrasts):,} contrasts in {time.process_time() - begin:.0f} s",
        flush=True,
    )
    for name, write in (
        ("comparison.md", lambda: pages.markdown(results)),
        ("index.html", lambda: pages.html(results, dict.fromkeys(names, PICTURE))),
    ):
        begin = time.process_time()
        text = write()
        took = time.process_time() - begin
        Path(name).write_text(text)
        print(f"{name}: {len(text.encode()) / 1e6:.2f} MB in {took:.0f} s", flush=True)
    Path("empty.html").write_text(EMPTY)
    times_by_page: dict[str, list[tuple[int, int]]] = {"empty.html": [], "index.html": []}
    for page, times in list(times_by_page.items()) * PAINTS:
        times.append(first_paint(Path(page)))
    for page, times in times_by_page.items():
        paints, ready = (sorted(each) for each in zip(*times, strict=True))
        print(
            f"{page}: first screen after {paints[PAINTS // 2]} ms ({paints[0]} to {paints[-1]}), "
            f"ready after {ready[PAINTS // 2]} ms ({ready[0]} to {ready[-1]})"
        )


if __name__ == "__main__":
    main()
