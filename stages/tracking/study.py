"""All records of a study, read from its files."""

import math
import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial

from stages.core import paths
from stages.core.artifacts import read_json, sha256
from stages.core.keys import RunKey
from stages.core.params import NONE, Method, Params, Run
from stages.evaluation.metrics import merit
from stages.evaluation.records import budget_order, read_texts
from stages.tracking.records import (
    FORM,
    MACHINE,
    NOTE_TAG,
    Point,
    Row,
    RunRecord,
    at_rate,
    best_score,
    corpus_data,
    cost_metrics,
    digest,
    flat,
    machine_tags,
    numbers,
    objective_tags,
    pretraining_record,
    train_metrics,
)
from stages.tracking.trials import Results, cell_records

PRETRAINING_CURVES = ("loss", "lr", "validation_loss")
ANSWERS = ("score", "gain_over_scratch")  # with their intervals
QUESTION = ("axis", "method", "label_budget", "run_a", "run_b")  # columns that name an effect
EFFECT = {"effect": "", "low": "_low", "high": "_high"}  # columns, and suffixes of their metrics
MAX_NOTE = 7_500  # letters of the report's answer in a description; MLflow allows 8,000 in all
NAMES_OF_EFFECTS = (
    "The metric `effect/AXIS/METHOD/BUDGET/RUN/OTHER` is RUN minus OTHER on average over tasks, a "
    "fraction (0.05 is 5 points); `_low` and `_high` are the ends of its interval."
)
WHOLE_REPORT = "The whole report is below Artifacts: `index.html`, a page for the browser."
MAX_TRIALS = 2_000  # of a study; with more, MLflow shows only groups of trials


def recorded(params: Params) -> list[RunRecord]:
    """Returns the records of all runs and baselines of params.yaml whose files exist, parents
    before children."""
    results, methods = Results.read(params.tasks, params.runs), params.finetune.methods
    records: list[RunRecord] = []
    for run, entry in params.runs.items():
        checkpoints = [RunKey(run, seed) for seed in entry.seeds]
        pretrainings = [
            _pretraining(checkpoint, params.study, entry)
            for checkpoint in checkpoints
            if (paths.pretrained(checkpoint) / "run.json").exists()
        ]
        if pretrainings:
            records += _group(run, pretrainings, results, methods)
    for name, baseline in params.baselines.items():
        tags = {"study": params.study, "run": name, "architecture": baseline["name"]}
        tags |= objective_tags(NONE, NONE)
        settings = {"run": name, "architecture": baseline["name"]} | flat({"baseline": baseline})
        # The trials of a baseline have the runs' seeds, which draw the labelled rows.
        fingerprints = dict.fromkeys(params.pretrain_seeds, digest([FORM, settings]))
        if cells := cell_records(name, fingerprints, tags, settings, results, methods):
            records += [_parent("baseline", name, fingerprints, tags, settings, [], cells), *cells]
    if (paths.REPORTS / "comparison.md").exists():
        records.append(_comparison(params.study))
    if sum(map(len, results.trials.values())) > MAX_TRIALS:
        records = [record for record in records if record.kind != "trial"]
    return records


def note_left_out(records: Sequence[RunRecord]) -> None:
    """Prints a note on stderr if the study has too many trials for MLflow to show them all."""
    kinds = {record.kind for record in records}
    if "trials" in kinds and "trial" not in kinds:
        print(
            f"note: MLflow shows groups of trials, not each of more than {MAX_TRIALS:,} trials; "
            "reports/trials.csv has all",
            file=sys.stderr,
        )


def _group(
    run: str, pretrainings: list[RunRecord], results: Results, methods: Mapping[str, Method]
) -> list[RunRecord]:
    """Returns the records of a run: its scores, the pretraining of each seed and its trials."""
    first = pretrainings[0]
    own = ("pretrain_seed", *MACHINE)
    tags, settings = (
        {key: value for key, value in values.items() if key not in own}
        for values in (first.tags, first.params)
    )
    fingerprints = {
        int(record.tags["pretrain_seed"]): record.fingerprint for record in pretrainings
    }
    cells = cell_records(run, fingerprints, tags, settings, results, methods)
    parent = _parent("run", run, fingerprints, tags, settings, pretrainings, cells)
    return [parent, *pretrainings, *cells]


