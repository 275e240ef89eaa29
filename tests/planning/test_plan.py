import io
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rich.console import Console

from stages.commands import plan
from stages.core.artifacts import write_json
from stages.core.params import Params, load
from stages.evaluation import records
from stages.planning import estimate, speed, tables
from stages.planning.calibration import Calibration, TimeAndMemory, stand_in
from stages.planning.finetuning_costs import Finetuning, finetunings
from stages.planning.pending import pending
from stages.planning.pretraining_costs import Pretraining, pretrainings
from stages.planning.run_sizes import objective_of, random_batch
from stages.planning.speed import (
    CALIBRATION,
    OWN,
    OWN_STAGE,
    SAME_ARCHITECTURE,
    SAME_KIND,
    Other,
)
from stages.sources.installed_docs import InstalledDocs
from tests.project import AFTER_THE_DECODER, Project, clone_of_working_tree
from tests.small import with_encoder_decoder
from tests.small_study import write_study

pytestmark = pytest.mark.filterwarnings("ignore:_NoneStep:DeprecationWarning")  # DVC's own

ROOT = Path(__file__).parents[2]
EVERY = ("stages", "pretrain", "finetune", "others", "totals")
SPEED, HELD = 1e9, 10**10  # operations a second, and bytes


class Known(Calibration):
    """One that finds a billion operations a second."""

    def pretraining(self, cost: Pretraining) -> TimeAndMemory | None:
        return None if cost.flops is None else TimeAndMemory(cost.flops / SPEED, HELD)

    def finetuning(self, cost: Finetuning) -> TimeAndMemory | None:
        return None if cost.flops is None else TimeAndMemory(cost.flops / SPEED, HELD)


class Tried(NamedTuple):
    """A study that is calibrated, each of its models once for all tests."""

    params: Params
    pretraining: dict[str, Pretraining]
    finetuning: list[Finetuning]
    calibration: Calibration


@pytest.fixture
def smoke(monkeypatch: pytest.MonkeyPatch) -> Params:
    monkeypatch.chdir(ROOT)  # a source's path is relative to the project
    return with_encoder_decoder(load(ROOT / "studies" / "smoke.yaml"))


