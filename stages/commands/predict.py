"""Predict new text with a trial of a run and a task: a JSON object for each row.

If the method trains, the weights of the trial must have been kept (finetune.keep_weights).

Rows are read from FILE or from the standard input:

  txt           a text per line (for tagging: its words, separated by blanks); blank lines are
                skipped
  csv, tsv      the first line names the columns
  jsonl, json   objects with the columns
  conll, conllu a word per line, in the first column (FORM); blank lines between sentences

The columns are the inputs of the task: text (and text_pair if the task has pairs), words, ... The
output has for each row its "id", or else its "line", and the prediction.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tqdm import tqdm

from stages.commands._kept_trials import add_options, chosen
from stages.core.artifacts import Json, replacing
from stages.core.components import Settings
from stages.core.params import Compute
from stages.core.process import exit_on_mistake
from stages.kinds._cells import list_of
from stages.kinds._kind import KINDS, Kind
from stages.models._heads import ModelWithHead
from stages.sources._formats import FORMATS, Record, format_of, read, records
from stages.training.device import Device, resolve
from stages.trials.kept import KeptTrial, predictor, rebuilt
from stages.trials.lookup import find_trial, opened
from stages.trials.prediction import predict
from stages.trials.setup import TrialSetup

ROWS_AT_ONCE = 512  # in memory
BAR_AFTER_S = 3.0  # short inputs need no progress bar
WORDS = "words"  # the one input that is a list
# The column of words in formats whose columns have no names.
WORD_COLUMNS = {"conll": "1", "conllu": "FORM"}
EXAMPLES = """\
examples:
  echo "A list." | python -m stages.commands.predict --run bert --task section --method full
  python -m stages.commands.predict --run bert --task reviews --method full \\
      --column text=review --output predictions.jsonl reviews.csv.gz

