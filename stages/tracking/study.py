"""All records of a study, read from its files."""

import math
import sys
from collections.abc import Sequence
from dataclasses import replace

from stages.core import paths
from stages.core.artifacts import read_json, sha256
from stages.core.components import Settings
from stages.core.params import NONE, Params, Run
from stages.evaluation.repetitions import repetitions
from stages.tracking import trials
from stages.tracking.answers import Answers
from stages.tracking.names import short_names
from stages.tracking.note import note
from stages.tracking.records import (
    FORM,
    Row,
    RunRecord,
    at_rate,
    corpus_data,
    cost_metrics,
    digest,
    flat,
    numbers,
    objective_tags,
    pretraining_fingerprint,
    rows,
    train_metrics,
)
from stages.tracking.trials import Cell, StudyTrials

PRETRAINING_CURVES = ("loss", "lr", "validation_loss")
MAX_TRIALS = 2_000  # of a study; with more, MLflow shows groups of trials alone


def recorded(params: Params) -> list[RunRecord]:
    """Every run that params.yaml lists and whose files exist; parents before children.

    All but single trials have the same parameters, with the value "none" where one does not apply.
    """
    study, answers = StudyTrials.read(params), Answers.read()
    each = study.count() <= MAX_TRIALS
    groups = repetitions({key: _planned(key, run) for key, run in params.pretrain.items()})
    names = short_names([*(runs[0] for runs in groups), *params.baselines])
    found: list[RunRecord] = []
    for runs in groups:
        own = [_pretraining(run, names[runs[0]], params) for run in runs if _is_there(run)]
        if own:
            found += _group(runs, own, names[runs[0]], params, study, answers, each=each)
    for run, entry in params.baselines.items():
        found += _baseline(run, entry, names[run], params, study, answers, each=each)
    if (paths.REPORTS / "comparison.md").exists():
        found.append(_comparison(params.study))
    keys = sorted({key for record in found if record.kind != "trial" for key in record.params})
    for record in found:
        if record.kind != "trial":
            record.params.update({key: NONE for key in keys if key not in record.params})
    return found


def _planned(key: str, run: Run) -> Run:
    """As the report has it, whose groups are those of the matched budget."""
    plan = paths.PLANS / f"{key}.json"
    return run.planned(read_json(plan)) if plan.exists() else run


def left_out(params: Params) -> str:
    """A line that says which trials are not shown one by one; empty if all are."""
    number = StudyTrials.read(params).count()
    if number <= MAX_TRIALS:
        return ""
    return (
        f"MLflow shows groups of trials, not each of {number:,} trials (the limit is "
        f"{MAX_TRIALS:,}); reports/trials.csv has all"
    )


def warn_of_left_out(params: Params) -> None:
    if line := left_out(params):
        print(f"note: {line}", file=sys.stderr)


def _is_there(run: str) -> bool:
    return (paths.PRETRAINED / run / "run.json").exists()


def _group(
    group: Sequence[str],
    pretrainings: list[RunRecord],
    name: str,
    params: Params,
    study: StudyTrials,
    answers: Answers,
    *,
    each: bool,
) -> list[RunRecord]:
    """The answers of runs that differ only in seeds, their pretrainings and their trials."""
    first = pretrainings[0]
    tags = {k: v for k, v in first.tags.items() if k != "pretrain_seed"} | {"run": group[0]}
    runs = {record.tags["run"]: record.fingerprint for record in pretrainings}
    cells = trials.cells(name, group, runs, tags, study, answers)
    parent = RunRecord(
        name,
        "group",
        _fingerprint(group[0], [*runs.values()], cells),
        tags=tags,
        params=first.params | {"run": group[0]},
        points=[point for cell in cells for point in cell.answers],
    )
    below = [replace(own, parent=parent.fingerprint) for own in pretrainings]
    for cell in cells:
        below += trials.records(cell, parent, study, params, each=each)
    return [parent, *below]


def _baseline(
    run: str,
    entry: Settings,
    name: str,
    params: Params,
    study: StudyTrials,
    answers: Answers,
    *,
    each: bool,
) -> list[RunRecord]:
    """The answers of a baseline and its trials; empty if it has none."""
    settings = {"run": run, "architecture": entry["name"]} | flat({"baseline": entry})
    tags = {"study": params.study, "run": run, "architecture": entry["name"]}
    tags |= objective_tags(NONE, NONE)
    fingerprint = digest([FORM, settings])
    cells = trials.cells(name, [run], {run: fingerprint}, tags, study, answers)
    if not cells:
        return []
    parent = RunRecord(
        name,
        "baseline",
        _fingerprint(run, [fingerprint], cells),
        tags=tags,
        params=settings,
        points=[point for cell in cells for point in cell.answers],
    )
    below = [trials.records(cell, parent, study, params, each=each) for cell in cells]
    return [parent, *(record for records in below for record in records)]


def _fingerprint(group: str, runs: list[str], cells: list[Cell]) -> str:
    """Of answers: a point of a run cannot be replaced in MLflow, so other answers are another."""
    return digest([FORM, group, runs, [[*cell.answers] for cell in cells]])


def _pretraining(run: str, group: str, params: Params) -> RunRecord:
    folder, entry = paths.PRETRAINED / run, params.pretrain[run]
    about, summary = read_json(folder / "run.json"), read_json(folder / "metrics.json")
    timing = paths.TIMINGS / "pretrain" / f"{run}.json"
    curves = [
        (key, value, int(row["step"]))
        for row in rows(paths.PROGRESS / "history" / f"{run}.csv")
        for key, value in train_metrics(_measured(row)).items()
    ]
    drawn = {key for key, *_ in curves}
    curves += [
        (key, value, int(row["step"]))
        for row in rows(paths.PROGRESS / "rates" / f"{run}.csv")
        for key, value in train_metrics(at_rate(_measured(row), float(row["rate"]))).items()
    ]
    if "lr" in summary:
        summary["kept_lr"] = summary["lr"]  # the curve of that name falls and rises
    ends = [(k, v, 0) for k, v in train_metrics(numbers(summary)).items() if k not in drawn]
    seed = str(about["settings"]["seed"])
    return RunRecord(
        f"{group} pretraining p{seed}",
        "pretraining",
        pretraining_fingerprint(run, about["fingerprint"]),
        tags={
            "study": params.study,
            "run": run,
            "architecture": about["architecture"],
            "size": f"{about['num_layers']}x{about['d_model']}",
            **objective_tags(*entry.learnt),
            "pretrain_seed": seed,
        },
        inputs=corpus_data(about["corpus"]),
        params={"run": run, "architecture": about["architecture"]} | flat(about["settings"]),
        points=curves + ends,
        costs=cost_metrics(numbers(read_json(timing))) if timing.exists() else {},
    )


def _measured(row: Row) -> dict[str, float]:
    """What a row of a history holds; NaN of a step that diverged is left out."""
    named = {key: float(row[key]) for key in PRETRAINING_CURVES if row[key]}
    return {key: value for key, value in named.items() if math.isfinite(value)}


def _comparison(study: str) -> RunRecord:
    files = sorted(path for path in paths.REPORTS.rglob("*") if path.is_file())
    return RunRecord(
        "comparison",
        "comparison",
        digest([FORM, sha256(*files), *map(str, files)]),
        tags={"study": study},
        note=note((paths.REPORTS / "comparison.md").read_text(encoding="utf-8")),
        artifacts=sorted(map(str, paths.REPORTS.iterdir())),
    )
