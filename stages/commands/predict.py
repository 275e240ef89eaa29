"""Predict new text with a trial (a run or baseline on a task); print a JSON object for each row.

If the method trains, the weights of the trial must have been kept (finetune.keep_weights). A
baseline is fitted again to its training rows, in seconds.

Rows are read from FILE or from the standard input:

  txt           a text per line (for tagging: its words, separated by blanks); blank lines are
                skipped
  csv, tsv      the first line names the columns
  jsonl, json   objects with the columns
  conll, conllu a word per line, in the first column (FORM); blank lines between sentences

Each input of the task (text, text_pair, words, ...) is read from the column of that name or, if
FILE has none, from the column that it has in the data of the study. The output has, for each row,
its "id" or, without one, its "line"; the prediction; and the probability of each label ("scores"),
if there are any. A baseline has the "probability" of its prediction.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from tqdm import tqdm

from stages.baselines import _kept
from stages.commands._kept_trials import add_options, chosen_trial
from stages.commands._parser import parser_of
from stages.core import paths, plans
from stages.core.artifacts import Json, read_json, replacing
from stages.core.components import Settings
from stages.core.keys import TrialKey
from stages.core.process import exit_on_mistake
from stages.core.study_file import PATH, read_yaml
from stages.evaluation.records import CLASSICAL
from stages.kinds._inputs import WORDS, Columns, input_of
from stages.kinds._kind import KINDS, Kind
from stages.sources._formats import FORMATS, Record, format_of, read, records
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
# The column of words in formats whose columns have no names.
WORD_COLUMNS = {"conll": "1", "conllu": "FORM"}
EXAMPLES = """\
examples:
  echo "A list." | python -m stages.commands.predict bert section --method full
  python -m stages.commands.predict bert reviews reviews.csv.gz --method full \\
      --pretrain-seed 2 --column text=review --output predictions.jsonl

Options are needed only where several trials are kept.
"""


def main() -> None:
    options = _parser().parse_intermixed_args()  # FILE may follow the options
    try:
        exit_on_mistake(lambda: run(options), reader_may_end=True)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("predict", __doc__, epilog=EXAMPLES)
    parser.add_argument("run", help="the run or baseline, by its name in params.yaml")
    parser.add_argument("task", help="the task, by its name in params.yaml")
    parser.add_argument("file", nargs="?", type=Path, help="also .gz; without it: stdin")
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
    parser.add_argument(
        "--min-confidence",
        type=float,
        default=0.0,
        metavar="P",
        help="predictions of a lower probability are left empty",
    )
    parser.add_argument("--output", type=Path, help="a file to write, whole or not at all")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    return parser


def run(options: argparse.Namespace) -> None:
    """Writes the predictions, and to stderr the share of rows that ``--min-confidence`` leaves
    without a prediction. Raises ValueError for a trial that was not kept and for unreadable
    input."""
    if not 0 <= options.min_confidence <= 1:
        raise ValueError(f"--min-confidence: must be from 0 to 1, not {options.min_confidence:g}")
    trial, abstention = chosen_trial(options), Abstention(options.min_confidence)
    _refuse_missing_files(trial)
    predicted = _by_baseline if trial.method == CLASSICAL else _by_model
    rows = predicted(trial, options, abstention)
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if options.output is None:
        _write(lines, sys.stdout.write, bar=not sys.stdout.isatty())
    elif options.output.is_dir():
        raise ValueError(f"--output: {options.output} is a folder")
    else:
        _write_file(lines, options.output)
    if abstention.min_confidence and abstention.num_rows:
        number, total = abstention.num_unanswered, abstention.num_rows
        print(
            f"{number:,} of {total:,} rows ({number / total:.1%}) have no prediction: their "
            f"probability is below {abstention.min_confidence:g}",
            file=sys.stderr,
        )


def _refuse_missing_files(trial: TrialKey) -> None:
    """Raises ValueError if files that the trial was trained with are missing, which is so after
    `dvc repro` of a study without its task."""
    needed = [paths.examples(trial.task) / "task.json"]
    if trial.method != CLASSICAL:
        needed.append(paths.pretrained(trial.checkpoint) / "run.json")
    missing = next((file for file in needed if not file.is_file()), None)
    if missing is None:
        return
    study = read_yaml(PATH).get("study")
    raise ValueError(
        f"{missing}: no such file, and {PATH} has the study {study}; put the study of "
        f"{trial.task} into {PATH} if it is another, and run `make repro`"
    )


def _by_model(
    trial: TrialKey, options: argparse.Namespace, abstention: Abstention
) -> Iterator[Json]:
    kept, setup = opened(trial)
    rows = _rows(trial.task, options, setup.examples)  # before the model is loaded
    try:
        device = device_for(kept, options.device)
    except ValueError as error:
        raise ValueError(str(error).replace("compute.device", "--device")) from None
    model = rebuilt(kept, setup, path_of(trial)).to(device.torch)
    return predictions(kept, setup, model, rows, device, abstention)


def _by_baseline(
    trial: TrialKey, options: argparse.Namespace, abstention: Abstention
) -> Iterator[Json]:
    examples = paths.examples(trial.task)
    rows = _rows(trial.task, options, examples)
    return baseline_predictions(*_kept.refit(_kept.path_of(trial), examples), rows, abstention)


# Reading rows ------------------------------------------------------------------------------------


def _rows(task: str, options: argparse.Namespace, examples: Path) -> Iterator[NewRow]:
    """Returns the rows to predict, as the task in the folder ``examples`` reads them; raises
    ValueError if there are none."""
    columns = Columns.of(examples)
    renamed = _renamed(columns, options.column)
    rows = _read(options.file, options.format, columns, renamed, _names_in_study(task))
    if (first := next(rows, None)) is None:
        raise ValueError(f"{options.file or 'stdin'}: no rows")
    return chain([first], rows)


def _renamed(columns: Columns, pairs: Iterable[str]) -> dict[str, str]:
    """Returns the column of each input that ``pairs`` (INPUT=COLUMN) name."""
    known, renamed = (*columns.inputs, *columns.optional), {}
    for pair in pairs:
        key, equals, column = pair.partition("=")
        if not equals or not column or key not in known:
            raise ValueError(
                f"--column: must be INPUT=COLUMN, INPUT one of {', '.join(known)}, not {pair!r}"
            )
        renamed[key] = column
    return renamed


def _names_in_study(task: str) -> dict[str, str]:
    """Returns the column in the study's data of each input for which the source names one."""
    plan = plans.path_of("prepare_task", task)
    source = read_json(plan)["task"]["source"] if plan.is_file() else {}
    return {key: column for key, column in source.items() if isinstance(column, str)}


