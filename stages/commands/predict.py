"""Predict new text with a trial (a run or baseline on a task); print a JSON object for each row.

If the method trains, the weights of the trial must have been kept (finetune.keep_weights). A
baseline is fitted again to its training rows, in seconds.

Rows are read from FILE or from the standard input:

  txt           a text per line (for tagging: its words, separated by blanks); blank lines are
                skipped
  csv, tsv      the first line names the columns
  jsonl, json   objects with the columns
  conll, conllu a word per line, in the first column (FORM); blank lines between sentences
  parquet       a table, from a file alone

Each input of the task (text, text_pair, words, ...) is read from the column of that name or, if
FILE has none, from the column that it has in the data of the study. The output has, for each row,
its "id" or, without one, its "line"; the prediction; and the probability of each label ("scores"),
if there are any. A baseline has the "probability" of its prediction.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from tqdm import tqdm

from stages.baselines import _kept
from stages.commands._shared import add_trial_options, chosen_trial, parser_of
from stages.core import paths, plans
from stages.core.artifacts import Json, read_json, replacing
from stages.core.keys import TrialKey
from stages.core.process import exit_on_mistake
from stages.core.study_file import PATH, read_yaml
from stages.evaluation.records import CLASSICAL
from stages.sources._formats import FORMATS, Record, format_of, read, records
from stages.tasks._inputs import WORDS, Columns, input_of
from stages.tasks._task import TASKS
from stages.trials.kept import path_of, rebuilt
from stages.trials.lookup import opened
from stages.trials.new_rows import (
    Abstention,
    NewRow,
    baseline_predictions,
    device_for,
    predictions,
)

BAR_AFTER_S = 3.0  # short inputs need no progress bar
# The column of the only input in formats whose columns have no names.
ONE_COLUMN = {"txt": "text", "conll": "1", "conllu": "FORM"}
EXAMPLES = """\
examples:
  echo "A list." | python -m stages.commands.predict bert section --method full
  python -m stages.commands.predict bert reviews reviews.csv.gz --method full \\
      --pretrain-seed 2 --column text=review --output predictions.jsonl

