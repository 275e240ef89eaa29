import csv
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stages import report
from stages.core.artifacts import read_json
from stages.evaluation.records import ScoredTrial, SkippedMethod, read, write
from stages.reporting.comparison.results import load
from stages.reporting.figures import gallery
from tests.synthetic_study import RUNS, public, raw_params, write_study

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[1]
COLUMNS = (
    "study,run,architecture,objective,method,task,corpus,pretrain_seed,finetune_seed,"
    "label_budget,num_params,num_trained_params,pretrain_tokens,pretrain_flops,"
    "lineage_tokens,lineage_flops,finetune_flops,lr,"
    "num_pretrained_params,used_architecture,lineage_bytes,"
    "best_epoch,num_epochs,num_steps,last_train_loss,best_is_last,chosen_in_warmup,"
    "still_improving,converged,C,num_tries,at_edge,metric,value,calibration_error"
)
SOME = {name: RUNS[name] for name in ("encoder_mlm", "encoder_scratch")}


def on_one_task() -> dict[str, Any]:
    raw = raw_params()
    return raw | {"tasks": {"type": raw["tasks"]["type"]}}


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a study with its report, without MLflow."""
    root = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setattr("stages.report.reconcile", lambda params, **_: True)
        (root / "params.yaml").write_text(json.dumps(on_one_task()))
        report.main(write_study(root, on_one_task()))
        yield root / "reports"


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The params of a small study, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return raw_params(SOME)


WITHOUT_MLFLOW = """
from stages import report
from stages.core.params import load

report.reconcile = lambda params, **_: True
report.main(load())
"""


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests need no pictures and nothing in MLflow, which take longest."""
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"></svg>'
    monkeypatch.setattr("stages.reporting.figures.gallery.draw", lambda picture, **_: svg)
    monkeypatch.setattr("stages.report.reconcile", lambda params, **_: True)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def own_text(path: Path) -> str:
    """Of a page without the runtime of its charts, which others wrote."""
    runtime = r'<script id="runtime">.*?</script>'
    return re.sub(runtime, "", path.read_text(), flags=re.DOTALL)


def test_trials_have_exactly_their_columns_and_a_row_each(reported: Path) -> None:
    assert (reported / "trials.csv").read_text().splitlines()[0] == COLUMNS
    found = rows(reported / "trials.csv")
    assert len(found) == 7 * 2 * 5 + 2 * 5  # a baseline for each draw of labelled rows
    assert {row["study"] for row in found} == {"synthetic"}


def test_costs_have_the_keys_of_trials_and_no_baselines(reported: Path) -> None:
    found = rows(reported / "costs.csv")
    assert list(found[0])[:10] == COLUMNS.split(",")[:10]
    assert len(found) == 7 * 2 * 5
    assert all(float(row["wall_time_s"]) > 0 < float(row["peak_memory_bytes"]) for row in found)


def test_one_picture_stands_alone_and_the_others_in_a_folder(reported: Path) -> None:
    pictures = reported / "figures"
    assert sorted(path.name for path in pictures.iterdir()) == ["comparison.svg", "more"]
    more = {path.name for path in (pictures / "more").iterdir()}
    assert {"comparison.png", "scores_type_200.svg", "curves_type_full_200.png"} <= more
    assert {"forest.svg", "cost_type_200.png", "parameters_type_200.svg"} <= more
    assert {"pretraining_tokens.png", "pretraining_flops.svg"} <= more


def test_metrics_are_nothing_but_numbers(reported: Path) -> None:
    def leaves(node: Any) -> Iterator[Any]:
        for value in node.values():
            yield from leaves(value) if isinstance(value, dict) else [value]

    assert {type(leaf) for leaf in leaves(read_json(reported / "metrics.json"))} == {float, int}


def test_no_file_has_a_nan(reported: Path) -> None:
    for path in reported.rglob("*"):
        if path.suffix in (".csv", ".json", ".md", ".html", ".svg"):
            text = own_text(path)
            assert not re.search(r"\bnan\b|\binf\b|NaN|undefined|None", text), path


def test_another_process_writes_the_same_bytes(reported: Path, tmp_path: Path) -> None:
    """With another hash seed, so that no set decides an order."""
    write_study(tmp_path, on_one_task())
    (tmp_path / "params.yaml").write_text(json.dumps(on_one_task()))
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    command = [sys.executable, "-c", WITHOUT_MLFLOW]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    written = {path.relative_to(reported) for path in reported.rglob("*") if path.is_file()}
    again = tmp_path / "reports"
    assert {path.relative_to(again) for path in again.rglob("*") if path.is_file()} == written
    assert len(written) == 12 + 2 * 8  # a picture is an SVG and a PNG
    for path in written:
        assert (again / path).read_bytes() == (reported / path).read_bytes(), path


