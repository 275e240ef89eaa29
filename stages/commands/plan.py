"""Show what `dvc repro` would run and what that costs, before anything runs.

Nothing is written. Times come from earlier runs, assumed to be of this machine and scaled by
floating-point operations; without earlier runs, from a calibration, which trains each model and
reads slow sources for some seconds. Memory is the peak measured before, else an estimate from the
sizes of weights and activations.
"""

import argparse
import json
import os

from stages.checking.faults import find_faults
from stages.commands._console import console
from stages.core.params import Params, load
from stages.core.process import exit_on_mistake
from stages.core.training_environment import training_environment
from stages.planning import narrower
from stages.planning.estimate import as_record, made
from stages.planning.pending import pending
from stages.planning.tables import show

PIPED_WIDTH = 100


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m stages.commands.plan",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the same numbers as JSON: operations, seconds and bytes; null is unknown",
    )
    as_json = parser.parse_args().json
    # A calibration's processes inherit the environment.
    os.environ.update(training_environment())
    exit_on_mistake(lambda: _main(as_json=as_json))


def _main(*, as_json: bool) -> None:
    params = checked(load())
    estimate = made(params, [*pending(params)])
    if as_json:
        print(json.dumps(as_record(estimate), indent=2, ensure_ascii=False))
        return
    output = console(piped_width=PIPED_WIDTH)
    show(estimate, output)
    for line in narrower.lines(params.study):
        output.print(line, highlight=False)


def checked(params: Params) -> Params:
    """Raises ValueError with every fault of params.yaml."""
    if faults := list(find_faults(params)):
        raise ValueError("\n".join(faults))
    return params


if __name__ == "__main__":
    main()
