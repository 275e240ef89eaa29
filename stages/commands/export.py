"""Write a checkpoint of a model, or a fine-tuned trial of it, as a model that `transformers` loads.

With --task it is a trial: the weights of its method are merged, and its head is part of the model
where a class of `transformers` computes the same. What was written is loaded again and compared
before the folder appears. Its README.md says how to use it.

A classical baseline (with --task) is written with its labelled rows and its code.
"""

import argparse
from pathlib import Path

from stages.commands._shared import add_trial_options, chosen_trial, parser_of
from stages.core.process import exit_on_mistake
from stages.evaluation.records import CLASSICAL
from stages.exporting.export import (
    export_baseline,
    export_checkpoint,
    export_trial,
    find_checkpoint,
)


def main() -> None:
    parser = parser_of("export", __doc__)
    parser.add_argument("model", help="the model or baseline, by its name in params.yaml")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    parser.add_argument("--task", help="export a trial on this task, not the checkpoint")
    add_trial_options(parser)
    options = parser.parse_args()
    exit_on_mistake(lambda: print(export(options)))


def export(options: argparse.Namespace) -> Path | str:
    """Writes what the options name and returns what to print about it."""
    if options.task is not None:
        trial = chosen_trial(options)
        write = export_baseline if trial.method == CLASSICAL else export_trial
        return write(trial, options.out)
    if any((options.method, options.label_budget, options.finetune_seed is not None)):
        raise ValueError(
            "--method, --label-budget and --finetune-seed belong to a trial; add --task"
        )
    checkpoint = find_checkpoint(options.model, options.pretrain_seed)
    return export_checkpoint(checkpoint, options.out)


if __name__ == "__main__":
    main()
