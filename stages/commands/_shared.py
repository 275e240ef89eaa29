"""What commands share: the parser of their options, the console, and the choice of a kept trial."""

import argparse
from typing import Any

from rich.console import Console

from stages.core.keys import TrialKey


def parser_of(command: str, docstring: str | None, **settings: Any) -> argparse.ArgumentParser:
    """Returns a parser whose help begins with the docstring of the command's module."""
    return argparse.ArgumentParser(
        prog=f"python -m stages.commands.{command}",
        description=docstring,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **settings,
    )


def console(*, piped_width: int) -> Console:
    """Returns a console as wide as the terminal, or of ``piped_width`` characters if the output
    goes to a file or a pipe, so that nothing is cut off there."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=piped_width)


def add_trial_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that identify one of the kept trials of a run and task."""
    add = parser.add_argument
    add(
        "--pretrain-seed",
        type=int,
        metavar="N",
        help="the seed of the model (default: the first that is kept)",
    )
    add("--method", help="the method of the trial, if several are kept")
    add("--label-budget", help="the label budget of the trial: a number, or all")
    add("--finetune-seed", type=int, metavar="N", help="the fine-tuning seed of the trial")


def chosen_trial(options: argparse.Namespace) -> TrialKey:
    """Returns the kept trial that the options identify.

    Raises ValueError, which lists the kept trials, unless the options identify exactly one.
    """
    from stages.trials.lookup import find_trial

    return find_trial(
        options.run,
        options.task,
        options.method,
        options.label_budget,
        options.finetune_seed,
        options.pretrain_seed,
    )