@pytest.mark.usefixtures("undrawn")
def test_times_change_costs_and_the_page_alone(small: dict[str, Any], tmp_path: Path) -> None:
    def contents() -> dict[str, bytes]:
        files = (path for path in Path("reports").rglob("*") if path.is_file())
        return {path.name: path.read_bytes() for path in files}

    params = write_study(tmp_path, small)
    report.main(params)
    before = contents()
    timing = Path("data/timings/pretrain/encoder_mlm.json")
    timing.write_text(timing.read_text().replace("61.5", "75.5"))
    report.main(params)
    after = contents()
    assert {name for name in after if after[name] != before[name]} == {"costs.csv", "index.html"}


def _no_task() -> None:
    Path("data/evaluated/type/trials.csv").unlink()


def _no_run() -> None:
    path = Path("data/evaluated/tag/trials.csv")
    write(path, ScoredTrial, [t for t in read(path, ScoredTrial) if t.run != "encoder_scratch"])


def _no_seed() -> None:
    path = Path("data/evaluated/tag/trials.csv")
    write(path, ScoredTrial, [t for t in read(path, ScoredTrial) if t.finetune_seed != 3])


def _no_timing() -> None:
    Path("data/timings/finetune/tag/encoder_mlm.csv").unlink()


def _no_history() -> None:
    Path("data/progress/history/encoder_mlm.csv").unlink()


def _no_samples() -> None:
    Path("data/progress/samples/encoder_scratch.jsonl").unlink()


def _no_pretraining_timing() -> None:
    Path("data/timings/pretrain/encoder_mlm.json").unlink()


@pytest.mark.parametrize(
    "break_it, message",
    [
        (_no_task, r"data/evaluated/type/trials\.csv: missing; run `dvc repro`"),
        (_no_run, r"tag/trials\.csv: no trial of encoder_scratch on tag .* and 9 more"),
        (_no_seed, r"tag/trials\.csv: no trial of encoder_mlm on tag .*seed 3"),
        (_no_timing, r"data/timings/finetune/tag/encoder_mlm\.csv: missing"),
        (_no_history, r"data/progress/history/encoder_mlm\.csv: missing; run `dvc repro`"),
        (_no_samples, r"data/progress/samples/encoder_scratch\.jsonl: missing; run `dvc repro`"),
        (_no_pretraining_timing, r"data/timings/pretrain/encoder_mlm\.json: missing"),
    ],
)
def test_what_is_missing_is_named_and_nothing_is_written(
    small: dict[str, Any], tmp_path: Path, break_it: Callable[[], None], message: str
) -> None:
    params = write_study(tmp_path, small)
    break_it()
    with pytest.raises(ValueError, match=message):
        report.main(params)
    assert not Path("reports").exists()


def test_trials_that_params_do_not_list_are_refused(small: dict[str, Any], tmp_path: Path) -> None:
    """The results are then of other settings than those that stand in the file."""
    write_study(tmp_path, small)
    small["finetune"]["seeds"] = [1, 2]
    params = type(write_study(tmp_path / "elsewhere", small))(**small)
    with pytest.raises(ValueError, match="params.yaml does not list encoder_mlm on tag .*seed 3"):
        report.main(params)


@pytest.mark.usefixtures("undrawn")
def test_leftovers_of_what_params_no_longer_list_are_deleted(
    small: dict[str, Any], tmp_path: Path
) -> None:
    more = raw_params()
    more["tasks"]["old"] = more["tasks"]["type"]
    write_study(tmp_path, raw_params())
    for name in ("evaluated/old", "timings/finetune/old"):
        (tmp_path / "data" / name).mkdir()
    (tmp_path / "data/evaluated/.gitignore").write_text("/tag\n")
    report.main(write_study(tmp_path, small))
    folders = ("evaluated", "plans", "timings")  # of the others, check_params deletes them
    found = [path for folder in folders for path in Path("data", folder).rglob("*")]
    left = [path.relative_to("data").as_posix() for path in found]
    assert not any("old" in path or "decoder" in path or "scientific" in path for path in left)
    assert "evaluated/.gitignore" in left and "timings/pretrain/encoder_mlm.json" in left
    assert "decoder" not in Path("reports/index.html").read_text()


@pytest.mark.usefixtures("undrawn")
def test_a_single_seed_gives_effects_without_intervals(
    small: dict[str, Any], tmp_path: Path
) -> None:
    small["finetune"]["seeds"] = [1]
    report.main(write_study(tmp_path, small))
    for row in rows(Path("reports/contrasts.csv")):
        assert (row["low"], row["high"], row["p_value"], row["resolved"]) == ("", "", "", "no")
        assert row["verdict"] == "one trial: no interval" and float(row["effect"]) != 0
    assert "A single trial has no interval" in Path("reports/comparison.md").read_text()


@pytest.mark.usefixtures("undrawn")
def test_scores_without_spread_say_so(small: dict[str, Any], tmp_path: Path) -> None:
    report.main(write_study(tmp_path, small, score=0.5))
    for row in rows(Path("reports/contrasts.csv")):
        assert (row["low"], row["high"], row["p_value"], row["resolved"]) == ("", "", "", "no")
        assert row["verdict"] == "all seeds agree: no interval" and float(row["effect"]) == 0
    assert "Where all seeds agree" in Path("reports/comparison.md").read_text()
    for path in Path("reports").glob("*.*"):
        assert not re.search(r"\bnan\b|NaN", own_text(path)), path


