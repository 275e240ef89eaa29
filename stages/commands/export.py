"""Write a pretrained run, or a fine-tuned trial of it, as a model that `transformers` loads.

The model that is written computes the same as this study's model: it is loaded again and compared
before it takes its place. What `transformers` cannot compute is refused.
"""

import argparse
from pathlib import Path

from stages.commands._kept_trials import add_options, chosen
from stages.core.process import exit_on_mistake
from stages.exporting.export import export
from stages.trials.lookup import find_trial


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m stages.commands.export",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", help="the run, by its name in params.yaml")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    parser.add_argument("--task", help="export a trial on this task, not the run itself")
    add_options(parser)
    parser.add_argument("--force", action="store_true", help="replace an earlier export")
    options = parser.parse_args()

    def checked() -> None:
        wanted = chosen(options)
        if options.task is None and any(wanted):
            raise ValueError("--method, --label-budget and --seed are of a trial; add --task")
        trial = None if options.task is None else find_trial(options.run, options.task, *wanted)
        print(export(options.run, trial, options.out, force=options.force))

    exit_on_mistake(checked)


if __name__ == "__main__":
    main()
