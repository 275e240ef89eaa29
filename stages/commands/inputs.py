"""Write the test inputs of a task, without labels, for an external system to predict.

Equal inputs are written once. The system adds the column `prediction`, and the file becomes a
baseline of the study:

  baselines:
    llm: {name: predictions, path: predictions/llm}

A task's inputs exist when `prepare_task` has run: `dvc repro prepare_task@TASK`.
"""

import csv
import io
import json
import sys
from pathlib import Path

from stages.baselines.predictions import COLUMN, FOLDER
from stages.commands._shared import parser_of
from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl, replacing
from stages.core.process import exit_on_mistake
from stages.tasks._task import TASKS

MAX_LABELS = 20  # in the note on stderr


def main() -> None:
    parser = parser_of("inputs", __doc__)
    parser.add_argument("task", help="the task, by its name in params.yaml")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="a .csv or .jsonl file; without it csv on stdout"
    )
    options = parser.parse_args()
    exit_on_mistake(lambda: run(options.task, options.out), reader_may_end=True)


def run(task: str, out: Path | None) -> None:
    """Writes the inputs to ``out``, or to the standard output. Values that are not text, such as
    lists, become JSON in csv. Raises ValueError if the task is not prepared or has no predictions
    to compare, and if ``out`` exists or has another format."""
    folder = paths.examples(task)
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; `dvc repro prepare_task@{task}` writes it")
    if out is not None and (out.exists() or out.suffix not in (".csv", ".jsonl")):
        raise ValueError(f"--out: {out} must be a new file that ends in .csv or .jsonl")
    about = read_json(folder / "task.json")
    kind = TASKS[about["kind"]]
    if kind.is_own_answer:
        raise ValueError(f"{task}: {kind.name} has no predictions to compare")
    inputs = [kind.inputs_of(row) for row in read_jsonl(folder / "test.jsonl")]
    rows = {_json(row): row for row in inputs}
    text = io.StringIO(newline="")
    if out is not None and out.suffix == ".jsonl":
        text.writelines(f"{line}\n" for line in rows)
    else:
        writer = csv.DictWriter(text, [*inputs[0]], lineterminator="\n")
        writer.writeheader()
        for row in rows.values():
            writer.writerow({k: v if isinstance(v, str) else _json(v) for k, v in row.items()})
    if out is None:
        sys.stdout.write(text.getvalue())
    else:
        with replacing(out) as path:
            path.write_text(text.getvalue(), encoding="utf-8", newline="")
    labels = ", ".join(about["labels"][:MAX_LABELS])
    more = ", ..." if len(about["labels"]) > MAX_LABELS else ""
    of = f" (of {labels}{more})" if labels else ""
    print(
        f"{len(rows):,} inputs of {task}; add the column {COLUMN}{of} and save them as "
        f"{FOLDER / 'NAME' / task}.csv or .jsonl",
        file=sys.stderr,
    )


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    main()
