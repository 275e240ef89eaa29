"""The time of pending stages: from earlier trainings of their kind, else from a calibration."""

import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stages.core import paths
from stages.core.artifacts import write_json
from stages.core.keys import RunKey
from stages.core.params import Params
from stages.evaluation.records import write_table
from stages.matching.budget import matched
from stages.planning.finetuning_costs import Finetuning, finetunings
from stages.planning.pretraining_costs import Pretraining, pretrainings
from stages.planning.speed import (
    CALIBRATION,
    EARLIER,
    Calibration,
    Other,
    add_times,
    operations,
    other_stages,
    put_side_by_side,
)
from stages.sources.installed_docs import InstalledDocs
from tests.planning.conftest import SPEED, Known
from tests.planning.studies import with_finetune, with_gpt2, with_run
from tests.smoke import ROOT, load

HELD = 10**10  # bytes


def timed(params: Params) -> tuple[dict[str, Pretraining], dict[tuple[str, ...], Finetuning]]:
    """Returns all costs of a study, taken as pending, with their times."""
    study = matched(params)
    runs = pretrainings(study, {name: run.seeds for name, run in study.runs.items()})
    trials = finetunings(study)
    for cost in trials:
        cost.pending = True
    add_times(study.runs, study.compute, Known(study, trials), runs, trials)
    return {c.run: c for c in runs}, {(c.run, c.task, c.method): c for c in trials}


def write_pretraining(
    run: str, *, flops: int, seconds: float, seed: int = 1, device: str = "cpu", **about: Any
) -> None:
    """Writes what a pretraining leaves behind."""
    folder = paths.pretrained(RunKey(run, seed))
    folder.mkdir(parents=True)
    write_json(folder / "metrics.json", {"pretrain_flops": flops})
    settings = {"model": {}, "training": {}}
    record = {"architecture": "encoder", "d_model": 64, "settings": settings} | about
    write_json(folder / "run.json", record)
    timing = paths.pretraining_time(RunKey(run, seed))
    timing.parent.mkdir(parents=True, exist_ok=True)
    write_json(timing, {"wall_time_s": seconds, "device": device, "peak_memory_bytes": HELD})


def test_add_times_divides_operations_by_the_speed_of_earlier_pretrainings(fresh: Params) -> None:
    """A thousand operations in two seconds and two thousand in four: 500 a second."""
    write_pretraining("an_earlier_run", flops=1000, seconds=2.0)
    write_pretraining("an_earlier_run", flops=2000, seconds=4.0, seed=2)
    runs, _ = timed(fresh)
    mlm = runs["encoder_mlm"]
    assert mlm.flops is not None and mlm.seconds == pytest.approx(mlm.flops / 500)
    assert mlm.speed_from == EARLIER
    # The time of another architecture is calibrated and includes validation.
    causal = runs["decoder_causal"]
    assert causal.speed_from == CALIBRATION
    assert causal.seconds == pytest.approx(operations(causal) / SPEED)
    scratch = runs["encoder_scratch"]
    assert (scratch.seconds, scratch.speed_from) == (None, None)


@pytest.mark.parametrize(
    "earlier",
    [
        lambda: write_pretraining("encoder_mlm", flops=9, seconds=2.0, device="abacus"),
        lambda: write_pretraining("encoder_mlm", flops=9, seconds=2.0, d_model=128),
        lambda: write_pretraining("encoder_mlm", flops=0, seconds=2.0),
        lambda: (
            write_pretraining("encoder_mlm", flops=9, seconds=2.0),
            paths.pretrained(RunKey("encoder_mlm", 1)).joinpath("metrics.json").unlink(),
        ),
    ],
    ids=["another device", "another width", "nothing trained", "trained again"],
)
def test_add_times_uses_no_speed_of_another_kind(
    fresh: Params, earlier: Callable[[], object]
) -> None:
    earlier()
    assert timed(fresh)[0]["encoder_mlm"].speed_from == CALIBRATION


def test_add_times_adds_the_memory_that_the_same_training_had(fresh: Params) -> None:
    run = fresh.runs["encoder_mlm"]
    settings = {"model": matched(fresh).runs["encoder_mlm"].model} | run.model_dump(
        include={"training"}
    )
    write_pretraining("encoder_mlm", flops=1000, seconds=2.0, settings=settings)
    runs, _ = timed(fresh)
    assert runs["encoder_mlm"].memory_bytes == HELD
    estimated = runs["decoder_causal"].memory_bytes
    assert estimated is not None and estimated < HELD
    larger = run.training.model_copy(update={"micro_batch_rows": 2, "batch_rows": 2})
    after = timed(with_run(fresh, "encoder_mlm", training=larger))[0]["encoder_mlm"].memory_bytes
    assert after is not None and after < HELD


