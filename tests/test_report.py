import csv
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stages import report
from stages.core.artifacts import read_json
from stages.evaluation.records import ScoredTrial, SkippedMethod, read, write
from stages.findings.results import load
from stages.reporting.figures import gallery
from tests.small_study import run_stage
from tests.synthetic_study import RUNS, public, raw_params, write_study

pytestmark = pytest.mark.slow

COLUMNS = (
    "study,run,architecture,objective,method,task,corpus,pretrain_seed,finetune_seed,"
    "label_budget,num_params,num_trained_params,pretrain_tokens,pretrain_flops,"
    "lineage_tokens,lineage_flops,finetune_flops,lr,"
    "num_pretrained_params,used_architecture,lineage_bytes,"
    "best_epoch,num_epochs,num_steps,last_train_loss,best_is_last,chosen_in_warmup,"
    "still_improving,converged,C,num_tries,at_edge,metric,value,calibration_error,"
    "rare_class,average_precision,recall_at_precision"
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
        run_stage(write_study(root, on_one_task()), report)
        yield root / "reports"


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The params of a small study, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return raw_params(SOME)


WITHOUT_MLFLOW = """
from stages import report
from stages.core.plans import ReportPlan, read_plan

report.reconcile = lambda params, **_: True
report.main(read_plan(ReportPlan, "report"))
"""


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out pictures and MLflow, which take longest and which most tests do not need."""
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"></svg>'
    monkeypatch.setattr("stages.reporting.figures.gallery.draw", lambda picture, **_: svg)
    monkeypatch.setattr("stages.report.reconcile", lambda params, **_: True)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def own_text(path: Path) -> str:
    """Returns the text of a page without the runtime of its charts, which others wrote."""
    runtime = r'<script id="runtime">.*?</script>'
    return re.sub(runtime, "", path.read_text(), flags=re.DOTALL)


def test_trials_csv_has_a_row_for_each_trial(reported: Path) -> None:
    assert (reported / "trials.csv").read_text().splitlines()[0] == COLUMNS
    trials = rows(reported / "trials.csv")
    assert len(trials) == 7 * 2 * 5 + 2 * 5  # a baseline for each draw of labelled rows
    assert {row["study"] for row in trials} == {"synthetic"}


def test_costs_csv_has_the_keys_of_trials_and_no_baselines(reported: Path) -> None:
    costs = rows(reported / "costs.csv")
    assert list(costs[0])[:10] == COLUMNS.split(",")[:10]
    assert len(costs) == 7 * 2 * 5
    assert all(float(row["wall_time_s"]) > 0 < float(row["peak_memory_bytes"]) for row in costs)


def test_figures_are_one_comparison_and_a_folder_of_others(reported: Path) -> None:
    pictures = reported / "figures"
    assert sorted(path.name for path in pictures.iterdir()) == ["comparison.svg", "more"]
    more = {path.name for path in (pictures / "more").iterdir()}
    assert {"comparison.png", "scores_type_200.svg", "curves_type_full_200.png"} <= more
    assert {"forest.svg", "cost_type_200.png", "parameters_type_200.svg"} <= more
    assert {"pretraining_tokens.png", "pretraining_flops.svg"} <= more


def test_summary_json_is_flat_and_agrees_with_the_tables(reported: Path) -> None:
    summary = read_json(reported / "summary.json")
    (answer,) = (row for row in rows(reported / "answer.csv") if row["label_budget"] == "200")
    contrasts = rows(reported / "contrasts.csv")
    here = [r for r in contrasts if (r["axis"], r["label_budget"]) == ("pretrained", "200")]
    pretrained = max(here, key=lambda row: float(row["mean_a"]))
    costs = rows(reported / "costs.csv")
    checkpoints = {(row["run"], row["pretrain_seed"]): row for row in costs}.values()
    seconds = sum(float(row["processor_time_s"]) for row in costs)
    seconds += sum(float(row["pretrain_processor_time_s"]) for row in checkpoints)
    assert summary == {
        "type.score": pytest.approx(float(answer["mean"]), abs=1e-4),
        "type.gain": pytest.approx(float(pretrained["effect"]), abs=1e-4),
        "minutes": pytest.approx(seconds / 60, abs=0.1),
    }


def test_metrics_json_has_only_numbers(reported: Path) -> None:
    def leaves(node: Any) -> Iterator[Any]:
        for value in node.values():
            yield from leaves(value) if isinstance(value, dict) else [value]

    assert {type(leaf) for leaf in leaves(read_json(reported / "metrics.json"))} == {float, int}


def test_reports_have_no_nan(reported: Path) -> None:
    for path in reported.rglob("*"):
        if path.suffix in (".csv", ".json", ".md", ".html", ".svg"):
            text = own_text(path)
            assert not re.search(r"\bnan\b|\binf\b|NaN|undefined|None", text), path


def test_report_has_the_same_bytes_in_another_process(reported: Path, tmp_path: Path) -> None:
    """The other process has another hash seed, so that no set decides an order."""
    write_study(tmp_path, on_one_task())
    (tmp_path / "params.yaml").write_text(json.dumps(on_one_task()))
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    command = [sys.executable, "-c", WITHOUT_MLFLOW]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    written = {path.relative_to(reported) for path in reported.rglob("*") if path.is_file()}
    again = tmp_path / "reports"
    assert {path.relative_to(again) for path in again.rglob("*") if path.is_file()} == written
    assert len(written) == 19 + 2 * 8  # a picture is an SVG and a PNG
    for path in written:
        assert (again / path).read_bytes() == (reported / path).read_bytes(), path


def test_report_without_address_space_for_figures_has_all_but_them(
    reported: Path, tmp_path: Path
) -> None:
    """V8, which draws figures, would abort the process."""
    write_study(tmp_path, on_one_task())
    (tmp_path / "params.yaml").write_text(json.dumps(on_one_task()))
    command = ["sh", "-c", 'ulimit -v 16000000; exec "$@"', "-", sys.executable, "-c"]
    done = subprocess.run(
        [*command, WITHOUT_MLFLOW], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert "No figure is drawn" in done.stderr and "Traceback" not in done.stderr
    again = tmp_path / "reports"
    assert "Not drawn" in (again / "figures/comparison.svg").read_text()
    assert not [*again.rglob("*.png")]
    for path in (*again.glob("*.csv"), again / "comparison.md"):
        assert path.read_bytes() == (reported / path.name).read_bytes(), path
    assert "Not drawn" in own_text(again / "index.html")


@pytest.mark.usefixtures("undrawn")
def test_report_shows_times_only_in_costs_and_the_page(
    small: dict[str, Any], tmp_path: Path
) -> None:
    def contents() -> dict[str, bytes]:
        files = (path for path in Path("reports").rglob("*") if path.is_file())
        return {path.name: path.read_bytes() for path in files}

    params = write_study(tmp_path, small)
    run_stage(params, report)
    before = contents()
    timing = Path("data/timings/pretrain/encoder_mlm/1.json")
    timing.write_text(timing.read_text().replace("61.5", "75.5"))
    run_stage(params, report)
    after = contents()
    changed = {name for name in after if after[name] != before[name]}
    assert changed <= {"costs.csv", "index.html", "summary.json"} >= {"costs.csv", "index.html"}


def leave_out(run: str, seed: int) -> None:
    """Removes the evaluated trials of one run, or of none (""), and of one seed, or of none (0)."""
    path = Path("data/evaluated/tag/trials.csv")
    trials = read(path, ScoredTrial)
    write(path, ScoredTrial, [t for t in trials if t.run != run and t.finetune_seed != seed])


@pytest.mark.parametrize(
    "path",
    [
        "evaluated/type/trials.csv",
        "timings/finetune/tag/encoder_mlm.csv",
        "timings/pretrain/encoder_mlm/1.json",
        "progress/history/encoder_mlm/1.csv",
        "progress/samples/encoder_scratch/1.jsonl",
    ],
)
def test_report_names_a_file_that_is_missing(
    small: dict[str, Any], tmp_path: Path, path: str
) -> None:
    params = write_study(tmp_path, small)
    Path("data", path).unlink()
    with pytest.raises(ValueError, match=rf"^data/{re.escape(path)}: missing; run `dvc repro`"):
        run_stage(params, report)
    assert not Path("reports").exists()


@pytest.mark.parametrize(
    ("run", "seed", "message"),
    [
        ("encoder_scratch", 0, r"no trial of encoder_scratch, seed 1 on tag .* and 9 more"),
        ("", 3, r"no trial of encoder_mlm, seed 1 on tag .*seed 3"),
    ],
)
def test_report_names_trials_that_are_missing(
    small: dict[str, Any], tmp_path: Path, run: str, seed: int, message: str
) -> None:
    params = write_study(tmp_path, small)
    leave_out(run, seed)
    with pytest.raises(ValueError, match=rf"tag/trials\.csv: {message}"):
        run_stage(params, report)
    assert not Path("reports").exists()


def test_report_refuses_trials_that_params_do_not_list(
    small: dict[str, Any], tmp_path: Path
) -> None:
    """Such results are of other settings than those of params.yaml."""
    params = write_study(tmp_path, small)
    finetune = params.finetune.model_copy(update={"seeds": [1, 2]})
    with pytest.raises(ValueError, match="params.yaml does not list encoder_mlm.* on tag .*seed 3"):
        run_stage(params.model_copy(update={"finetune": finetune}), report)


@pytest.mark.usefixtures("undrawn")
def test_report_deletes_results_that_params_no_longer_list(
    small: dict[str, Any], tmp_path: Path
) -> None:
    more = raw_params()
    more["tasks"]["old"] = more["tasks"]["type"]
    write_study(tmp_path, raw_params())
    for name in ("evaluated/old", "timings/finetune/old"):
        (tmp_path / "data" / name).mkdir()
    (tmp_path / "data/evaluated/.gitignore").write_text("/tag\n")
    run_stage(write_study(tmp_path, small), report)
    folders = ("evaluated", "timings")  # the root stage cleans all other folders
    paths = [path for folder in folders for path in Path("data", folder).rglob("*")]
    left = [path.relative_to("data").as_posix() for path in paths]
    assert not any("old" in path or "decoder" in path or "scientific" in path for path in left)
    assert "evaluated/.gitignore" in left and "timings/pretrain/encoder_mlm/1.json" in left
    assert "decoder" not in Path("reports/index.html").read_text()


@pytest.mark.usefixtures("undrawn")
def test_report_of_a_single_seed_has_effects_without_intervals(
    small: dict[str, Any], tmp_path: Path
) -> None:
    small["finetune"]["seeds"] = [1]
    run_stage(write_study(tmp_path, small), report)
    for row in rows(Path("reports/contrasts.csv")):
        assert (row["low"], row["high"], row["p_value"], row["resolved"]) == ("", "", "", "no")
        assert row["verdict"] == "one trial: no interval" and float(row["effect"]) != 0
    assert "A single trial has no interval" in Path("reports/comparison.md").read_text()


@pytest.mark.usefixtures("undrawn")
def test_report_of_scores_without_spread_says_so(small: dict[str, Any], tmp_path: Path) -> None:
    run_stage(write_study(tmp_path, small, score=0.5), report)
    for row in rows(Path("reports/contrasts.csv")):
        assert (row["low"], row["high"], row["p_value"], row["resolved"]) == ("", "", "", "no")
        assert row["verdict"] == "all seeds agree: no interval" and float(row["effect"]) == 0
    assert "Where all seeds agree" in Path("reports/comparison.md").read_text()
    for path in Path("reports").glob("*.*"):
        assert not re.search(r"\bnan\b|NaN", own_text(path)), path


def test_report_names_a_score_that_is_no_number(small: dict[str, Any], tmp_path: Path) -> None:
    params = write_study(tmp_path, small, score=math.nan)
    with pytest.raises(
        ValueError, match=r"entity_f1 of encoder_mlm, seed 1 on tag \(full, 200 labels"
    ):
        run_stage(params, report)
    assert not Path("reports/trials.csv").exists()


@pytest.mark.usefixtures("undrawn")
def test_report_of_one_run_on_one_task(small: dict[str, Any], tmp_path: Path) -> None:
    small["runs"] = {"encoder_mlm": RUNS["encoder_mlm"]}
    small["tasks"] = {"tag": small["tasks"]["tag"]}
    small["finetune"]["methods"].popitem()
    run_stage(write_study(tmp_path, small), report)
    assert rows(Path("reports/contrasts.csv")) == []
    text = Path("reports/comparison.md").read_text()
    assert "encoder_mlm" in text
    assert "cover fine-tuning seeds and test rows" in text  # intervals of means, too


def test_report_leaves_a_gap_for_a_method_that_does_not_fit_a_run(
    small: dict[str, Any], tmp_path: Path
) -> None:
    """Tables, pictures and contrasts have all other trials."""
    small["runs"]["decoder_scratch"] = RUNS["decoder_scratch"]
    small["tasks"] = {"tag": small["tasks"]["tag"]}
    incompatible = [("encoder_scratch", "linear_probe"), ("decoder_scratch", "linear_probe")]
    params = write_study(tmp_path, small, incompatible=incompatible)
    run_stage(params, report)
    pairs = {(row["run"], row["method"]) for row in rows(Path("reports/trials.csv"))}
    runs = small["runs"]
    listed = {(run, method) for run in runs for method in ("full", "linear_probe")}
    assert listed - pairs == set(incompatible)
    contrasts = rows(Path("reports/contrasts.csv"))
    by_method = [row for row in contrasts if row["axis"] == "method"]
    assert {row["run_a"] for row in by_method} == {"encoder_mlm"}
    assert "linear_probe" not in {row["method"] for row in contrasts if row not in by_method}
    assert "curves_tag_linear_probe_200" not in gallery.pictures(load(params))
    test_reports_have_no_nan(Path("reports"))


def test_report_refuses_a_gap_that_no_method_explains(
    small: dict[str, Any], tmp_path: Path
) -> None:
    params = write_study(tmp_path, small, incompatible=[("encoder_scratch", "linear_probe")])
    write(Path("data/evaluated/tag/skipped.csv"), SkippedMethod, [])
    with pytest.raises(
        ValueError, match=r"no trial of encoder_scratch, seed 1 on tag \(linear_probe"
    ):
        run_stage(params, report)


@pytest.mark.usefixtures("undrawn")
def test_report_says_what_is_unknown_of_public_checkpoints(
    small: dict[str, Any], tmp_path: Path
) -> None:
    small["runs"] |= {"bert": public("google-bert/bert-base-uncased"), "gpt2": public("gpt2")}
    params = write_study(tmp_path, small)
    run_stage(params, report)
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
    assert curves and "google-bert" not in str(curves)  # no run from scratch has its model
    costs = [draw()["datasets"]["marks"] for name, draw in pictures.items() if "cost" in name]
    assert costs and not {"bert", "gpt2"} & {row["run"] for rows in costs for row in rows}
    assert "unknown: <code>bert</code>, <code>gpt2</code>." in page  # left out of the figures
    test_reports_have_no_nan(Path("reports"))


@pytest.mark.usefixtures("undrawn")
def test_report_has_no_curves_of_a_method_that_trains_nothing(
    small: dict[str, Any], tmp_path: Path
) -> None:
    small["finetune"]["methods"]["prompted"] = {"method": {"name": "in_context"}}
    params = write_study(tmp_path, small)
    run_stage(params, report)
    pictures = gallery.pictures(load(params))
    assert any("_full_" in name for name in pictures)
    assert not any("_prompted_" in name for name in pictures)
    contrasts = rows(Path("reports/contrasts.csv"))
    assert any(row["axis"] == "method" and "prompted" in row["method"] for row in contrasts)
    test_reports_have_no_nan(Path("reports"))
