"""Check the whole of params.yaml before anything runs, and write the plan of every stage:
data/plans."""

import os
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from stages.checking.faults import find_faults
from stages.core import paths
from stages.core.artifacts import replacing
from stages.core.components import Settings
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
    for note in _notes(params.baselines, params.tasks):
        print(f"note: {note}", file=sys.stderr)
    # Placeholders that never change, for files that templates of dvc.yaml name and the study lacks.
    for path in (
        paths.CHECKPOINTS / NONE,
        paths.CONTAMINATION / NONE,
        paths.CORPORA / NONE / "train.jsonl",  # for a tokenizer that is not trained
        paths.ENCODED / NONE,
        paths.LIKENESS / NONE,
        paths.TOKENIZERS / NONE,
    ):
        _write_nothing(path)
    if DVC_STAGE in os.environ:  # a call by hand keeps the files of other studies
        _discard_unlisted(params)
    with replacing(paths.PLANS) as folder:
        folder.mkdir()
        write_plans(plans(params), folder)


def _notes(baselines: Mapping[str, Settings], tasks: Collection[str]) -> Iterator[str]:
    """Yields a note for each baseline that is not compared on some tasks, because its folder has no
    file for them."""
    for name, entry in baselines.items():
        files = files_of(name, entry, tasks)
        if files is not None and (without := [task for task in tasks if task not in files]):
            yield f"baselines.{name}: not compared on {', '.join(without)}: no file of predictions"


def _discard_unlisted(params: Params) -> None:
    """Removes entries that are no longer in params.yaml from the folders on which stages depend as
    a whole, since the leftovers would make these stages run again."""
    discard_unlisted(paths.TASKS, params.tasks)
    discard_unlisted(paths.PRETRAINED, params.runs)
    discard_unlisted(paths.CHECKPOINTS, [*params.packaged_checkpoints, NONE])
    discard_unlisted(paths.TOKENIZERS, [*params.tokenizers, NONE])
    discard_unlisted(paths.ENCODED, [*params.corpora, NONE])
    for folder in (paths.CONTAMINATION, paths.LIKENESS):
        discard_unlisted(folder, [*params.corpora, NONE])
    for key in params.corpora:
        discard_unlisted(paths.ENCODED / key, params.tokenizers)
        for folder in (paths.CONTAMINATION, paths.LIKENESS):
            discard_unlisted(folder / key, [f"{name}.json" for name in params.tokenizers])


def _write_nothing(path: Path) -> None:
    with replacing(path) as temporary:
        temporary.write_text("nothing\n")


if __name__ == "__main__":
    run_root(main)
