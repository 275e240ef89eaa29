"""Charts fit their boxes after a resize, even if they were hidden at the time."""

from pathlib import Path

import pytest

from stages.reporting.page import pages
from tests.reporting.page.conftest import probed, with_script
from tests.study_results import undrawn
from tests.synthetic_study import METRICS, RUNS, raw_params

pytestmark = pytest.mark.slow

ALONE = "main > section:not(#answer):not(#scores)"  # hidden: a tall page takes long to draw
PROBE = """
<script>
const boxes = () => [...document.querySelectorAll("figure.live .chart")].filter(box => box.checkVisibility());
// Virtual time passes at once; work gives a frame some 30 ms in which a busy machine can draw it.
const work = () => { for (let i = 0, sum = 0; i < 3e7; i++) sum += i; };
// A frame and then some: observers are called with frames, which virtual time does not wait for.
const frame = () => Promise.race([
  new Promise(done => requestAnimationFrame(() => setTimeout(done, 50))),
  new Promise(done => setTimeout(() => { work(); done(); }, 500)),
]);
const width = box => box.querySelector("svg")?.clientWidth ?? 0;
const fits = box => box.dataset.form && width(box) <= box.clientWidth && width(box) >= box.clientWidth - 3;
const settled = async () => {
  await frame();
  for (let i = 0; i < 300 && !boxes().every(fits); i++) await frame();
  return boxes().map(box => [box.dataset.form, box.clientWidth, width(box)]);
};
const choose = budget => {
  const select = document.querySelector("#choose-budget");
  select.value = budget;
  select.dispatchEvent(new Event("change"));
};
(async () => {
  const found = {before: await settled()};
  choose("100"); // the charts of 200 labels are hidden
  await settled();
  document.querySelector("main").style.maxWidth = "460px";
  await settled();
  choose("200");
  found.narrower = await settled();
  document.querySelector("main").style.maxWidth = "";
  found.again = await settled();
  const probe = document.createElement("pre");
  probe.id = "probe";
  probe.textContent = JSON.stringify(found);
  document.body.append(probe);
})();
</script>
"""  # noqa: E501


def test_a_chart_that_was_hidden_while_the_page_changed_its_width_fits(
    browser: list[str], tmp_path: Path, study_of
) -> None:
    raw = raw_params({name: RUNS[name] for name in ("encoder_mlm", "encoder_scratch")})
    raw["finetune"]["label_budgets"] = [100, 200]
    results = study_of(raw=raw)
    html = pages.html(results, undrawn(results))
    html = html.replace("</head>", f"<style>{ALONE} {{ display: none }}</style></head>", 1)
    file = tmp_path / "index.html"
    file.write_text(with_script(html, PROBE), encoding="utf-8")
    options = ("--virtual-time-budget=600000", "--window-size=1280,3000")
    states = probed(browser, file, *options).found
    assert len(states["before"]) == len(METRICS)
    for state in ("before", "narrower", "again"):
        for form, box, chart in states[state]:
            assert form and box - 3 <= chart <= box, state
    assert states["again"] == states["before"]
    assert all(box < 460 for _, box, _ in states["narrower"])
    assert all(box > 460 for _, box, _ in states["before"])