If only one trial is kept, --method, --label-budget and --seed can be left out.
"""


def main() -> None:
    options = _parser().parse_args()
    try:
        exit_on_mistake(lambda: run(options))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has enough (`| head`); Python would flush again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m stages.commands.predict",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--run", required=True, help="the run, by its name in params.yaml")
    parser.add_argument("--task", required=True, help="the task, by its name in params.yaml")
    add_options(parser)
    parser.add_argument(
        "--format", choices=FORMATS, help="if the file name does not say it; stdin is txt"
    )
    parser.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="INPUT=COLUMN",
        help="the column of an input, if it has another name; can be repeated",
    )
    parser.add_argument("--output", type=Path, help="a file to write, whole or not at all")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("file", nargs="?", type=Path, help="also .gz; without it: stdin")
    return parser


def run(options: argparse.Namespace) -> None:
    """Raises ValueError for a trial that was not kept, and for input that cannot be read."""
    trial = find_trial(options.run, options.task, *chosen(options))
    kept, setup = opened(options.run, trial)
    columns = Columns.of(setup)
    rows = _read(options.file, options.format, columns, columns.renamed(options.column))
    rows = _refuse_none(rows, options.file)  # before the model is loaded
    device = _device(options.device, kept)
    model = rebuilt(kept, setup, trial.path(options.run)).to(device.torch)
    lines = _predictions(kept, setup, model, rows, device)
    if options.output is None:
        _write(lines, sys.stdout.write, bar=not sys.stdout.isatty())
    elif options.output.is_dir():
        raise ValueError(f"--output: {options.output} is a folder")
    else:
        _write_file(lines, options.output)


class Row(NamedTuple):
    """What identifies a row in the output, and the row as the task takes it."""

    shown: Json
    row: Json


# What is read ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Columns:
    """The columns that a task reads."""

    kind: str  # of its rows
    inputs: tuple[str, ...]  # which every row must have
    optional: tuple[str, ...]

    @classmethod
    def of(cls, setup: TrialSetup) -> "Columns":
        """Optional inputs that the model was trained with (the second text of a pair) are inputs
        that every row must have."""
        name = setup.task_record["kind"]
        inputs, optional = KINDS[name].inputs, KINDS[name].optional
        with (setup.examples / "train.jsonl").open(encoding="utf-8") as file:
            trained_with = json.loads(file.readline())
        required = tuple(key for key in optional if key in trained_with)
        rest = tuple(key for key in optional if key not in required)
        return cls(name, (*inputs, *required), rest)

    def renamed(self, pairs: Iterable[str]) -> dict[str, str]:
        """Input of the task -> column of the file, where the two differ."""
        known, renamed = (*self.inputs, *self.optional), {}
        for pair in pairs:
            key, equals, column = pair.partition("=")
            if not equals or not column or key not in known:
                raise ValueError(
                    f"--column: must be INPUT=COLUMN, INPUT one of {', '.join(known)}, not {pair!r}"
                )
            renamed[key] = column
        return renamed


def _read(
    file: Path | None, format: str | None, columns: Columns, renamed: Mapping[str, str]
) -> Iterator[Row]:
    """The rows of a file as the task takes them."""
    inputs, optional, kind = columns.inputs, columns.optional, KINDS[columns.kind]
    first, *others = inputs
    format = format or ("txt" if file is None else format_of(file))
    if format not in FORMATS:
        raise ValueError(f"--format: name it, since {file} ends in none of {', '.join(FORMATS)}")
    if format in ("txt", *WORD_COLUMNS) and others:
        raise ValueError(
            f"--format: {format} has one input per row, but {columns.kind} needs "
            f"{' and '.join(inputs)}; give csv, tsv, jsonl or json"
        )
    if format in WORD_COLUMNS and first != WORDS:
        raise ValueError(f"--format: {format} is for tasks on words; {columns.kind} takes {first}")
    column_of = {key: key for key in (*inputs, *optional)} | dict(renamed)
    if format == "txt":
        column_of[first] = "text"
    elif format in WORD_COLUMNS:
        column_of[WORDS] = renamed.get(WORDS, WORD_COLUMNS[format])

    place = "stdin" if file is None else str(file)
    for number, record in enumerate(_records(file, format, place)):
        cells = record.cells
        values = {
            key: _value(cells, column_of[key], f"{place} {record.place}", kind, key)
            for key in (*inputs, *optional)
            if key in inputs or key in renamed or column_of[key] in cells
        }
        yield Row(_shown(record), {"id": str(number), **values})


def _shown(record: Record) -> Json:
    """What identifies a row: its id, else its line, or its place in a list."""
    if "id" in record.cells:
        return {"id": record.cells["id"]}
    kind, _, number = record.place.partition(" ")
    return {"id": record.key} if kind == "question" else {kind: int(number)}


def _records(file: Path | None, format: str, place: str) -> Iterator[Record]:
    if file is None and format == "parquet":
        raise ValueError("--format: parquet is read from a file, not from stdin")
    try:
        if file is None:
            found = records(sys.stdin.buffer, format, name=place)
        else:
            found = read(file, format, columns=None, unit="line", languages=[])
        for record in found:
            if format == "txt":
                record.cells["text"] = record.cells["text"].rstrip("\r\n")
            yield record
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror}") from None


def _value(record: Settings, column: str, place: str, kind: Kind, key: str) -> Any:
    """The text, the words or the list of texts in a column of a record."""
    if column not in record:
        raise ValueError(
            f"{place}: no column {column!r}; there are: {', '.join(record)}; --column names another"
        )
    value = record[column]
    if key == WORDS:
        found = value.split() if isinstance(value, str) else value
        if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
            raise ValueError(f"{place}: {column} must be words, not {value!r}")
        text = " ".join(found)
    elif key in kind.lists:
        found = list_of(value, f"{place}: {column}")
        text = " ".join(found)
    else:
        if not isinstance(value, str | int | float):
            raise ValueError(f"{place}: {column} must be text, not {value!r}")
        found = text = str(value)
    if not text.strip():
        raise ValueError(f"{place}: {column} is empty")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{place}: {column} is not valid Unicode: half a surrogate pair") from None
    return found


def _refuse_none(rows: Iterator[Row], file: Path | None) -> Iterator[Row]:
    """The same rows; raises ValueError if there are none."""
    first = next(rows, None)
    if first is None:
        raise ValueError(f"{file or 'stdin'}: no rows")
    return chain([first], rows)


# What is written ---------------------------------------------------------------------------------


def _device(name: str, kept: KeptTrial) -> Device:
    """The device, with the precision of the trial and the default number of threads."""
    threads = torch.get_num_threads()
    settings = {"device": name, "precision": kept.precision, "compile": False}
    compute = Compute(**settings, threads=threads, trial_threads=threads)
    try:
        return resolve(compute, threads=threads)
    except ValueError as error:
        raise ValueError(str(error).replace("compute.device", "--device")) from None


def _predictions(
    kept: KeptTrial, setup: TrialSetup, model: ModelWithHead, rows: Iterator[Row], device: Device
) -> Iterator[str]:
    """A line of JSON for each row."""
    by = predictor(kept, setup)
    while some := list(islice(rows, ROWS_AT_ONCE)):
        given = [row.row for row in some]
        predicted = predict(by, model, given, by.encode(given), device)
        for (shown, row), each in zip(some, predicted, strict=True):
            found = shown | setup.task.columns(row, each.at(kept.threshold))
            if each.scores is not None:
                found["scores"] = {label: round(score, 6) for label, score in each.scores.items()}
            yield json.dumps(found, ensure_ascii=False) + "\n"


def _write_file(lines: Iterable[str], path: Path) -> None:
    try:
        with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
            _write(lines, file.write, bar=True)
    except OSError as error:
        raise ValueError(f"--output: {path}: {error.strerror}") from None


def _write(lines: Iterable[str], write: Callable[[str], object], *, bar: bool) -> None:
    shown = tqdm(
        lines, desc="predict", unit="row", delay=BAR_AFTER_S, disable=None if bar else True
    )
    for line in shown:
        write(line)


if __name__ == "__main__":
    main()
