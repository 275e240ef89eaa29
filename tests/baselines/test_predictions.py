"""The baseline whose predictions come from a file."""

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


WHO = [{"question": "Who?", "context": "Ada."}, {"question": "I?", "context": "x"}]
CHOICES = [{"text": "a", "choices": ["x", "y"]}]
SOURCES: dict[str, dict[str, Any]] = {
    "classification": {"label_case": "fold"},
    "regression": {"decimal": "comma"},
    "multiple_choice": {"first_choice": "A"},
}


@pytest.mark.parametrize(
    ("kind", "rows", "text", "expected"),
    [
        (
            "classification",
            PAIRS,
            "text,text_pair,?\na pear,a tool,NO\na pear,a fruit,yes",
            "yes no",
        ),
        ("classification", texts("a", "b"), "text,?\na,YES\nb,<no label>\n", "yes <no label>"),
        ("multi_label", texts("a", "b"), 'text,?\na,"yes,no"\nb,\n', '["no", "yes"] []'),
        ("regression", texts("a"), 'text,?\na,"1,5"\n', "1.5"),
        ("tagging", [{"words": ["a", "saw"]}], 'words,?\n"[""a"", ""saw""]",O yes', "O yes"),
        ("span_qa", WHO, "question,context,?\nWho?,Ada.,Ada\nI?,x,\n", "Ada "),
        ("seq2seq", texts("a\r\nb"), 'text,?\n"a\nb",A text.\n', "A text."),
        ("multiple_choice", CHOICES, 'text,choices,?\na,"[""x"", ""y""]",B\n', "1"),
    ],
)
def test_predictions_reads_answers_as_the_data_of_each_kind(
    kind: str, rows: list[Any], text: str, expected: str
) -> None:
    labels = ["yes", "no", "O"] if TASKS[kind].has_classes else []
    text = text.replace("?\n", "prediction\n", 1)
    answers = predicted(kind, rows, text, labels=labels, **SOURCES.get(kind, {}))
    assert " ".join(answers) == expected


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
        ("text,prediction\n", "no rows"),
        ("text,answer\na,yes\n", "line 2: no column 'prediction'"),
        ("text,prediction\na,yes\n", "no prediction for 2 of 3 test inputs, .* is 'b'"),
        ("text,prediction\na,yes\nb,no\na,no\n", "line 4: prediction differs .* line 2"),
        ("text,prediction\na,Yes\nb,no\nc,no\n", "line 2: prediction: unknown 'Yes'"),
        ("text,prediction\na,yes\nb,\nc,no\n", "line 3: prediction is empty"),
    ],
)
def test_predictions_refuses_files_that_do_not_fit(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=rf"^path: predictions/llm\.csv.*{fault}"):
        predicted("classification", texts("a", "b", "c"), text, labels=["no", "yes"])


def test_predictions_has_one_file_for_each_task_of_a_folder() -> None:
    for name in ("README.md", "topic.csv", "tone.jsonl"):
        Path("predictions", name).write_text("")
    files = {"tone": Path("predictions/tone.jsonl"), "topic": Path("predictions/topic.csv")}
    assert Predictions().files(["topic", "tone", "urgency"]) == files
    assert Predictions(path="./predictions/topic.csv").files(["a"]) == {"a": files["topic"]}


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("predictions/../llm.csv", "not below predictions/"),
        ("predictions/gpt", "a folder with a file for each task"),
        ("predictions/topic.csv", "a folder .*: topic.csv, tone.csv"),
        ("predictions", "named after no task: .* did you mean 'topic'"),
    ],
)
def test_predictions_refuses_paths_of_no_task(path: str, fault: str) -> None:
    for name in ("topic.csv", "topci.csv"):
        Path("predictions", name).write_text("")
    with pytest.raises(ValueError, match=f"^path: .*{fault}"):
        Predictions(path=path).files(["topic", "tone"])


def test_fit_baseline_repeats_an_external_system_for_each_label_budget() -> None:
    write_tasks()
    inputs.run("type", FILE)
    header, *lines = FILE.read_text().splitlines()
    FILE.write_text("\n".join([f"{header},prediction", *(f"{line},tool" for line in lines)]))
    entry = {"name": "predictions", "path": str(FILE)}
    fit_baseline.main(plan_of("type", baselines={"llm": entry}), "type")
    trials = read(paths.BASELINES / "type" / "trials.csv", TrialRecord)
    assert [(t.model, t.label_budget, t.pretrain_seed, t.num_tries) for t in trials] == [
        ("llm", "4", 1, 0),
        ("llm", "all", 1, 0),
    ]
    records = read(paths.BASELINES / "type" / "predictions.csv.gz", PredictionRecord)
    assert len(records) == 2 * len(read_jsonl(paths.examples("type") / "test.jsonl"))
    assert {record.prediction for record in records} == {"tool"}
    assert not (paths.BASELINES / "type" / "kept").exists()
