"""Check the whole of params.yaml before anything runs, and write the plan of every stage:
data/plans."""

import os
import sys

from stages.checking.faults import find_faults
from stages.core import paths
from stages.core.artifacts import replacing
from stages.core.params import NONE, Params
from stages.core.process import run_root
from stages.core.study_file import load
from stages.evaluation.records import discard_unlisted
from stages.planning.stage_plans import files_of, plans, write_plans

DVC_STAGE = "DVC_STAGE"  # a variable that DVC sets for its stages


def main() -> None:
    params = load()
    faults = list(find_faults(params))
    if faults:
        raise ValueError("\n".join(faults))
    for name, entry in params.baselines.items():
        files = files_of(name, entry, params.tasks)
        if files is not None and (lacking := [task for task in params.tasks if task not in files]):
            lack = f"not compared on {', '.join(lacking)}: no file of predictions"
            print(f"note: baselines.{name}: {lack}", file=sys.stderr)
    # Placeholders that never change, for files that templates of dvc.yaml name and the study lacks.
    for path in (
        paths.CHECKPOINTS / NONE,
        paths.CONTAMINATION / NONE,
        paths.CORPORA / NONE / "train.jsonl",  # for a tokenizer that is not trained
        paths.ENCODED / NONE,
        paths.TOKENIZERS / NONE,
    ):
        with replacing(path) as temporary:
            temporary.write_text("nothing\n")
    if DVC_STAGE in os.environ:  # a call by hand keeps the files of other studies
        _discard_unlisted(params)
    with replacing(paths.PLANS) as folder:
        folder.mkdir()
        write_plans(plans(params), folder)


def _discard_unlisted(params: Params) -> None:
    """Removes entries that are no longer in params.yaml from the folders on which stages depend as
    a whole, since the leftovers would make these stages run again."""
    discard_unlisted(paths.TASKS, params.tasks)
    discard_unlisted(paths.PRETRAINED, params.models)
    discard_unlisted(paths.CHECKPOINTS, [*params.packaged_checkpoints, NONE])
    discard_unlisted(paths.TOKENIZERS, [*params.tokenizers, NONE])
    for folder, suffix in (
        (paths.ENCODED, ""),
        (paths.CONTAMINATION, ".json"),
    ):
        discard_unlisted(folder, [*params.corpora, NONE])
        for key in params.corpora:
            discard_unlisted(folder / key, [f"{name}{suffix}" for name in params.tokenizers])


if __name__ == "__main__":
    run_root(main)
