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
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

from tqdm import tqdm

from stages.baselines import _kept
from stages.checking.outlines import file_errors
from stages.commands._shared import add_trial_options, chosen_trial, parser_of
from stages.core import paths, plans
from stages.core.artifacts import Json, read_json, replacing
from stages.core.process import exit_on_mistake
from stages.core.study_file import PATH, read_yaml
from stages.evaluation.records import CLASSICAL
from stages.sources._formats import FORMATS, format_of, read, records
from stages.tasks._inputs import Columns, input_of
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
    add("run", metavar="model", help="the model or baseline, by its name in params.yaml")
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
    settings = {"desc": "predict", "unit": "row", "delay": 3.0}  # short inputs need no bar
    if options.output is None:
        sys.stdout.writelines(tqdm(lines, **settings, disable=sys.stdout.isatty() or None))
    elif options.output.is_dir():
        raise ValueError(f"--output: {options.output} is a folder")
    else:
        out = replacing(options.output)
        with file_errors("--output"), out as path, path.open("w", encoding="utf-8") as file:
            file.writelines(tqdm(lines, **settings, disable=None))
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
    plan = plans.path_of("prepare_task", trial.task)
    source = read_json(plan)["task"]["source"] if plan.is_file() else {}
    columns = Columns.of(examples)
    renamed = dict(pair.split("=", 1) for pair in options.column if "=" in pair)
    known = (*columns.inputs, *columns.optional)
    if len(renamed) < len(options.column) or not renamed.keys() <= {*known}:
        given = " ".join(options.column)
        raise ValueError(
            f"--column: must be INPUT=COLUMN, INPUT one of {', '.join(known)}, not {given}"
        )
    rows = new_rows(options.file, options.format, columns, renamed, source)
    if (first := next(rows, None)) is None:  # before the model is loaded
        raise ValueError(f"{options.file or 'stdin'}: no rows")
    rows = chain([first], rows)
    if is_baseline:
        baseline, kind = _kept.refit(_kept.path_of(trial), examples)
        return baseline_predictions(baseline, kind, rows, abstention)
    kept, setup = opened(trial)
    device = device_for(kept, options.device)
    model = rebuilt(kept, setup, path_of(trial)).to(device.torch)
    return predictions(kept, setup, model, rows, device, abstention)


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
    place, kind = str(file or "stdin"), TASKS[columns.kind]
    format = format or ("txt" if file is None else format_of(file))
    if format not in FORMATS or (file is None and format == "parquet"):
        raise ValueError(
            f"--format: {place} has none of the formats {', '.join(FORMATS)}, with or without .gz "
            "(parquet from a file alone)"
        )
    column_of = {key: renamed.get(key, key) for key in (*columns.inputs, *columns.optional)}
    if format in ONE_COLUMN:
        first = columns.inputs[0]
        column_of[first] = renamed.get(first, ONE_COLUMN[format])
    with file_errors("FILE"):
        texts = (
            records(sys.stdin.buffer, format, name=place) if file is None else read(file, format)
        )
        for number, record in enumerate(texts):
            cells, row = record.cells, {"id": str(number)}
            if format == "txt":
                cells["text"] = cells["text"].rstrip("\r\n")
            for key, own in column_of.items():
                in_study = source.get(key)
                use_study = own not in cells and key not in renamed and in_study in cells
                column, at = str(in_study) if use_study else own, f"{place} {record.place}"
                if column in cells:
                    row[key] = input_of(cells[column], f"{at}: {column}", kind, key)
                elif key in columns.inputs or key in renamed:
                    raise ValueError(
                        f"{at}: no column {column!r}; there are: {', '.join(cells)}; "
                        f"name the right one: --column {key}=COLUMN"
                    )
            unit, _, count = record.place.partition(" ")  # such as "line 3"
            own_id = cells.get("id", record.key if unit == "question" else None)
            yield NewRow({unit: int(count)} if own_id is None else {"id": own_id}, row)


if __name__ == "__main__":
    main()
