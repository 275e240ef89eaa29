"""Predict new rows with the model or baseline that the report recommends, or with another one.

DATA is a file of the study's form: its columns are called as in the data of the study, and the
column of the answers is not needed. A csv or tsv file is printed with two more columns, prediction
and probability. For each row of another form (txt, jsonl, json, conll, conllu, parquet) a JSON
object is printed: its "id" or, without one, its "line"; the prediction; and the probability of each
label ("scores") or, of a baseline, the "probability" of its prediction.

The standard input is read as txt, a text on each line, unless --format says otherwise. An input
whose column the file lacks is read from the column of its own name (text, words, ...).

If the method trains, the weights of the trial must have been kept (finetune.keep_weights). A
baseline is fitted again to its training rows, in seconds.

  python -m stages.commands.predict new.csv >predicted.csv
  echo "A list." | python -m stages.commands.predict --model bert --task section
"""

import argparse
import csv
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from tqdm import tqdm

from stages.baselines import _kept
from stages.checking.outlines import file_errors
from stages.commands._shared import add_trial_options, chosen_trial, parser_of
from stages.commands.summary import studies
from stages.core import paths
from stages.core.artifacts import Json, replacing
from stages.core.components import unknown
from stages.core.keys import TrialKey
from stages.core.process import exit_on_mistake
from stages.core.study_file import PATH, read_yaml
from stages.core.text_files import existing
from stages.evaluation.records import CLASSICAL, budget_order, read_texts
from stages.sources._formats import FORMATS
from stages.trials.kept import path_of, rebuilt
from stages.trials.lookup import opened
from stages.trials.new_files import NewFile, Reading, TaskInputs, fitting
from stages.trials.new_rows import (
    Abstention,
    NewPrediction,
    Predict,
    by_baseline,
    by_trial,
    device_for,
    predictions,
)

ANSWERS = paths.REPORTS / "answer.csv"
ADDED = ("prediction", "probability")  # columns


def main() -> None:
    parser = parser_of("predict", __doc__)
    add = parser.add_argument
    add("file", metavar="DATA", nargs="?", type=Path, help="also .gz; without it: stdin")
    add("--model", metavar="NAME", help="a model or baseline of params.yaml")
    add("--task", metavar="NAME", help="a task of params.yaml, if the file fits several")
    add_trial_options(parser)
    add("--format", choices=FORMATS, help="of the file, if its name does not say it")
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
    options = parser.parse_args()
    try:
        exit_on_mistake(lambda: run(options), reader_may_end=True)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def run(options: argparse.Namespace) -> None:
    """Writes the predictions, and to stderr how many rows have none, and which model was used if
    the report chose it. Raises ValueError for a trial that was not kept and for unreadable
    input."""
    abstention, is_named = Abstention(options.min_confidence), options.model is not None
    inputs, file, reading = chosen_task(options)
    trial = chosen_model(options, inputs.task)
    predicted = predictions(loaded(trial), inputs.kind, inputs.rows(file, reading), abstention)
    lines: Iterator[str] = map(json_line, predicted)
    if reading.delimiter is not None:
        lines = table(predicted, reading, quoted=inputs.format_of(file) == "csv")
    settings = {"desc": "predict", "unit": "row", "delay": 3.0}  # short inputs need no bar
    if options.output is None:
        sys.stdout.writelines(tqdm(lines, **settings, disable=sys.stdout.isatty() or None))
    elif options.output.is_dir():  # which the file would replace
        raise ValueError(f"--output: {options.output} is a folder")
    else:
        out = replacing(options.output)
        with file_errors("--output"), out as path, path.open("w", encoding="utf-8") as whole:
            whole.writelines(tqdm(lines, **settings, disable=None))
    number, total = abstention.num_unanswered, abstention.num_rows
    if abstention.min_confidence and total:
        print(
            f"{number:,} of {total:,} rows ({number / total:.1%}) have no prediction: their "
            f"probability is below {abstention.min_confidence:g}",
            file=sys.stderr,
        )
    if abstention.num_empty:
        print(f"{abstention.num_empty:,} rows lack an input: no prediction", file=sys.stderr)
    if not is_named:
        columns = ", ".join(reading.names)
        print(f"{trial.task}: predicted from {columns} by {trial.model}", file=sys.stderr)


