"""The descriptions of runs in MLflow: what a run is, and where to look next."""

from collections.abc import Mapping

from stages.evaluation.records import CLASSICAL
from stages.tracking.records import NOTE_TAG, UNTRAINED, RunRecord

COMPARED = "The view Scores compares it with the others, and a leaderboard does so for each task."
NOTES = {
    "run": f"All seeds of `{{run}}`: its scores, its pretrainings and its trials.\n\n{COMPARED}",
    "baseline": f"The baseline `{{run}}`: its scores and its trials.\n\n{COMPARED}",
    "pretraining": (
        "The pretraining of `{run}` with seed {pretrain_seed}: {objective} on {corpus}.\n\n"
        "The tab Model metrics has its curves, and the view Pretraining those of all runs."
    ),
    "untrained": (
        "The weights that `{run}` begins with at seed {pretrain_seed}; nothing was pretrained "
        "here.\n\nThe run `{run}` has its scores after fine-tuning."
    ),
    "trials": (
        "All trials of `{run}` on {task} with {label_budget} labels (method {method}): the means "
        "of their scores and costs.\n\n"
        "The view Leaderboard of {task} compares it with the others."
    ),
    "trial": (
        "One trial of `{run}` on {task} with {label_budget} labels (method {method}), with "
        "{seeds_in_words}.\n\n"
        "The run above it has the mean over all seeds."
    ),
    "external": (
        "The predictions of the external system `{run}` on {task}, in the comparison with "
        "{label_budget} labels. It learnt from no row of the study.\n\n"
        "The run above it has the mean over all seeds."
    ),
}


def tags_with_description(record: RunRecord) -> dict[str, str]:
    """Returns the tags of a record, with a description added unless they have one."""
    tags = record.tags
    if NOTE_TAG in tags:
        return tags
    if record.kind == "pretraining" and tags["objective"] in UNTRAINED:
        note = NOTES["untrained"]
    elif record.kind == "trial" and _is_external(record):
        note = NOTES["external"]
    else:
        note = NOTES[record.kind]
    seeds = {"seeds_in_words": seeds_in_words(tags)} if record.kind == "trial" else {}
    return tags | {NOTE_TAG: note.format_map(tags | seeds)}


def _is_external(trial: RunRecord) -> bool:
    """Returns whether a trial is of an external system: a baseline that tried nothing, as in
    ``findings.cells.is_external``. The record of a baseline leaves out metrics of 0."""
    tried = any(key == "train/num_tries" for key, *_ in trial.points)
    return trial.tags["method"] == CLASSICAL and not tried


def seeds_in_words(tags: Mapping[str, str]) -> str:
    """Returns the seeds of a trial in words. A baseline has no pretraining: both of its seeds draw
    its labelled rows."""
    if tags["method"] == CLASSICAL:
        return f"the labelled rows of seeds {tags['pretrain_seed']} and {tags['finetune_seed']}"
    return f"pretraining seed {tags['pretrain_seed']} and fine-tuning seed {tags['finetune_seed']}"