Options are needed only where several trials are kept.
"""


def main() -> None:
    parser = parser_of("predict", __doc__, epilog=EXAMPLES)
    add = parser.add_argument
    add("run", help="the run or baseline, by its name in params.yaml")
    add("task", help="the task, by its name in params.yaml")
    add("file", nargs="?", type=Path, help="also .gz; without it: stdin")
    add_trial_options(parser)
    add("--format", choices=FORMATS, help="if the file name does not say it; stdin is txt")
    add(
        "--column",
        action="append",
        default=[],
        metavar="INPUT=COLUMN",
        help="the column of an input, if it has another name; can be repeated",
    )
    add(
        "--min-confidence",
        type=float,
        default=0.0,
        metavar="P",
        help="predictions of a lower probability are left empty",
    )
    add("--output", type=Path, help="a file to write, whole or not at all")
    add("--device", choices=["auto", "cpu", "cuda"], default="auto")
    options = parser.parse_intermixed_args()  # FILE may follow the options
    try:
        exit_on_mistake(lambda: run(options), reader_may_end=True)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def run(options: argparse.Namespace) -> None:
    """Writes the predictions, and to stderr the share of rows that ``--min-confidence`` leaves
    without a prediction. Raises ValueError for a trial that was not kept and for unreadable
    input."""
    if not 0 <= options.min_confidence <= 1:
        raise ValueError(f"--min-confidence: must be from 0 to 1, not {options.min_confidence:g}")
    abstention = Abstention(options.min_confidence)
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in predicted(options, abstention))
    settings = {"desc": "predict", "unit": "row", "delay": BAR_AFTER_S}
    if options.output is None:
        sys.stdout.writelines(tqdm(lines, **settings, disable=sys.stdout.isatty() or None))
    elif options.output.is_dir():
        raise ValueError(f"--output: {options.output} is a folder")
    else:
        try:
            with replacing(options.output) as path, path.open("w", encoding="utf-8") as file:
                file.writelines(tqdm(lines, **settings, disable=None))
        except OSError as error:
            raise ValueError(f"--output: {options.output}: {error.strerror}") from None
    if abstention.min_confidence and abstention.num_rows:
        number, total = abstention.num_unanswered, abstention.num_rows
        print(
            f"{number:,} of {total:,} rows ({number / total:.1%}) have no prediction: their "
            f"probability is below {abstention.min_confidence:g}",
            file=sys.stderr,
        )


def predicted(options: argparse.Namespace, abstention: Abstention) -> Iterator[Json]:
    """Returns the rows with their predictions. Raises ValueError if the trial is not kept, or if
    files that it was trained with are missing, which is so after `dvc repro` of another study."""
    trial = chosen_trial(options)
    examples, is_baseline = paths.examples(trial.task), trial.method == CLASSICAL
    needed = [examples / "task.json"]
    needed += [] if is_baseline else [paths.pretrained(trial.checkpoint) / "run.json"]
    if missing := [file for file in needed if not file.is_file()]:
        raise ValueError(
            f"{missing[0]}: no such file, and {PATH} has the study {read_yaml(PATH).get('study')}; "
            f"put the study of {trial.task} into {PATH} if it is another, and run `make repro`"
        )
    if is_baseline:
        rows = _rows(trial, options, examples)
        baseline, kind = _kept.refit(_kept.path_of(trial), examples)
        return baseline_predictions(baseline, kind, rows, abstention)
    kept, setup = opened(trial)
    rows = _rows(trial, options, setup.examples)  # before the model is loaded
    try:
        device = device_for(kept, options.device)
    except ValueError as error:
        raise ValueError(str(error).replace("compute.device", "--device")) from None
    model = rebuilt(kept, setup, path_of(trial)).to(device.torch)
    return predictions(kept, setup, model, rows, device, abstention)


# Reading rows ------------------------------------------------------------------------------------


def _rows(trial: TrialKey, options: argparse.Namespace, examples: Path) -> Iterator[NewRow]:
    """Returns the rows to predict, as the task in the folder ``examples`` reads them; raises
    ValueError if there are none."""
    columns, renamed = Columns.of(examples), dict[str, str]()
    known = (*columns.inputs, *columns.optional)
    for pair in options.column:
        key, _, column = pair.partition("=")
        if not column or key not in known:
            raise ValueError(
                f"--column: must be INPUT=COLUMN, INPUT one of {', '.join(known)}, not {pair!r}"
            )
        renamed[key] = column
    plan = plans.path_of("prepare_task", trial.task)
    source = read_json(plan)["task"]["source"] if plan.is_file() else {}
    rows = new_rows(options.file, options.format, columns, renamed, source)
    if (first := next(rows, None)) is None:
        raise ValueError(f"{options.file or 'stdin'}: no rows")
    return chain([first], rows)


def new_rows(
    file: Path | None,
    format: str | None,
    columns: Columns,
    renamed: Mapping[str, str],
    source: Mapping[str, object],
) -> Iterator[NewRow]:
    """Yields the rows of a file as the task reads them. An input that is not ``renamed`` is read
    from the column of its own name or, without one, from its column in the data of the study, which
    the settings of its ``source`` name."""
    format, place = _format(file, format, columns), str(file or "stdin")
    column_of = {key: renamed.get(key, key) for key in (*columns.inputs, *columns.optional)}
    if format in ONE_COLUMN:
        first = columns.inputs[0]
        column_of[first] = renamed.get(first, ONE_COLUMN[format])
    kind = TASKS[columns.kind]
    for number, record in enumerate(_records(file, format)):
        cells, row = record.cells, {"id": str(number)}
        for key, own in column_of.items():
            in_study = source.get(key)
            use_study = own not in cells and key not in renamed and in_study in cells
            column = str(in_study) if use_study else own
            if column in cells:
                row[key] = input_of(cells[column], f"{place} {record.place}: {column}", kind, key)
            elif key in columns.inputs or key in renamed:
                raise ValueError(
                    f"{place} {record.place}: no column {column!r}; there are: {', '.join(cells)}; "
                    f"name the right one: --column {key}=COLUMN"
                )
        yield NewRow(_identity(record), row)


def _format(file: Path | None, format: str | None, columns: Columns) -> str:
    """Returns the format of a file; raises ValueError if it is unknown or has too few columns."""
    if file is not None and not file.is_file():
        is_folder = file.is_dir()
        raise ValueError(
            f"{file}: {'is a folder; name a file in it' * is_folder or 'no such file'}"
        )
    format = format or ("txt" if file is None else format_of(file))
    first, *others = columns.inputs
    if format not in FORMATS:
        raise ValueError(
            f"--format: name it, since {file} ends in none of {', '.join(FORMATS)}, with or "
            "without .gz; `--format txt` reads a text per line"
        )
    if file is None and format == "parquet":
        raise ValueError("--format: parquet is read from a file, not from stdin")
    if format in ONE_COLUMN and others:
        raise ValueError(
            f"--format: {format} has one input per row, but {columns.kind} needs "
            f"{' and '.join(columns.inputs)}; give csv, tsv, jsonl or json"
        )
    if format in ("conll", "conllu") and first != WORDS:
        raise ValueError(f"--format: {format} is for tasks on words; {columns.kind} takes {first}")
    return format


def _records(file: Path | None, format: str) -> Iterable[Record]:
    try:
        rows = (
            records(sys.stdin.buffer, format, name="stdin") if file is None else read(file, format)
        )
        for record in rows:
            if format == "txt":
                record.cells["text"] = record.cells["text"].rstrip("\r\n")
            yield record
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror}") from None


def _identity(record: Record) -> Json:
    """Returns what identifies a row: its id or, without one, its line or its place in a list."""
    if "id" in record.cells:
        return {"id": record.cells["id"]}
    kind, _, number = record.place.partition(" ")
    return {"id": record.key} if kind == "question" else {kind: int(number)}


if __name__ == "__main__":
    main()
