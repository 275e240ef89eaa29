"""The options of a command that choose a kept trial."""

from argparse import ArgumentParser, Namespace


def add_options(parser: ArgumentParser) -> None:
    """Add the options that tell the trials of one run and task apart."""
    parser.add_argument("--method", help="of the trial, if several are kept")
    parser.add_argument("--label-budget", help="of the trial: a number, or all")
    parser.add_argument("--seed", help="of the trial's fine-tuning")


def chosen(options: Namespace) -> tuple[str | None, str | None, str | None]:
    """The method, the label budget and the seed, None for each that is not given."""
    return options.method, options.label_budget, options.seed
