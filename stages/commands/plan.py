"""Show what `dvc repro` would run and what that costs, before anything runs.

Nothing is written. The time of a training is its floating-point operations divided by a speed. The
speed comes from earlier trainings of the same kind, assumed to have run on this machine, or from a
calibration, which trains for about a second per kind and reads some of each slow source.
Memory is the peak measured before, else an estimate from the sizes of weights and activations.

With --resolved it shows the study instead: every setting of every run and task, with its defaults
and after the budget has been matched.
"""

import json
import os
from io import StringIO

from ruamel.yaml import YAML

from stages.checking.faults import find_faults
from stages.commands._console import console
from stages.commands._parser import parser_of
from stages.core.process import exit_on_mistake
from stages.core.study_file import load
from stages.core.training_environment import training_environment
from stages.matching.budget import matched
from stages.planning.estimate import as_record, made
from stages.planning.last_report import narrower_intervals
from stages.planning.pending import pending
from stages.planning.tables import show

PIPED_WIDTH = 100


def main() -> None:
    parser = parser_of("plan", __doc__)
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument(
        "--json",
        action="store_true",
        help="print the same numbers as JSON: operations, seconds and bytes; null is unknown",
    )
    shown.add_argument(
        "--resolved",
        action="store_true",
        help="print the study as YAML with the value of every setting, and no costs",
    )
    options = parser.parse_args()
    # A calibration's processes inherit the environment.
    os.environ.update(training_environment())
    exit_on_mistake(lambda: _main(as_json=options.json, resolved=options.resolved))


def _main(*, as_json: bool, resolved: bool) -> None:
    params = load()
    if faults := list(find_faults(params)):
        raise ValueError("\n".join(faults))
    if resolved:
        text, yaml = StringIO(), YAML()
        yaml.width = PIPED_WIDTH
        settings = matched(params).model_dump(mode="json", exclude_none=True)
        settings["checkpoints"] = settings.pop("packaged_checkpoints")  # as in params.yaml
        yaml.dump(settings, text)
        print(text.getvalue(), end="")
        return
    estimate = made(params, [*pending(params)])
    if as_json:
        print(json.dumps(as_record(estimate), indent=2, ensure_ascii=False))
        return
    output = console(piped_width=PIPED_WIDTH)
    show(estimate, output)
    for line in narrower_intervals(params.study):
        output.print(line, highlight=False)


if __name__ == "__main__":
    main()
