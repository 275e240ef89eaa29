"""Look at one's own labelled files and write a study of them to params.yaml.

DATA is a csv, tsv, jsonl, json (also SQuAD's), conll, conllu or parquet file, or a folder with
files for train, validation and test. What it was taken for is printed, and why; what the data leave
open is listed with the flag that decides it. Nothing is trained, but for some seconds that tell how
fast this machine is.

A published checkpoint that was fetched (`make setup EXTRA=published`) is among the candidates where
the time allows, fine-tuned in full and frozen: 23 million weights, for texts in English.
"""

import argparse
import os
from pathlib import Path
from textwrap import indent, wrap
from typing import get_args

from stages.commands._written_study import refuse_faults, refuse_loss, write
from stages.core.params import PATH
from stages.core.process import exit_on_mistake
from stages.core.training_environment import training_environment
from stages.kinds._kind import SPLITS
from stages.kinds._tags import Scheme
from stages.proposal.asked import Asked
from stages.proposal.design import Budget
from stages.proposal.propose import Proposal, minutes, propose
from stages.proposal.roles import KINDS_OF_STUDIES, ROLES
from stages.sources._formats import DELIMITERS, FORMATS

WIDTH = 100


def main() -> None:
    flags = parser().parse_args()
    exit_on_mistake(lambda: _main(flags))


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m stages.commands.new",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = found.add_argument
    add("data", metavar="DATA", type=Path, help="the labelled file or folder")
    add("--text", metavar="FOLDER", type=Path, help="unlabelled text to pretrain on")
    add("--minutes", type=float, default=10.0, help="that the study may take (default: 10)")
    add("--out", type=Path, default=PATH, help=f"what is written (default: {PATH})")
    add("--force", action="store_true", help="even over a study that is kept nowhere else")
    data = found.add_argument_group("what cannot be seen in the data")
    add = data.add_argument
    add("--task", choices=KINDS_OF_STUDIES, help="the kind of task")
    add(
        "--column",
        action="append",
        default=[],
        metavar="ROLE=NAME",
        help=f"the column that is read as one of {', '.join(ROLES)}; of choices several, "
        "with commas",
    )
    add("--columns", metavar="NAME,...", help="the columns of a file that has no header")
    add("--header", action="store_true", help="the first line names the columns")
    add("--format", choices=FORMATS, default="auto")
    add("--delimiter", choices=list(DELIMITERS), default="auto", help="between columns")
    add("--tag-scheme", choices=get_args(Scheme), help="of the tags of words")
    add("--first-choice", choices=("0", "1", "A"), help="what the first choice is called")
    for split in SPLITS:
        add(f"--{split}", metavar="FILE", action="append", default=[], help="in the folder DATA")
    add("--max-tokens", type=int, help="of a text; longer ones are cut")
    add("--labels", metavar="N,...", help="label budgets, such as 100,1000,all")
    return found


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
    proposal = propose(
        flags.data,
        asked(flags),
        text=flags.text,
        seconds=60 * flags.minutes,
        measure=measured,
    )
    refuse_faults(proposal.text, str(flags.out))
    write(flags.out, proposal.text)
    print(shown(proposal, flags.data, flags.minutes, flags.out))


def asked(flags: argparse.Namespace) -> Asked:
    """Raises ValueError for a flag that cannot be read."""
    columns = {}
    for each in flags.column:
        role, _, name = each.partition("=")
        if role not in ROLES or not name:
            raise ValueError(
                f"--column: {each!r} must be ROLE=NAME, ROLE one of {', '.join(ROLES)}"
            )
        columns[role] = name.split(",") if role == "choices" else [name]
    budgets: list[Budget] = []
    for each in flags.labels.split(",") if flags.labels else []:
        if each != "all" and not (each.isdecimal() and int(each)):
            raise ValueError(f"--labels: {each!r} must be a number of labels, or all")
        budgets.append(each if each == "all" else int(each))
    if flags.max_tokens is not None and flags.max_tokens < 8:
        raise ValueError(f"--max-tokens: must be at least 8, not {flags.max_tokens}")
    return Asked(
        task=flags.task,
        columns=columns,
        names=flags.columns.split(",") if flags.columns else None,
        header=flags.header,
        format=flags.format,
        delimiter=flags.delimiter,
        tag_scheme=flags.tag_scheme,
        first_choice=flags.first_choice,
        splits={split: names for split in SPLITS if (names := getattr(flags, split))},
        max_tokens=flags.max_tokens,
        budgets=budgets,
    )


def shown(proposal: Proposal, data: Path, wanted: float, out: Path) -> str:
    """What is printed."""
    study = proposal.study
    design = study.design
    lines = [f"{data} was taken for {study.kind}.", ""]
    for line in proposal.notes.seen:
        lines.append(_item(line))
    if proposal.notes.unclear:
        lines += ["", "What the data leave open:"]
        lines += map(_item, proposal.notes.unclear)
    pretrained = "pretrained and from scratch" if design.pretrains else "from scratch"
    seeds = (
        design.pretraining_seeds if design.pretraining_seeds > 1 else len(design.finetuning_seeds)
    )
    what = (
        f"{' and '.join(design.architectures)}, {pretrained}, with {seeds} seeds, on "
        f"{' and '.join(map(str, design.budgets))} labels, beside classical baselines"
    )
    if design.published and study.published is not None:
        what += f"; beside them {study.published.hub_name} as published"
    if design.pretrains:
        what += f"; pretraining takes {design.pretraining_steps:,} steps"
    lines += ["", f"The study in {out}:", _item(f"{what}.")]
    takes = f"About {minutes(proposal.seconds)} on this machine, as it trains just now."
    if proposal.seconds > 60 * wanted:
        takes += f" No smaller study compares anything, so it does not fit {wanted:g} minutes."
    lines.append(_item(takes))
    if out == PATH:
        lines += ["", "Next: `make plan` says what it takes, `make repro` gives the answer."]
    else:
        lines += ["", f"Next: `cp {out} {PATH}`, then `make plan` and `make repro`."]
    return "\n".join(lines)


def _item(line: str) -> str:
    return indent("\n".join(wrap(line, WIDTH - 2, break_on_hyphens=False)), "  ").replace(
        "  ", "- ", 1
    )


if __name__ == "__main__":
    main()