def write_trials(cost: Finetuning, *, seconds: float, flops: int) -> None:
    """Writes two trials with only the columns that earlier versions also wrote."""
    trials = [
        {"method": cost.method, "finetune_seed": seed, "finetune_flops": flops // 2}
        for seed in (1, 2)
    ]
    write_table(paths.FINETUNED / cost.task / cost.run / "trials.csv", trials[0], trials)
    times = [
        {"method": cost.method, "wall_time_s": seconds, "peak_memory_bytes": HELD} for _ in trials
    ]
    write_table(paths.TIMINGS / "finetune" / cost.task / f"{cost.run}.csv", times[0], times)


def test_add_times_of_trials_that_ran_before(fresh: Params) -> None:
    """Two earlier trials with equal work took 3 s each, and two run side by side. Trials of one
    method and architecture have one speed, whatever their task."""
    fresh = with_finetune(fresh, methods={"full": fresh.finetune.methods["full"]})
    before = timed(fresh)[1]["encoder_mlm", "tag", "full"]
    assert before.flops is not None and before.speed_from == CALIBRATION
    write_trials(before, seconds=3.0, flops=before.flops)
    _, trials = timed(fresh)
    own, scratch = (trials[run, "tag", "full"] for run in ("encoder_mlm", "encoder_scratch"))
    for cost in (own, scratch):
        assert cost.seconds == pytest.approx(2 * 3.0 / 2) and cost.speed_from == EARLIER
    assert own.memory_bytes == HELD != scratch.memory_bytes
    section = trials["encoder_mlm", "section", "full"]
    assert own.seconds is not None
    assert section.speed_from == EARLIER and section.seconds == pytest.approx(
        own.seconds * operations(section) / operations(own)
    )
    assert trials["decoder_causal", "tag", "full"].speed_from == CALIBRATION


def test_put_side_by_side_takes_as_long_as_the_last_process() -> None:
    """One of two processes has two of three trials; a probe's trials are one group."""
    full = Finetuning("a", "tag", "full", 3, shares=[1 / 3] * 3)
    probe = Finetuning("a", "tag", "linear_probe", 3, shares=[1.0])
    for times, at_once, expected in (
        ((6.0, 1.0), 2, 4.0),
        ((6.0, 5.0), 2, 6.0),
        ((6.0, 5.0), 1, 11.0),
        ((0.0, 0.0), 2, 0.0),
    ):
        costs = [replace(c, seconds=s) for c, s in zip((full, probe), times, strict=True)]
        put_side_by_side(costs, at_once)
        assert sum(cost.seconds or 0 for cost in costs) == pytest.approx(expected)


# Other stages.


def test_other_stages_take_what_they_took_before(fresh: Params) -> None:
    times = Path(".scratch/times")
    times.mkdir(parents=True)
    write_json(times / "prepare_task@tag.json", {"wall_time_s": 20.0})
    write_json(times / "prepare_task@type.json", {"wall_time_s": 10.0})
    stages = ["prepare_task@tag", "prepare_task@section", "report"]
    trainings = ["pretrain@encoder_mlm", "continue_pretraining@child", "finetune@tag"]
    assert other_stages(fresh.corpora, fresh.tasks, [*trainings, *stages]) == [
        Other("prepare_task@tag", 20.0, EARLIER),
        Other("prepare_task@section", 15.0, EARLIER),
        Other("report", None, None),
    ]


def test_other_stages_count_what_a_slow_source_reads_once(
    fresh: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reading_s(source: InstalledDocs, read: set[str]) -> float:
        unread = {*source.packages} - read
        read |= unread
        return 8.0 * len(unread)

    monkeypatch.setattr(InstalledDocs, "reading_s", reading_s)
    assert other_stages(
        fresh.corpora, fresh.tasks, ["prepare_corpus@prose", "prepare_task@tag", "report"]
    ) == [
        Other("prepare_corpus@prose", 16.0, CALIBRATION),
        Other("prepare_task@tag", None, None),
        Other("report", None, None),
    ]


# Calibration.


@pytest.fixture(scope="module")
def tried() -> Iterator[tuple[Params, Calibration]]:
    """The smoke study with a student and a public checkpoint, and its calibration."""
    smoke = with_gpt2(load(ROOT / "studies" / "smoke.yaml"))
    mlm = smoke.runs["encoder_mlm"]
    student = {"parent": "encoder_mlm", "objective": {"name": "distillation"}}
    model = mlm.model | {"num_layers": 1, "d_model": 32}
    student |= {
        "objective": student["objective"] | {"student_init": "random", "cosine_weight": 0.0}
    }
    params = smoke.model_copy(
        update={"runs": smoke.runs | {"student": mlm.model_copy(update=student | {"model": model})}}
    )
    yield params, Calibration(params, [Finetuning("a", "tag", "full", 1, text_tokens=20.0)])


@pytest.mark.slow
def test_calibration_measures_every_kind_of_training(tried: tuple[Params, Calibration]) -> None:
    """A student is trained with a teacher of random weights, and another run of the study stands
    in for a checkpoint that is not downloaded."""
    _, calibration = tried
    kind: dict[str, Any] = {"architecture": "encoder", "flops": 10**9}
    costs: list[Pretraining | Finetuning] = [
        Pretraining("encoder_mlm", "mlm", 1, d_model=64, **kind),
        Pretraining("student", "distillation", 1, d_model=32, **kind),
        Finetuning("encoder_mlm", "tag", "full", 1, d_model=64, **kind),
        Finetuning("encoder_mlm", "tag", "linear_probe", 1, d_model=64, **kind),
        Finetuning("gpt2", "tag", "full", 1, architecture=None, flops=10**9),
    ]
    for cost in costs:
        seconds = calibration.seconds(cost)
        assert seconds is not None and 0 < seconds < math.inf
        assert calibration.seconds(replace(cost, flops=2 * 10**9)) == pytest.approx(2 * seconds)


@pytest.mark.slow
def test_in_processes_have_the_environment_of_trainings() -> None:
    """Processes start with the environment variables that dvc.yaml gives to trainings."""
    settings = subprocess.run(
        [sys.executable, "-c", PRINT_ENVIRONMENT],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert len(settings) > 1
    assert f"env {' '.join(settings)} " in " ".join(Path(ROOT, "dvc.yaml").read_text().split())


PRINT_ENVIRONMENT = """
import os
from pathlib import Path
from stages.core.study_file import load
from stages.core.training_environment import training_environment
from stages.planning.speed import in_processes

os.environ.update(training_environment())
params = load(Path("studies/smoke.yaml"))
for name in training_environment():
    (value,) = in_processes(params.compute, os.getenv, name, copies=1)
    print(f"{name}={value}")
"""
