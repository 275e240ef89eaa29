"""The command-line options that choose a checkpoint of a run, or one of its kept trials."""

from argparse import ArgumentParser, Namespace

from stages.core.keys import TrialKey
from stages.trials.lookup import find_trial


def add_options(parser: ArgumentParser) -> None:
    """Adds the options that identify one of the kept trials of a run and task."""
    parser.add_argument(
        "--pretrain-seed",
        type=int,
        metavar="N",
        help="the seed of the run (default: the first that is kept)",
    )
    parser.add_argument("--method", help="the method of the trial, if several are kept")
    parser.add_argument("--label-budget", help="the label budget of the trial: a number, or all")
    parser.add_argument(
        "--finetune-seed", type=int, metavar="N", help="the fine-tuning seed of the trial"
    )


def chosen_trial(options: Namespace) -> TrialKey:
    """Returns the kept trial that the options identify.

    Raises ValueError, which lists the kept trials, unless the options identify exactly one.
    """
    return find_trial(
        options.run,
        options.task,
        options.method,
        options.label_budget,
        options.finetune_seed,
        options.pretrain_seed,
    )