def chosen_task(options: argparse.Namespace) -> tuple[TaskInputs, NewFile, Reading]:
    """Returns the task that the options name, or else the only one of the study whose columns the
    file has, and how the file is read. Raises ValueError if no task fits, or several do."""
    file = NewFile(options.file, format=options.format)
    if file.path is None and sys.stdin.isatty():
        raise ValueError("DATA: name the file of the new rows: make predict DATA=new.csv")
    if file.path is None:
        file = replace(file, lines=sys.stdin.buffer.readlines())
    elif existing(file.path).is_dir():
        raise ValueError(f"{file}: this is a folder; name a file in it")
    if odd := [pair for pair in options.column if "=" not in pair]:
        raise ValueError(f"--column: must be INPUT=COLUMN, such as text=review, not {odd[0]!r}")
    renamed = dict(pair.split("=", 1) for pair in options.column)
    tasks = [options.task] if options.task else [*read_yaml(PATH).get("tasks", {})]
    ready = [name for name in tasks if (paths.examples(name) / "task.json").is_file()]
    if not ready:
        if options.task and options.task not in (known := read_yaml(PATH).get("tasks", {})):
            raise ValueError(f"tasks: {unknown(options.task, known)}")
        raise missing(paths.examples(tasks[0]) / "task.json", tasks[0])
    inputs, faults = list[TaskInputs](), list[str]()
    for name in ready:
        try:
            inputs.append(TaskInputs.of(name, renamed))
        except ValueError as error:
            faults.append(str(error))
    if not inputs:
        raise ValueError(faults[0])
    if len(inputs) == 1:
        return inputs[0], file, inputs[0].reading(file)
    chosen, reading = fitting(file, inputs)
    return chosen, file, reading


def chosen_model(options: argparse.Namespace, task: str) -> TrialKey:
    """Returns the kept trial of the model that the options name, or else of the recommended one.
    Raises ValueError if it is not kept, or if the report is of another study."""
    answers = [row for row in read_texts(ANSWERS) if row["task"] == task]
    answers.sort(key=lambda row: budget_order(row["label_budget"]))
    if options.label_budget:
        answers = [row for row in answers if row["label_budget"] == options.label_budget]
    if options.model is None:
        reported, declared = studies()
        if reported != declared or not answers:
            raise ValueError(
                f"{ANSWERS} recommends no model for {task} of the study {declared}: run "
                "`make repro` first, or name a model: MODEL=NAME (--model NAME)"
            )
        options.model = answers[-1]["model"]
    of_model = [row for row in answers if row["model"] == options.model]
    if options.method is None and of_model:
        options.method = of_model[-1]["method"]
    options.task = task
    return chosen_trial(options)


def loaded(trial: TrialKey) -> Predict:
    """Returns the function that predicts with a kept trial. Raises ValueError if a file that the
    trial was trained with has changed or is missing, as after `dvc repro` of another study."""
    if trial.method == CLASSICAL:
        return by_baseline(_kept.refit(_kept.path_of(trial), paths.examples(trial.task))[0])
    record = paths.pretrained(trial.checkpoint) / "run.json"
    if not record.is_file():
        raise missing(record, trial.task)
    kept, setup = opened(trial)
    device = device_for(kept, "auto")
    return by_trial(kept, setup, rebuilt(kept, setup, path_of(trial)).to(device.torch), device)


def missing(file: Path, task: str) -> ValueError:
    return ValueError(
        f"{file}: no such file, and {PATH} has the study {read_yaml(PATH).get('study')}; "
        f"put the study of {task} into {PATH} if it is another, and run `make repro`"
    )


# Lines of the output ------------------------------------------------------------------------------


def json_line(predicted: NewPrediction) -> str:
    columns: Json = {**predicted.row.shown, **predicted.columns}
    if predicted.scores is not None:
        columns["scores"] = predicted.scores
    elif predicted.probability is not None:
        columns["probability"] = predicted.probability
    return json.dumps(columns, ensure_ascii=False) + "\n"


def table(predicted: Iterable[NewPrediction], reading: Reading, *, quoted: bool) -> Iterator[str]:
    """Yields the file's own rows, in its own form, with the columns ``ADDED``. A column that the
    file has already gets the name ``prediction_2``."""
    sign, columns = reading.delimiter or ",", [*reading.columns]
    write = csv.writer(SimpleNamespace(write=str), delimiter=sign, lineterminator="\n").writerow

    def line(cells: Iterable[object]) -> str:
        texts = [*map(str, cells)]
        return str(write(texts)) if quoted else sign.join(" ".join(t.split()) for t in texts) + "\n"

    header = [*columns, *(f"{name}_2" if name in columns else name for name in ADDED)]
    for number, (row, text, _, probability, _) in enumerate(predicted):
        if not number:  # not before, since the first row may be refused
            yield line(header)
        yield line([*row.cells.values(), text, "" if probability is None else probability])


if __name__ == "__main__":
    main()