@pytest.fixture
def fresh(smoke: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """In a folder where nothing has run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(estimate, "Calibration", Known)
    documentation_is_read(monkeypatch)
    return smoke


def documentation_is_read(monkeypatch: pytest.MonkeyPatch, *, seconds: float = 0.0) -> None:
    """All but what takes so long yet."""
    Path("requirements.lock").touch()

    def reading_s(source: InstalledDocs, read: set[str]) -> float:
        unread = {*source.packages} - read
        read |= unread
        return seconds * len(unread)

    monkeypatch.setattr(InstalledDocs, "reading_s", reading_s)


def every_stage(params: Params) -> list[str]:
    return [f"pretrain@{run}" for run in params.pretrain] + [
        f"finetune@{task}" for task in params.tasks
    ]


def screen(params: Params, stages: list[str]) -> list[str]:
    shown = io.StringIO()
    tables.show(estimate.made(params, stages), Console(file=shown, width=100))
    return shown.getvalue().splitlines()


def rows(params: Params) -> dict[str, list[str]]:
    """The cells of each run's line, where nothing is to run."""
    lines = [line.split() for line in screen(params, [])]
    return {cells[0]: cells[1:] for cells in lines if cells and cells[0] in params.pretrain}


def test_each_run_has_a_line_of_its_own(fresh: Params) -> None:
    found = rows(fresh)
    assert list(found) == list(fresh.pretrain)
    assert found["encoder_mlm"][0] == "mlm"
    assert found["encoder_scratch"][3:6] == ["–", "–", "–"]
    assert found["decoder_causal"][4] == "0.04M"


@pytest.mark.slow
def test_what_a_public_checkpoint_took_is_nobodys_plan(fresh: Params) -> None:
    model = {"name": "hub", "path": "openai-community/gpt2", "revision": "0" * 40}
    public = fresh.pretrain["encoder_scratch"].model_copy(
        update={"model": model, "tokenizer": "none"}
    )
    params = fresh.model_copy(update={"pretrain": {**fresh.pretrain, "gpt2": public}})
    assert rows(params)["gpt2"] == ["hub", "–", "–", "–", "–", "–", "done", "–"]
    record = estimate.as_record(estimate.made(params, every_stage(params)))
    assert record["totals"]["all"]["unknown"] == 1 + len(params.tasks) * 2  # methods


def test_a_run_takes_what_all_of_its_learning_rates_take(fresh: Params) -> None:
    run = fresh.pretrain["encoder_mlm"]
    training = run.training.model_copy(update={"lr": [1e-3, 3e-3, 1e-2]})
    runs = fresh.pretrain | {"encoder_mlm": run.model_copy(update={"training": training})}
    found = [
        {cost.run: cost for cost in pretrainings(params)}["encoder_mlm"]
        for params in (fresh, fresh.model_copy(update={"pretrain": runs}))
    ]
    one, three = ([c.num_steps, c.tokens, c.flops, c.validation_flops] for c in found)
    assert three == [3 * number for number in one if number is not None]
    assert found[0].memory_bytes == found[1].memory_bytes
    assert found[0].disk_bytes == found[1].disk_bytes


@pytest.mark.slow
def test_matched_operations_are_alike(fresh: Params) -> None:
    budget = fresh.budget.model_copy(update={"matched": "flops"})
    found = rows(fresh.model_copy(update={"budget": budget}))
    trained = [found[key] for key in ("encoder_mlm", "decoder_causal", "encoder_decoder_span")]
    spent = [float(row[5]) for row in trained]
    assert max(spent) < 1.06 * min(spent)  # one step of the largest in about 20
    assert len({row[3] for row in trained}) > 1


def test_a_faulty_study_is_refused(smoke: Params) -> None:
    budget = smoke.budget.model_copy(update={"reference": "bert"})
    with pytest.raises(ValueError, match=r"budget\.reference: unknown 'bert'"):
        plan.checked(smoke.model_copy(update={"budget": budget}))


def test_steps_and_tokens_of_fine_tuning_are_those_of_its_settings(fresh: Params) -> None:
    (full,) = (
        cost
        for cost in finetunings(fresh)
        if (cost.run, cost.task, cost.method) == ("encoder_mlm", "tag", "full")
    )
    # 50 labels in batches of 16 for 3 epochs, 2 seeds; each text of the 64 tokens that it may have.
    assert (full.num_trials, full.num_steps, full.tokens) == (2, 2 * 3 * 4, 2 * 3 * 50 * 64)
    assert full.assumes_lengths
    (probe,) = (
        cost
        for cost in finetunings(fresh)
        if (cost.run, cost.task, cost.method) == ("encoder_mlm", "tag", "linear_probe")
    )
    assert full.flops is not None and probe.flops is not None
    assert (
        full.flops == 9 * probe.flops
    )  # forward and backward in each of 3 epochs, or forward once


@pytest.mark.slow
def test_what_nobody_has_counted_is_left_out_and_said(fresh: Params) -> None:
    """All rows of a file: those to predict are left out, those to train on leave nothing."""
    tag = fresh.tasks["tag"].model_copy(update={"num_train": "all", "num_test": "all"})
    params = fresh.model_copy(update={"tasks": {"tag": tag}})
    found = made(params)
    assert all(cost.leaves_out_rows and cost.seconds for cost in found.finetune)
    assert any("the prediction of all rows" in line for line in tables.notes(found))
    settings = fresh.finetune.model_copy(update={"label_budgets": ["all"]})
    found = made(params.model_copy(update={"finetune": settings}))
    assert all(cost.seconds is None and cost.num_steps is None for cost in found.finetune)
    total = estimate.totals(found)["finetune"]
    assert total["seconds"] is None and total["unknown"] == len(found.finetune)


@pytest.mark.slow
def test_texts_that_are_prepared_are_as_long_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    params = write_study(tmp_path, lr=1e-3)
    prepared = [cost for cost in finetunings(params) if cost.run == "encoder_scratch"]
    assert prepared
    for cost in prepared:
        assert not cost.assumes_lengths
        assert cost.text_tokens is not None
        # A probe reads them in larger batches, padded to the longest.
        assert 3 < cost.text_tokens < (64 if cost.method == "full" else 65)


@pytest.mark.slow
def test_what_will_be_cut_of_prepared_texts_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    documentation_is_read(monkeypatch)
    params = write_study(tmp_path, lr=1e-3)

    def cut(max_tokens: int) -> list[str]:
        finetune = params.finetune.model_copy(update={"max_tokens": max_tokens})
        changed = params.model_copy(update={"finetune": finetune})
        return [*tables.cut_texts(estimate.made(changed, []))]

    assert cut(200) == []
    lines = cut(6)
    assert lines and all("finetune.max_tokens 6" in line for line in lines)
    assert {task for task in params.tasks if any(f" {task} " in line for line in lines)} == {
        *params.tasks
    }


@pytest.mark.slow
def test_more_labels_than_were_prepared_are_counted_as_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after another study was copied over params.yaml."""
    monkeypatch.chdir(tmp_path)
    documentation_is_read(monkeypatch)
    params = write_study(tmp_path, lr=1e-3)
    few = finetunings(params)[0]
    tasks = {key: task.model_copy(update={"num_train": 9000}) for key, task in params.tasks.items()}
    settings = params.finetune.model_copy(update={"label_budgets": [4500]})
    larger = params.model_copy(update={"tasks": tasks, "finetune": settings})
    stages = [f"prepare_task@{task}" for task in tasks]
    found = estimate.made(larger, stages).finetune[0]
    assert few.num_steps is not None and found.num_steps is not None
    assert found.text_tokens == pytest.approx(few.text_tokens, rel=0.3)  # of the same texts
    assert found.num_steps > 10 * few.num_steps
    with pytest.raises(ValueError, match="4500 labels, but"):
        estimate.made(larger, [])


@pytest.mark.slow
def test_the_time_of_a_run_is_what_it_took_before(fresh: Params) -> None:
    """Of half as many operations as it has now, in 10 seconds."""
    (mlm,) = (cost for cost in pretrainings(fresh) if cost.run == "encoder_mlm")
    assert mlm.flops is not None
    write_timing("encoder_mlm", flops=mlm.flops // 2, seconds=10.0)
    found = made(fresh).pretrain
    times = {cost.run: (cost.seconds, cost.speed_from) for cost in found}
    seconds, source = times["encoder_mlm"]
    assert seconds == pytest.approx(20.0) and source == OWN
    assert times["encoder_scratch"] == (None, None)
    assert times["decoder_causal"][1] == CALIBRATION


def test_a_new_run_is_as_fast_as_those_of_its_architecture(fresh: Params) -> None:
    write_timing("an_earlier_run", flops=1000, seconds=2.0)
    found = {cost.run: cost for cost in made(fresh).pretrain}
    cost = found["encoder_mlm"]
    assert cost.speed_from == SAME_ARCHITECTURE
    assert cost.flops is not None and cost.seconds == pytest.approx(cost.flops / 500)


@pytest.mark.slow
def test_times_of_another_device_tell_nothing(fresh: Params) -> None:
    write_timing("encoder_mlm", flops=1000, seconds=2.0, device="abacus")
    found = {cost.run: cost for cost in made(fresh).pretrain}
    assert found["encoder_mlm"].speed_from == CALIBRATION


@pytest.mark.slow
def test_trials_take_what_they_took_before_side_by_side(fresh: Params) -> None:
    methods = {"full": fresh.finetune.methods["full"]}
    settings = fresh.finetune.model_copy(update={"methods": methods})
    fresh = fresh.model_copy(update={"finetune": settings})
    before = next(cost for cost in finetunings(fresh) if cost.method == "full")
    assert before.flops is not None
    write_trials(before, seconds=3.0)
    found = made(fresh)
    assert found.side_by_side == 2
    costs = {(cost.run, cost.task, cost.method): cost for cost in found.finetune}
    own = costs[before.run, before.task, "full"]
    assert own.seconds == pytest.approx(2 * 3.0 / 2) and own.speed_from == OWN
    same = costs["encoder_scratch", before.task, "full"]
    assert same.seconds == pytest.approx(2 * 3.0 / 2) and same.speed_from == SAME_ARCHITECTURE


def test_a_stage_takes_as_long_as_its_last_process(fresh: Params) -> None:
    """Of three trials on two processes one has two; a probe's trials are one group."""
    settings = fresh.finetune.model_copy(update={"seeds": [1, 2, 3]})
    costs = [cost for cost in finetunings(fresh.model_copy(update={"finetune": settings}))][:2]
    assert [cost.method for cost in costs] == ["full", "linear_probe"]
    assert [cost.shares for cost in costs] == [pytest.approx([1 / 3] * 3), [1.0]]
    for times, expected in (((6.0, 1.0), 4.0), ((6.0, 5.0), 6.0)):
        for cost, seconds in zip(costs, times, strict=True):
            cost.seconds = seconds
        speed.put_side_by_side(costs, 2)
        assert sum(cost.seconds or 0 for cost in costs) == pytest.approx(expected)
    speed.put_side_by_side(costs, 1)
    assert sum(cost.seconds or 0 for cost in costs) == pytest.approx(6.0)


def test_from_scratch_each_seed_is_a_group_with_states_of_its_own(fresh: Params) -> None:
    settings = fresh.finetune.model_copy(update={"seeds": [1, 2, 3]})
    costs = finetunings(fresh.model_copy(update={"finetune": settings}))
    probes = {c.run: c for c in costs if (c.task, c.method) == ("tag", "linear_probe")}
    pretrained, scratch = probes["encoder_mlm"], probes["encoder_scratch"]
    assert scratch.shares == pytest.approx([1 / 3] * 3) and pretrained.shares == [1.0]
    assert scratch.flops == pretrained.flops
    assert scratch.prediction_flops == pytest.approx(3 * (pretrained.prediction_flops or 0))


def test_a_trial_takes_what_all_of_its_variants_take(fresh: Params) -> None:
    """A probe computes the states of a backbone once, however they are read."""
    section = fresh.tasks["section"]
    entry = {"name": "classification", "pooling": ["mean", "last", "first"]}
    tasks = fresh.tasks | {"section": section.model_copy(update={"task": entry})}
    finetune = fresh.finetune.model_copy(update={"initial_weights": ["as_pretrained", "usual"]})
    several = fresh.model_copy(update={"tasks": tasks, "finetune": finetune})
    one, all_of_them = (
        {(c.run, c.task, c.method): c for c in finetunings(params)} for params in (fresh, several)
    )
    for run, states, starts in (
        ("encoder_mlm", 3, 1),
        ("decoder_causal", 2, 1),
        ("encoder_scratch", 3, 2),
    ):
        for task, tries in (("section", states * starts), ("tag", starts)):
            full, probe = ((run, task, method) for method in ("full", "linear_probe"))
            for amount in ("num_steps", "tokens", "flops", "prediction_flops"):
                expected = tries * getattr(one[full], amount)
                assert getattr(all_of_them[full], amount) == pytest.approx(expected)
            assert all_of_them[probe].num_steps == tries * (one[probe].num_steps or 0)
            for amount in ("tokens", "flops", "prediction_flops"):
                expected = starts * getattr(one[probe], amount)
                assert getattr(all_of_them[probe], amount) == pytest.approx(expected)
            assert all_of_them[full].shares == one[full].shares


def test_a_slow_source_says_how_long_it_takes(
    fresh: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its packages are read once, by the first stage that needs them."""
    documentation_is_read(monkeypatch, seconds=8.0)
    found = estimate.made(fresh, ["prepare_corpus@prose", "prepare_task@tag", "report"]).others
    assert found == [
        Other("prepare_corpus@prose", 16.0, CALIBRATION),
        Other("prepare_task@tag", None, None),
        Other("report", None, None),
    ]


def test_other_stages_take_what_they_took_before(fresh: Params) -> None:
    times = Path(".scratch/times")
    times.mkdir(parents=True)
    write_json(times / "prepare_task@tag.json", {"wall_time_s": 20.0})
    write_json(times / "prepare_task@type.json", {"wall_time_s": 10.0})
    stages = ["prepare_task@tag", "prepare_task@section", "report", "pretrain@encoder_mlm"]
    found = estimate.made(fresh, stages)
    assert found.others == [
        Other("prepare_task@tag", 20.0, OWN_STAGE),
        Other("prepare_task@section", 15.0, SAME_KIND),
        Other("report", None, None),
    ]
    total = estimate.totals(found)
    assert (total["others"]["seconds"], total["others"]["unknown"]) == (35.0, 1)
    assert total["all"]["seconds"] == 35.0 + total["pretrain"]["seconds"]
    assert total["all"]["stages"] == len(stages)
    assert any("time of 1 other stage" in line for line in tables.notes(found))


@pytest.mark.slow
def test_a_calibration_runs_as_trainings_do() -> None:
    """In the environment that dvc.yaml gives to trainings, which a process reads when it begins."""
    settings = subprocess.run(
        [sys.executable, "-c", PRINT_ENVIRONMENT],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert len(settings) > 1
    assert f"env {' '.join(settings)} " in " ".join(Path(ROOT, "dvc.yaml").read_text().split())


PRINT_ENVIRONMENT = """
import os
from pathlib import Path
from stages.core.params import load
from stages.core.training_environment import training_environment
from stages.planning.calibration import in_processes

os.environ.update(training_environment())
params = load(Path("studies/smoke.yaml"))
for name in training_environment():
    (value,) = in_processes(params, os.getenv, name, copies=1)
    print(f"{name}={value}")
"""


def test_an_untrained_run_stands_in_with_an_objective_of_its_architecture(fresh: Params) -> None:
    """Whatever the architecture's name is."""
    params = with_encoder_decoder(fresh)
    for run in params.pretrain.values():
        untrained = run.model_copy(update={"objective": {"name": "none"}})
        found = stand_in(params, untrained)
        assert found is not None and found.trains
        assert run.model["name"] in found.architectures


@pytest.mark.slow
def test_a_total_that_leaves_something_out_is_at_least_that(fresh: Params) -> None:
    """Of the time where it is unknown, of sizes where those are unknown."""
    stages = ["pretrain@encoder_mlm", "report"]
    found = {line.split()[0]: line for line in screen(fresh, stages) if line.strip()}
    assert found["pretraining"].count("≥") == 0 and found["in"].count("≥") == 1
    model = {"name": "hub", "path": "openai-community/gpt2", "revision": "0" * 40}
    public = fresh.pretrain["encoder_scratch"].model_copy(
        update={"model": model, "tokenizer": "none"}
    )
    params = fresh.model_copy(update={"pretrain": {**fresh.pretrain, "gpt2": public}})
    lines = screen(params, ["pretrain@encoder_mlm", "pretrain@gpt2"])
    found = {line.split()[0]: line for line in lines if line.strip()}
    assert found["pretraining"].count("≥") == 5
    assert any("at least" in line for line in lines)
    assert max(map(len, lines)) <= 100


def made(params: Params) -> estimate.Estimate:
    return estimate.made(params, every_stage(params))


def write_timing(
    run: str,
    *,
    flops: int,
    seconds: float,
    device: str = "cpu",
    settings: dict[str, Any] | None = None,
) -> None:
    pretrained, timings = Path("data/pretrained", run), Path("data/timings/pretrain")
    pretrained.mkdir(parents=True)
    timings.mkdir(parents=True)
    write_json(pretrained / "metrics.json", {"pretrain_flops": flops})
    about = {"architecture": "encoder", "settings": settings or {"model": {}, "training": {}}}
    write_json(pretrained / "run.json", about)
    timing = {"wall_time_s": seconds, "device": device, "peak_memory_bytes": HELD}
    write_json(timings / f"{run}.json", timing)


def write_trials(cost: Finetuning, *, seconds: float) -> None:
    assert cost.flops is not None
    which: list[dict[str, Any]] = [
        {"method": cost.method, "label_budget": "50", "finetune_seed": seed} for seed in (1, 2)
    ]
    others: dict[str, Any] = {
        name: 1 for name in records.TrialRecord.__annotations__ if name not in (*which[0], "lr")
    } | {
        "finetune_flops": cost.flops // 2,
        "lr": 0.1,
    }
    names = ("run", "architecture", "objective", "task", "corpus", "used_architecture", "design")
    for name in (*names, "read_out", "initial_weights"):
        others[name] = "some"
    table = [records.TrialRecord(**(others | each)) for each in which]
    records.write(
        Path("data/finetuned", cost.task, cost.run, "trials.csv"), records.TrialRecord, table
    )
    timing = Path("data/timings/finetune", cost.task, f"{cost.run}.csv")
    # Of an earlier version: with less in it than is measured now.
    times = [each | {"wall_time_s": seconds, "peak_memory_bytes": HELD} for each in which]
    records.write_table(timing, times[0], times)


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tried]:
    """The smoke study with a wider model, a student and a public checkpoint."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        smoke = load(ROOT / "studies" / "smoke.yaml")
        patch.chdir(tmp_path_factory.mktemp("tried"))
        documentation_is_read(patch)
        mlm, scratch = smoke.pretrain["encoder_mlm"], smoke.pretrain["encoder_scratch"]
        wide = mlm.model | {"d_model": 512, "num_heads": 8, "d_ff": 2048}
        distilled = {"parent": "encoder_mlm", "objective": {"name": "distillation"}}
        gpt2 = {"name": "hub", "path": "openai-community/gpt2", "revision": "0" * 40}
        changes = {
            "wide": mlm.model_copy(update={"model": wide}),
            "student": mlm.model_copy(update=distilled | {"model": mlm.model | {"num_layers": 1}}),
        }
        params = smoke.model_copy(update={"pretrain": smoke.pretrain | changes})
        costs = [replace(cost, text_tokens=20.0) for cost in finetunings(params)]  # longest: 64
        pretraining = {cost.run: cost for cost in pretrainings(params)}
        public = {"gpt2": scratch.model_copy(update={"model": gpt2})}  # nobody has its sizes
        params = params.model_copy(update={"pretrain": params.pretrain | public})
        yield Tried(params, pretraining, costs, Calibration(params, costs))


@pytest.mark.slow
def test_a_calibration_finds_a_time_for_every_method(tried: Tried) -> None:
    for method in tried.params.finetune.methods:
        cost = next(each for each in tried.finetuning if each.method == method)
        found = tried.calibration.finetuning(cost)
        assert found is not None and 0 < found.seconds < math.inf


@pytest.mark.slow
def test_a_calibration_tries_the_run_itself(tried: Tried) -> None:
    """A wider model holds its weights, their gradients and moments besides."""
    costs = tried.pretraining
    narrow, wider = (tried.calibration.pretraining(costs[key]) for key in ("encoder_mlm", "wide"))
    assert narrow is not None and wider is not None
    # No more of the times: beside other work the smaller model can take longer.
    assert all(0 < each.seconds < math.inf for each in (narrow, wider))
    sizes = [costs[key].num_params for key in ("encoder_mlm", "wide")]
    assert sizes[0] is not None and sizes[1] is not None
    assert narrow.peak_memory_bytes is not None and wider.peak_memory_bytes is not None
    assert wider.peak_memory_bytes - narrow.peak_memory_bytes > 4 * 4 * (sizes[1] - sizes[0])


@pytest.mark.slow
def test_a_student_is_calibrated_with_its_teacher_before_anything_is_trained(tried: Tried) -> None:
    found = tried.calibration.pretraining(tried.pretraining["student"])
    assert found is not None and 0 < found.seconds < math.inf


@pytest.mark.slow
def test_a_public_checkpoint_is_as_fast_as_what_stands_in_for_it(tried: Tried) -> None:
    cost = next(each for each in tried.finetuning if each.run == "encoder_mlm")
    found = tried.calibration.finetuning(replace(cost, run="gpt2"))
    assert found is not None and found.seconds > 0
    assert found.peak_memory_bytes is None  # of another model


@pytest.mark.slow
def test_memory_is_what_was_held_before(fresh: Params) -> None:
    """By the same model on batches of the same size; else it is an estimate."""
    run = fresh.pretrain["encoder_mlm"]
    write_timing("encoder_mlm", flops=1000, seconds=2.0, settings=run.model_dump())
    held = {cost.run: cost.memory_bytes for cost in estimate.made(fresh, []).pretrain}
    assert held["encoder_mlm"] == HELD
    estimated = held["decoder_causal"]
    assert estimated is not None and 10**8 < estimated < HELD  # a process with torch in it
    training = run.training.model_copy(update={"micro_batch_rows": 2 * run.training.batch_rows})
    larger = {"encoder_mlm": run.model_copy(update={"training": training})}
    params = fresh.model_copy(update={"pretrain": fresh.pretrain | larger})
    (cost, *_) = estimate.made(params, []).pretrain
    assert cost.memory_bytes is not None and cost.memory_bytes < HELD


@pytest.mark.slow
def test_memory_and_disk_are_counted_from_the_weights(fresh: Params) -> None:
    runs = {cost.run: cost for cost in pretrainings(fresh)}
    mlm = runs["encoder_mlm"]
    assert mlm.num_params is not None and mlm.memory_bytes is not None
    assert mlm.disk_bytes == 4 * mlm.num_params
    assert mlm.memory_bytes > 4 * 4 * mlm.num_params
    kept = {
        keep: sum(
            cost.disk_bytes or 0
            for cost in finetunings(
                fresh.model_copy(
                    update={"finetune": fresh.finetune.model_copy(update={"keep_weights": keep})}
                )
            )
        )
        for keep in ("none", "first_seed", "all")
    }
    assert kept["none"] == 0 < kept["first_seed"]
    assert kept["all"] == len(fresh.finetune.seeds) * kept["first_seed"]


@pytest.mark.slow
def test_the_screen_is_as_wide_as_the_readme(fresh: Params) -> None:
    lines = screen(fresh, every_stage(fresh))
    assert max(map(len, lines)) <= 100
    assert any("finetune.max_tokens" in line for line in lines)
    assert any("Calibration" in line for line in lines)
    assert "Nothing to run: every stage is up to date." in screen(fresh, [])


@pytest.mark.slow
def test_json_has_the_same_numbers(fresh: Params) -> None:
    found = made(fresh)
    record = json.loads(json.dumps(estimate.as_record(found)))
    assert set(EVERY) <= set(record)
    assert record["pretrain"] == [asdict(cost) for cost in found.pretrain]
    total = record["totals"]
    flops = [cost.flops for cost in found.pretrain if cost.flops is not None]
    assert total["pretrain"]["flops"] == sum(flops)
    for name in estimate.SUMMED:
        both = total["pretrain"][name] + total["finetune"][name]
        assert total["all"][name] == pytest.approx(both)
    assert total["finetune"]["stages"] == len(fresh.tasks)


@pytest.mark.slow
def test_what_is_done_costs_nothing_more(fresh: Params) -> None:
    found = estimate.made(fresh, ["pretrain@encoder_mlm"])
    total = estimate.as_record(found)["totals"]
    (mlm,) = (cost for cost in found.pretrain if cost.pending)
    assert isinstance(mlm, Pretraining)
    assert total["all"]["flops"] == mlm.flops and total["finetune"]["stages"] == 0


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(0.04, "0.0 s"), (12.4, "12 s"), (89, "89 s"), (90, "1.5 min"), (7200, "2.0 h")],
)
def test_a_time_is_written_shortly(seconds: float, written: str) -> None:
    assert tables.duration(seconds) == written


# What DVC would run, of a project that has DVC's own word for it that all is up to date.


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = clone_of_working_tree(tmp_path_factory.mktemp("plan") / "project")
    made.run("python", "-m", "stages.check_params")
    make_up_outputs(made)
    made.run("dvc", "commit", "--force", "--quiet")
    return made


def make_up_outputs(made: Project) -> None:
    """A file for every output that a stage would have made, and for what others read of it."""
    from dvc.repo import Repo

    with Repo(str(made.folder)) as repository:
        stages = list(repository.index.stages)
        wanted = [dep.fs_path for stage in stages for dep in stage.deps]
        wanted += [out.fs_path for stage in stages for out in stage.outs]
    for path in map(Path, sorted(map(str, wanted), key=len, reverse=True)):
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{path.name}\n")


@pytest.fixture
def up_to_date(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(project.folder)
    project.run("git", "checkout", "--quiet", "params.yaml")
    return project


@pytest.mark.slow
def test_a_stage_leaves_what_it_took(project: Project) -> None:
    found = json.loads((project.folder / ".scratch/times/check_params.json").read_text())
    assert 0 < found["wall_time_s"] < 600


@pytest.mark.slow
def test_nothing_is_pending_where_all_is_up_to_date(up_to_date: Project) -> None:
    assert not pending(load())


@pytest.mark.slow
def test_what_follows_from_an_edited_run_is_pending(up_to_date: Project) -> None:
    up_to_date.edit("pretrain", "decoder_causal", "training", "lr", value=0.002)
    found = [*pending(load())]
    assert sorted(found) == sorted(AFTER_THE_DECODER)
    assert found[0] == "check_params" and found[-1] == "report"


@pytest.mark.slow
def test_a_plan_that_changes_makes_its_runs_pending(up_to_date: Project) -> None:
    """No stage's own settings say so: the records that check_params would write do."""
    up_to_date.edit("budget", "matched", value="flops")
    found = pending(load())
    assert "pretrain@decoder_causal" in found
    assert "pretrain@encoder_mlm" not in found and "prepare_corpus@prose" not in found


@pytest.mark.slow
def test_the_report_alone_follows_from_another_confidence(up_to_date: Project) -> None:
    up_to_date.edit("evaluation", "confidence", value=0.9)
    assert [*pending(load())] == ["check_params", "report"]


@pytest.mark.slow
def test_the_command_prints_json_and_refuses_as_others_do(up_to_date: Project) -> None:
    record = json.loads(up_to_date.run("python", "-m", "stages.commands.plan", "--json"))
    assert record["stages"] == [] and record["totals"]["all"]["stages"] == 0
    up_to_date.edit("budget", "reference", value="bert")
    output = up_to_date.run("python", "-m", "stages.commands.plan", check=False)
    assert output.startswith("error: budget.reference: unknown 'bert'")


def test_without_dvc_it_is_said(fresh: Params) -> None:
    with pytest.raises(ValueError, match="dvc: "):
        pending(fresh)


def test_an_objective_that_fits_several_architectures_is_that_of_the_run() -> None:
    params = with_encoder_decoder(load(ROOT / "studies" / "smoke.yaml"))
    run = params.pretrain["encoder_decoder_span"]
    both = run.model_copy(update={"objective": {"name": "multi_task"}})
    assert objective_of(params, both).architecture == "encoder_decoder"
    batch = random_batch(objective_of(params, both), rows=2, length=32)
    assert batch.decoder_input_ids is not None
