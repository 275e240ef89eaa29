"""What commands share: the parser of their options, the console, and the choice of a kept trial."""

import argparse
from typing import Any, NoReturn

from rich.console import Console

from stages.core.keys import TrialKey


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, as those of all commands."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}; --help lists the flags (of make FLAGS=--help)\n")


def parser_of(command: str, docstring: str | None, **settings: Any) -> argparse.ArgumentParser:
    """Returns a parser whose help begins with the docstring of the command's module."""
    return Parser(
        prog=f"python -m stages.commands.{command}",
        description=docstring,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **settings,
    )


def console(*, piped_width: int) -> Console:
    """Returns a console as wide as the terminal, or of ``piped_width`` characters for a file or a
    pipe."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=piped_width)


def add_trial_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that identify one of the kept trials of a model and a task."""
    add = parser.add_argument
    add("--pretrain-seed", type=int, metavar="N", help="by default the first that is kept")
    add("--method", help="the method of the trial, if several are kept")
    add("--label-budget", help="a number, or all; by default the largest")
    add("--finetune-seed", type=int, metavar="N", help="by default the first that is kept")


def chosen_trial(options: argparse.Namespace) -> TrialKey:
    """Returns the kept trial that the options identify.

    Raises ValueError, which lists the kept trials, unless the options identify exactly one.
    """
    from stages.trials.lookup import find_trial

    names = ("model", "task", "method", "label_budget", "finetune_seed", "pretrain_seed")
    return find_trial(*(getattr(options, name) for name in names))
