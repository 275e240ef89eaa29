"""Options that tell the kept trials of one run and task apart."""

from argparse import ArgumentParser, Namespace


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--method", help="of the trial, if several are kept")
    parser.add_argument("--label-budget", help="of the trial: a number, or all")
    parser.add_argument("--seed", help="of the trial's fine-tuning")


def chosen(options: Namespace) -> tuple[str | None, str | None, str | None]:
    return options.method, options.label_budget, options.seed