def _read(
    file: Path | None,
    format: str | None,
    columns: Columns,
    renamed: Mapping[str, str],
    in_study: Mapping[str, str],
) -> Iterator[NewRow]:
    """Yields the rows of a file as the task reads them. An input that is not ``renamed`` is read
    from the column of its own name or, without one, from its column in the study's data."""
    inputs, optional, kind = columns.inputs, columns.optional, KINDS[columns.kind]
    first, *others = inputs
    if file is not None and not file.exists():
        raise ValueError(f"{file}: no such file")
    if file is not None and file.is_dir():
        raise ValueError(f"{file}: is a folder; name a file in it")
    format = format or ("txt" if file is None else format_of(file))
    if format not in FORMATS:
        raise ValueError(
            f"--format: name it, since {file} ends in none of {', '.join(FORMATS)}, with or "
            "without .gz; `--format txt` reads a text per line"
        )
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
        names = {
            key: in_study[key]
            if name not in cells and key not in renamed and in_study.get(key) in cells
            else name
            for key, name in column_of.items()
        }
        values = {
            key: _value(cells, names[key], f"{place} {record.place}", kind, key)
            for key in (*inputs, *optional)
            if key in inputs or key in renamed or names[key] in cells
        }
        yield NewRow(_shown(record), {"id": str(number), **values})


def _shown(record: Record) -> Json:
    """Returns what identifies a row: its id or, without one, its line or its place in a list."""
    if "id" in record.cells:
        return {"id": record.cells["id"]}
    kind, _, number = record.place.partition(" ")
    return {"id": record.key} if kind == "question" else {kind: int(number)}


def _records(file: Path | None, format: str, place: str) -> Iterator[Record]:
    if file is None and format == "parquet":
        raise ValueError("--format: parquet is read from a file, not from stdin")
    try:
        if file is None:
            rows = records(sys.stdin.buffer, format, name=place)
        else:
            rows = read(file, format, columns=None, unit="line", languages=[])
        for record in rows:
            if format == "txt":
                record.cells["text"] = record.cells["text"].rstrip("\r\n")
            yield record
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror}") from None


def _value(record: Settings, column: str, place: str, kind: Kind, key: str) -> object:
    """Returns the value of the input ``key``, from a column of a record."""
    if column not in record:
        raise ValueError(
            f"{place}: no column {column!r}; there are: {', '.join(record)}; name the right one: "
            f"--column {key}=COLUMN"
        )
    return input_of(record[column], f"{place}: {column}", kind, key)


# Writing predictions -----------------------------------------------------------------------------


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
