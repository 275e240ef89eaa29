"""Write a checkpoint of a run, or a fine-tuned trial of it, as a model that `transformers` loads.

The written model computes the same as this study's model: it is loaded again and compared before
the folder appears. A model that `transformers` cannot compute is refused.

With --format onnx a trial that predicts labels or numbers becomes a model for `onnxruntime`, in
float32 and with int8 weights. Both versions are scored and timed on the study's test rows.

A classical baseline (with --task) is written as an MLflow model, with its rows and its code.
"""

import argparse
from pathlib import Path

from stages.commands._kept_trials import add_options, chosen_trial
from stages.commands._parser import parser_of
from stages.core.keys import RunKey, TrialKey
from stages.core.process import exit_on_mistake
from stages.evaluation.records import CLASSICAL
from stages.exporting.export import export, export_baseline, first_checkpoint


def main() -> None:
    parser = parser_of("export", __doc__)
    parser.add_argument("run", help="the run or baseline, by its name in params.yaml")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    parser.add_argument("--task", help="export a trial on this task, not the checkpoint")
    add_options(parser)
    parser.add_argument("--format", choices=["transformers", "onnx"], default="transformers")
    parser.add_argument("--force", action="store_true", help="replace an earlier export")
    options = parser.parse_args()

    def checked() -> None:
        if options.task is not None:
            trial = chosen_trial(options)
            if options.format == "onnx":
                print(_onnx(trial, options))
                return
            if trial.method == CLASSICAL:
                print(export_baseline(trial, options.out, force=options.force))
                return
            print(export(trial.checkpoint, trial, options.out, force=options.force))
            return
        if options.format == "onnx":
            raise ValueError("--format onnx exports a trial, not a checkpoint; add --task")
        if any((options.method, options.label_budget, options.finetune_seed is not None)):
            raise ValueError(
                "--method, --label-budget and --finetune-seed belong to a trial; add --task"
            )
        checkpoint = first_checkpoint(options.run)
        if options.pretrain_seed is not None:
            checkpoint = RunKey(options.run, options.pretrain_seed)
        print(export(checkpoint, None, options.out, force=options.force))

    exit_on_mistake(checked)


def _onnx(trial: TrialKey, options: argparse.Namespace) -> str:
    try:
        from stages.exporting.onnx_export import export_onnx
    except ModuleNotFoundError as error:
        raise ValueError(
            f"--format onnx needs the package {error.name}; `make setup` installs it"
        ) from None
    return export_onnx(trial, options.out, force=options.force)


if __name__ == "__main__":
    main()
