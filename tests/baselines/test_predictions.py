"""The baseline whose predictions come from a file."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from stages import fit_baseline
from stages.baselines._baseline import Score, kind_of_source
from stages.baselines.predictions import Predictions
from stages.commands import inputs
from stages.core import paths
from stages.core.artifacts import read_jsonl
from stages.core.plans import BaselinePlan
from stages.evaluation.records import PredictionRecord, TrialRecord, read
from stages.tasks._task import TASKS
from tests.labelled_words import plan_of, write_tasks

FILE = Path("predictions/llm.csv")
PAIRS = [{"text": "a pear", "text_pair": "a fruit"}, {"text": "a pear", "text_pair": "a tool"}]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    FILE.parent.mkdir()


def predicted(
    kind: str,
    rows: Sequence[Mapping[str, Any]],
    text: str,
    *,
    labels: Sequence[str] = (),
    file: Path = FILE,
    **source: Any,
) -> list[str]:
    """Returns the predictions for test ``rows`` from a file with a ``text``."""
    file.write_text(text, encoding="utf-8")
    baseline = Predictions(path=str(file))
    baseline.fit([], [], Score(kind_of_source(TASKS[kind], source), "", labels))
    return baseline.predict([{"id": str(i), **row} for i, row in enumerate(rows)])


def texts(*some: str) -> list[dict[str, str]]:
    return [{"text": text} for text in some]


@pytest.mark.parametrize(
    ("kind", "rows", "text", "source", "expected"),
    [
        (
            "classification",
            PAIRS,
            "text,text_pair,prediction\na pear,a tool,no\na pear,a fruit,yes\n",
            {},
            ["yes", "no"],
        ),
        (
            "classification",
            texts("a", "b"),
            "text,prediction\na,YES\nb,<no label>\n",
            {"label_case": "fold"},
            ["yes", "<no label>"],
        ),
        (
            "multi_label",
            texts("a", "b", "c"),
            'text,prediction\na,"yes,no"\nb,\nc,"[""no""]"\n',
            {},
            ['["no", "yes"]', "[]", '["no"]'],
        ),
        (
            "regression",
            texts("a"),
            'text,prediction\na,"1,5"\n',
            {"decimal": "comma"},
            ["1.5"],
        ),
        (
            "tagging",
            [{"words": ["a", "saw"]}],
            'words,prediction\n"[""a"", ""saw""]",O yes\n',
            {},
            ["O yes"],
        ),
        (
            "span_qa",
            [{"question": "Who?", "context": "Ada."}, {"question": "I?", "context": "x"}],
            "question,context,prediction\nWho?,Ada.,Ada\nI?,x,\n",
            {},
            ["Ada", ""],
        ),
        ("seq2seq", texts("a\r\nb"), 'text,prediction\n"a\nb",A text.\n', {}, ["A text."]),
        (
            "multiple_choice",
            [{"text": "a", "choices": ["x", "y"]}],
            'text,choices,prediction\na,"[""x"", ""y""]",B\n',
            {"first_choice": "A"},
            ["1"],
        ),
    ],
)
def test_predictions_reads_answers_as_the_data_of_each_kind(
    kind: str, rows: list[Any], text: str, source: dict[str, Any], expected: list[str]
) -> None:
    labels = ["yes", "no", "O"] if TASKS[kind].has_classes else []
    assert predicted(kind, rows, text, labels=labels, **source) == expected


def test_predictions_matches_repeated_inputs_and_ignores_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = texts("a  b", "A b", "a b", "a b ")
    text = "text,prediction\nother,maybe\na b,yes\nA b,no\na b,yes\n"
    assert predicted("classification", rows, text, labels=["yes", "no"]) == [
        "yes",
        "no",
        "yes",
        "yes",
    ]
    assert capsys.readouterr().err.endswith("ignored, since test does not have these inputs: 1\n")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", r".* the file is empty"),
        ("text,prediction\n", " has no rows"),
        ("text,answer\na,yes\n", " line 2: no column 'prediction'; there are: text, answer"),
        ("text,prediction\na,yes\n", ": no prediction for 2 of 3 test inputs, .* is 'b'; `python"),
        (
            "text,prediction\na,yes\nb,no\na,no\n",
            " line 4: prediction is 'no', but the same input has 'yes' in line 2; remove one",
        ),
        (
            "text,prediction\na,Yes\nb,no\nc,no\n",
            r" line 2: prediction: unknown 'Yes'; did you mean 'yes'\? Valid: no, yes; <no label>",
        ),
        ("text,prediction\na,yes\nb,\nc,no\n", " line 3: prediction is empty"),
    ],
)
def test_predictions_refuses_files_that_do_not_fit(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=rf"^path: predictions/llm\.csv{fault}"):
        predicted("classification", texts("a", "b", "c"), text, labels=["no", "yes"])


@pytest.mark.parametrize(
    ("kind", "row", "cell", "fault"),
    [
        ("tagging", {"words": ["a", "saw"]}, "O O O", "2 words need as many tags, not 3"),
        ("tagging", {"words": ["a", "saw"]}, ["O", "I-X"], "unknown 'I-X'"),
        ("regression", {"text": "a"}, "high", "must be a finite number, not 'high'$"),
        (
            "multiple_choice",
            {"text": "a", "choices": ["x", "y"]},
            2,
            "'2' is none of its 2 choices",
        ),
    ],
)
def test_predictions_names_the_row_of_an_answer_that_is_none(
    kind: str, row: dict[str, Any], cell: Any, fault: str
) -> None:
    file, text = FILE.with_suffix(".jsonl"), json.dumps({**row, "prediction": cell})
    with pytest.raises(ValueError, match=rf"predictions/llm\.jsonl line 1: prediction.* {fault}"):
        predicted(kind, [row], text, labels=["O"], file=file)


def test_predictions_has_one_file_for_each_task_of_a_folder() -> None:
    for name in ("README.md", "topic.csv", "tone.jsonl"):
        Path("predictions", name).write_text("")
    files = {"tone": Path("predictions/tone.jsonl"), "topic": Path("predictions/topic.csv")}
    assert Predictions().files(["topic", "tone", "urgency"]) == files
    assert Predictions(path="./predictions/topic.csv").files(["a"]) == {"a": files["topic"]}


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("llm.csv", "llm.csv is not below predictions/, the folder that DVC watches"),
        ("predictions/../llm.csv", "llm.csv is not below predictions/"),
        ("predictions/gpt", "no such file or folder: predictions/gpt"),
        (
            "predictions/topic.csv",
            "is one file, but the study has 2 tasks; .*: topic.csv, tone.csv",
        ),
        ("predictions", r"predictions/topci\.csv is named after no task: .* did you mean 'topic'"),
    ],
)
def test_predictions_refuses_paths_of_no_task(path: str, fault: str) -> None:
    for name in ("topic.csv", "topci.csv"):
        Path("predictions", name).write_text("")
    with pytest.raises(ValueError, match=f"^path: .*{fault}"):
        Predictions(path=path).files(["topic", "tone"])


def plan(**changes: Any) -> BaselinePlan:
    entry = {"name": "predictions", "path": str(FILE)}
    return plan_of("type", baselines={"llm": entry}, **changes)


def test_fit_baseline_repeats_an_external_system_for_each_label_budget() -> None:
    write_tasks()
    inputs.run("type", FILE, None)
    header, *lines = FILE.read_text().splitlines()
    FILE.write_text("\n".join([f"{header},prediction", *(f"{line},tool" for line in lines)]))
    fit_baseline.main(plan(), "type")
    trials = read(paths.BASELINES / "type" / "trials.csv", TrialRecord)
    assert [(t.run, t.label_budget, t.pretrain_seed, t.num_tries) for t in trials] == [
        ("llm", "4", 1, 0),
        ("llm", "all", 1, 0),
    ]
    records = read(paths.BASELINES / "type" / "predictions.csv.gz", PredictionRecord)
    assert len(records) == 2 * len(read_jsonl(paths.examples("type") / "test.jsonl"))
    assert {record.prediction for record in records} == {"tool"}
    assert not (paths.BASELINES / "type" / "kept").exists()


def test_fit_baseline_names_the_baseline_of_a_file_that_does_not_fit() -> None:
    write_tasks()
    FILE.write_text("text,prediction\na pear,fruit\n")
    with pytest.raises(
        ValueError, match=r"^baselines\.llm\.path: predictions/llm\.csv: no predict"
    ):
        fit_baseline.main(plan(), "type")
    assert not (paths.BASELINES / "type").exists()