def _parent(
    kind: str,
    name: str,
    fingerprints: Mapping[int, str],
    tags: dict[str, str],
    settings: dict[str, str],
    pretrainings: Sequence[RunRecord],
    cells: Sequence[RunRecord],
) -> RunRecord:
    """Returns the record of a baseline, or of a run with all of its seeds. Its metrics are the
    scores and gains of all cells, named like ``score/TASK/METHOD/BUDGET_low``, and the best score
    on each task.

    The fingerprint covers the metrics: MLflow cannot replace a metric, so changed ones are shown
    as a new run.
    """
    points = [
        (f"{answer}/{place}{key.removeprefix(answer)}", value, 0)
        for cell in cells
        if cell.kind == "trials"
        for place in ["/".join(cell.tags[k] for k in ("task", "method", "label_budget"))]
        for key, value, _ in cell.points
        for answer in ANSWERS
        if key in (answer, f"{answer}_low", f"{answer}_high")
    ]
    points += _best_scores(cells)
    fingerprint = digest([FORM, kind, name, fingerprints, points])
    below = [*pretrainings, *(cell for cell in cells if cell.kind == "trials")]
    return RunRecord(
        name,
        kind,
        fingerprint,
        tags=tags,
        params=settings,
        points=points,
        below_s=sum(record.duration_s for record in below),
    )


def _best_scores(cells: Sequence[RunRecord]) -> list[Point]:
    """Returns the score on each task with the best method and the most labels, as
    ``score/TASK/best``: the one column of a task in which runs and baselines all have a value."""
    points: list[Point] = []
    trials = [cell for cell in cells if cell.kind == "trials"]
    for task in dict.fromkeys(cell.tags["task"] for cell in trials):
        here = [cell for cell in trials if cell.tags["task"] == task]
        most = max((cell.tags["label_budget"] for cell in here), key=budget_order)
        scores = [
            value
            for cell in here
            if cell.tags["label_budget"] == most
            for key, value, _ in cell.points
            if key == "score"
        ]
        metric = here[0].tags["metric"]
        points.append((best_score(task), max(scores, key=partial(merit, metric)), 0))
    return points


def _pretraining(checkpoint: RunKey, study: str, run: Run) -> RunRecord:
    folder = paths.pretrained(checkpoint)
    about, summary = read_json(folder / "run.json"), read_json(folder / "metrics.json")
    record = pretraining_record(
        checkpoint,
        about["fingerprint"],
        parent=checkpoint.run,
        tags={
            "study": study,
            "architecture": about["architecture"],
            "size": f"{about['num_layers']}x{about['d_model']}",
            **objective_tags(*run.learnt),
        },
        settings=about["settings"],
    )
    for row in read_texts(paths.progress(checkpoint, "history")):
        curves = train_metrics(_measured(row))
        record.points.extend((key, value, int(row["step"])) for key, value in curves.items())
    drawn = {key for key, *_ in record.points}
    for row in read_texts(paths.progress(checkpoint, "rates")):
        curves = train_metrics(at_rate(_measured(row), float(row["rate"])))
        record.points.extend((key, value, int(row["step"])) for key, value in curves.items())
    summary.pop("train_loss", None)  # the last point of the curve `loss`
    if "lr" in summary:
        summary["kept_lr"] = summary.pop("lr")  # `lr` is the name of the rate's curve
    ends = train_metrics(numbers(summary))
    record.points.extend((key, value, 0) for key, value in ends.items() if key not in drawn)
    record.inputs.extend(corpus_data(about["corpus"]))
    timing = paths.pretraining_time(checkpoint)
    if timing.exists():
        record.costs.update(cost_metrics(read_json(timing)))
        record.tags.update(machine_tags([read_json(timing)]))
    return record


def _measured(row: Row) -> dict[str, float]:
    """Returns the finite numbers in a row of a history: a step that diverged has NaN."""
    named = {key: float(row[key]) for key in PRETRAINING_CURVES if row[key]}
    return {key: value for key, value in named.items() if math.isfinite(value)}


def _comparison(study: str) -> RunRecord:
    """Returns the record of the report: its tables and figures, its answer as the description, and
    the effects averaged over tasks as ``effect/AXIS/METHOD/BUDGET/RUN/OTHER``, with intervals."""
    files = sorted(path for path in paths.REPORTS.rglob("*") if path.is_file())
    points = [
        (f"effect/{'/'.join(row[key] for key in QUESTION)}{end}", float(row[column]), 0)
        for row in read_texts(paths.REPORTS / "questions.csv")
        for column, end in EFFECT.items()
        if row[column]
    ]
    answer = (paths.REPORTS / "comparison.md").read_text(encoding="utf-8").split("\n![")[0]
    answer = re.sub(r" ?\[[^]]+\]\(#names\)\.", "", answer)  # sentences that are only a link
    answer = re.sub(r"\[([^]]+)\]\(#\w+\)", r"\1", answer)  # links to other parts of the page
    # MLflow shows the first lines, and prints a title large.
    answer = answer.removeprefix("# ").strip()[:MAX_NOTE]
    note = [answer, *([NAMES_OF_EFFECTS] if points else []), WHOLE_REPORT]
    return RunRecord(
        "comparison",
        "comparison",
        digest([FORM, sha256(*files), *map(str, files)]),
        tags={"study": study, NOTE_TAG: "\n\n".join(note)},
        points=points,
        artifacts=sorted(map(str, paths.REPORTS.iterdir())),
    )
