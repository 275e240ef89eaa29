"""Show what `make repro` would run and how long that takes, before anything runs.

Nothing is written. The work of a training is its weights times the tokens that it reads. Its speed
comes from earlier trainings of the same kind, assumed to have run on this machine, or from a
calibration, which trains for about a second per kind.

With --resolved it shows the study instead: every setting of every model and task, with its defaults
and after the budget has been matched.
"""

import os
import sys

from ruamel.yaml import YAML

from stages.budgets.budget import matched
from stages.checking.faults import find_faults
from stages.commands._shared import console, parser_of
from stages.core.parallel import training_environment
from stages.core.process import exit_on_mistake
from stages.core.study_file import load
from stages.planning.estimate import made, show
from stages.planning.pending import pending

PIPED_WIDTH = 100


def main() -> None:
    parser = parser_of("plan", __doc__)
    parser.add_argument(
        "--resolved", action="store_true", help="print the study with the value of every setting"
    )
    resolved = parser.parse_args().resolved
    # A calibration's processes inherit the environment.
    os.environ.update(training_environment())
    exit_on_mistake(lambda: _main(resolved=resolved))


def _main(*, resolved: bool) -> None:
    params = load()
    if faults := list(find_faults(params)):
        raise ValueError("\n".join(faults))
    if resolved:
        yaml = YAML()
        yaml.width = PIPED_WIDTH
        yaml.dump(matched(params).model_dump(mode="json", exclude_none=True), sys.stdout)
    else:
        show(made(params, [*pending(params)]), console(piped_width=PIPED_WIDTH))


if __name__ == "__main__":
    main()
