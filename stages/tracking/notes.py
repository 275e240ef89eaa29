"""The descriptions of runs in MLflow: what a run is, and where to look next."""

from stages.tracking.records import NOTE_TAG, UNTRAINED, RunRecord

COMPARED = "The view Scores compares it with the others, and a leaderboard does so for each task."
NOTES = {
    "run": f"All seeds of `{{run}}`: its scores, its pretrainings and its trials.\n\n{COMPARED}",
    "baseline": (
        f"The classical baseline `{{run}}`, without pretraining: its scores and its trials.\n\n"
        f"{COMPARED}"
    ),
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
        "pretraining seed {pretrain_seed} and fine-tuning seed {finetune_seed}.\n\n"
        "The run above it has the mean over all seeds."
    ),
}


def tags_of(record: RunRecord) -> dict[str, str]:
    """Returns the tags of a record with its description, unless it has one."""
    if NOTE_TAG in record.tags:
        return record.tags
    is_untrained = record.kind == "pretraining" and record.tags["objective"] in UNTRAINED
    note = NOTES["untrained" if is_untrained else record.kind]
    return record.tags | {NOTE_TAG: note.format_map(record.tags)}