def test_a_score_that_is_no_number_is_named(small: dict[str, Any], tmp_path: Path) -> None:
    params = write_study(tmp_path, small, score=math.nan)
    with pytest.raises(ValueError, match=r"entity_f1 of encoder_mlm on tag \(full, 200 labels"):
        report.main(params)
    assert not Path("reports/trials.csv").exists()


@pytest.mark.usefixtures("undrawn")
def test_one_run_on_one_task_is_a_study(small: dict[str, Any], tmp_path: Path) -> None:
    small["pretrain"] = {"encoder_mlm": RUNS["encoder_mlm"]}
    small["tasks"] = {"tag": small["tasks"]["tag"]}
    small["finetune"]["methods"].popitem()
    report.main(write_study(tmp_path, small))
    assert rows(Path("reports/contrasts.csv")) == []
    text = Path("reports/comparison.md").read_text()
    assert "encoder_mlm" in text
    assert "cover fine-tuning seeds and test rows" in text  # of means, too


def test_a_method_that_does_not_fit_a_run_leaves_a_gap(
    small: dict[str, Any], tmp_path: Path
) -> None:
    """In the tables, pictures and contrasts, which are those of all other trials."""
    small["pretrain"]["decoder_scratch"] = RUNS["decoder_scratch"]
    small["tasks"] = {"tag": small["tasks"]["tag"]}
    incompatible = [("encoder_scratch", "linear_probe"), ("decoder_scratch", "linear_probe")]
    params = write_study(tmp_path, small, incompatible=incompatible)
    report.main(params)
    found = {(row["run"], row["method"]) for row in rows(Path("reports/trials.csv"))}
    runs = small["pretrain"]
    listed = {(run, method) for run in runs for method in ("full", "linear_probe")}
    assert listed - found == set(incompatible)
    contrasts = rows(Path("reports/contrasts.csv"))
    by_method = [row for row in contrasts if row["axis"] == "method"]
    assert {row["run_a"] for row in by_method} == {"encoder_mlm"}
    assert "linear_probe" not in {row["method"] for row in contrasts if row not in by_method}
    assert "curves_tag_linear_probe_200" not in gallery.pictures(load(params))
    test_no_file_has_a_nan(Path("reports"))


def test_a_gap_that_no_method_explains_is_refused(small: dict[str, Any], tmp_path: Path) -> None:
    params = write_study(tmp_path, small, incompatible=[("encoder_scratch", "linear_probe")])
    write(Path("data/evaluated/tag/skipped.csv"), SkippedMethod, [])
    with pytest.raises(ValueError, match=r"no trial of encoder_scratch on tag \(linear_probe"):
        report.main(params)


@pytest.mark.usefixtures("undrawn")
def test_what_nobody_knows_of_public_checkpoints_is_said_to_be_unknown(
    small: dict[str, Any], tmp_path: Path
) -> None:
    small["pretrain"] |= {"bert": public("google-bert/bert-base-uncased"), "gpt2": public("gpt2")}
    params = write_study(tmp_path, small)
    report.main(params)
    trials = [row for row in rows(Path("reports/trials.csv")) if row["run"] == "bert"]
    keys = ("objective", "corpus", "pretrain_tokens", "pretrain_flops")
    assert {tuple(row[key] for key in keys) for row in trials} == {
        ("hub", "google-bert/bert-base-uncased", "", "")
    }
    page, markdown = (Path("reports", n).read_text() for n in ("index.html", "comparison.md"))
    assert "unknown" in page and "google-bert/bert-base-uncased" in markdown
    assert "## Checkpoint" in markdown
    pictures = gallery.pictures(load(params))
    curves = [draw() for name, draw in pictures.items() if "curve" in name]
    assert curves and "google-bert" not in str(curves)  # beside it no run is from scratch
    costs = [draw()["datasets"]["marks"] for name, draw in pictures.items() if "cost" in name]
    assert costs and not {"bert", "gpt2"} & {row["run"] for rows in costs for row in rows}
    assert "unknown: <code>bert</code>, <code>gpt2</code>." in page  # left out of the figures
    test_no_file_has_a_nan(Path("reports"))


@pytest.mark.usefixtures("undrawn")
def test_a_method_that_trains_nothing_has_scores_and_no_curves(
    small: dict[str, Any], tmp_path: Path
) -> None:
    small["finetune"]["methods"]["prompted"] = {"method": {"name": "in_context"}}
    params = write_study(tmp_path, small)
    report.main(params)
    pictures = gallery.pictures(load(params))
    assert any("_full_" in name for name in pictures)
    assert not any("_prompted_" in name for name in pictures)
    found = rows(Path("reports/contrasts.csv"))
    assert any(row["axis"] == "method" and "prompted" in row["method"] for row in found)
    test_no_file_has_a_nan(Path("reports"))
