"""An export for onnxruntime predicts as the trial does, and its measured scores are true."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from stages.core import paths
from stages.core.artifacts import read_json, write_jsonl
from stages.evaluation.metrics import score
from stages.evaluation.records import CLASSICAL
from stages.exporting.onnx_export import INT8, MODEL, export_onnx
from stages.kinds.multi_label import written
from stages.tasks._task import Task
from stages.text.batch import PADDING
from stages.training.device import Device
from stages.trials.prediction import predict
from tests.exporting.test_export import (
    BERT,
    GPT2,
    LABELS,
    LLAMA,
    T5,
    command,
    finetuned,
    keep,
    rows_of_texts,
    rows_of_words,
    trial_of,
    write_public,
)

pytestmark = pytest.mark.slow

CPU = Device("cpu", "float32", compile=False, threads=1)
METRICS = {
    "classification": "macro_f1",
    "multi_label": "micro_f1",
    "regression": "pearson",
    "tagging": "word_accuracy",
}
TRIALS: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("encoder", BERT | {"num_segments": 2}, "classification", "lora", "first"),
    ("encoder", {"positions": "sinusoidal"}, "tagging", "full", ""),
    ("decoder", LLAMA, "tagging", "linear_probe", ""),
    ("decoder", GPT2, "multi_label", "full", ""),
    ("decoder", {}, "classification", "prefix", "last"),
    ("encoder", {}, "regression", "adapter", ""),
    ("encoder_decoder", T5, "regression", "full", ""),
    ("public_bert", {}, "regression", "full", ""),
    ("public_roberta", {}, "tagging", "full", ""),
    ("public_gpt2", {}, "classification", "lora", "last"),
    ("public_t5", {}, "classification", "full", "mean"),
]


def labelled(task: str) -> list[dict[str, Any]]:
    """Test rows with labels, which a random model predicts no better than chance."""
    rows = rows_of_words() if task == "tagging" else rows_of_texts()
    for i, row in enumerate(rows):
        label = LABELS[i % 3]
        row |= {
            "classification": {"label": label},
            "multi_label": {"labels": LABELS[: i % 3]},
            "regression": {"target": float(i % 5)},
            "tagging": {"tags": [label] * len(row.get("words", []))},
        }[task]
    return rows


def write_task(
    backbone: Any, task: str, rows: list[dict[str, Any]], **settings: Any
) -> tuple[Task, Any]:
    """Writes a random trial, and test rows with their labels; returns its task and model."""
    record = {"kind": task, "metric": METRICS[task], "target_mean": 3.0, "target_std": 2.0}
    ours = finetuned(backbone, task, record=record, **settings)
    ours[0].take_facts(record)
    inputs = [
        {key: row[key] for key in ("id", "text", "text_pair", "words") if key in row}
        for row in rows
    ]
    write_jsonl(paths.examples("task") / "test.jsonl", inputs)
    write_jsonl(paths.test_labels("task"), rows)
    return ours


def run_card(model: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Runs the code of the card on these rows; returns its variables."""
    (code,) = re.findall(r"```python\n(.*?)```", Path("out/README.md").read_text(), re.DOTALL)
    imported = {
        name.name
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Import)
        for name in node.names
    }
    assert imported == {"json", "numpy", "onnxruntime", "tokenizers"}
    code = code.replace("FOLDER", "out").replace(INT8, model)
    exec(code, variables := {})
    assert len(variables["predictions"]) == 2
    new_inputs = [
        row.get("words") or ((row["text"], row["text_pair"]) if "text_pair" in row else row["text"])
        for row in rows
    ]
    code, replaced = re.subn(r"^(texts|words) = .*$", r"\1 = new_inputs", code, flags=re.MULTILINE)
    assert replaced == 1
    exec(code, variables := {"new_inputs": new_inputs})
    return variables


@pytest.mark.parametrize(("name", "options", "task_name", "method", "pooling"), TRIALS)
def test_export_onnx_gives_the_logits_and_scores_of_the_trial(
    name, options, task_name, method, pooling, write_run
) -> None:
    is_public = name.startswith("public_")
    backbone = write_public(name.removeprefix("public_")) if is_public else write_run(name, options)
    rows = labelled(task_name)
    task, ours = write_task(backbone, task_name, rows, method=method, pooling=pooling)
    message = export_onnx(trial_of(method), Path("out"))
    assert {file.name for file in Path("out").iterdir()} == {
        "README.md",
        "export.json",
        MODEL,
        INT8,
        "tokenizer.json",
    }

    examples = task.encode(rows)
    batch = task.collate(examples, rngs=[])
    with torch.no_grad():
        states = ours.backbone(batch)
        is_tagging = task_name == "tagging"
        expected = ours.head(states) if is_tagging else ours.head(states, batch.document_ids)
    variables = run_card(MODEL, rows)
    got = torch.from_numpy(variables["logits"])
    real = batch.document_ids != PADDING if is_tagging else slice(None)
    assert expected[real].std() > 0.05
    torch.testing.assert_close(got[real], expected[real], atol=1e-4, rtol=0)

    predictions = predict(task, ours, rows, examples, CPU)
    if task_name == "regression":
        of_trial = torch.tensor([float(answer.prediction) for answer in predictions])
        of_card = torch.from_numpy(variables["predictions"])
        torch.testing.assert_close(of_card, of_trial, atol=1e-4, rtol=0, check_dtype=False)
    else:
        assert as_written(task_name, variables) == [answer.prediction for answer in predictions]

    about = read_json(Path("out/export.json"))
    gold = [task.kind.answer(row) for row in rows]
    metric = METRICS[task_name]
    of_trial = score(metric, gold, [answer.prediction for answer in predictions])
    scores = [
        of_trial,
        *(
            score(metric, gold, as_written(task_name, run_card(model, rows)))
            for model in (MODEL, INT8)
        ),
    ]
    assert [row["score"] for row in about["measured"]] == pytest.approx(scores, abs=1e-5)
    sizes = [Path("out", model).stat().st_size / 1e6 for model in (MODEL, INT8)]
    assert [row["megabytes"] for row in about["measured"][1:]] == pytest.approx(sizes, abs=1e-3)
    assert sizes[1] < sizes[0] and all(row["texts_per_s"] > 0 for row in about["measured"])
    assert all(form in message for form in ("as trained", "ONNX, int8", metric))


def as_written(task_name: str, variables: dict[str, Any]) -> list[str]:
    """Returns a card's predictions in the form that is scored."""
    predictions = variables["predictions"]
    if task_name == "tagging":
        return [" ".join(tags) for tags in predictions]
    if task_name == "multi_label":
        return [written(labels) for labels in predictions]
    return [str(value) for value in predictions]


def test_export_onnx_reads_windows_and_uses_the_chosen_threshold(write_run) -> None:
    long = {"id": "long", "text": "a class of the class " * 30, "label": "I"}
    short = [row | {"label": "BI"[i % 2]} for i, row in enumerate(rows_of_texts())]
    settings = {"threshold": "validation", "long_texts": "windows"}
    backbone, rows = write_run("encoder", {}), [*short, long]
    task, ours = write_task(backbone, "classification", rows, labels=["B", "I"], **settings)
    predicted = predict(task, ours, rows, task.encode(rows), CPU)
    margins = sorted(answer.margin for answer in predicted if answer.margin is not None)
    assert len(margins) == len(rows) and task.encode([long])[0].num_windows > 2
    chosen = (margins[2] + margins[3]) / 2  # between two rows
    keep(ours, "full", threshold=chosen)
    expected = [answer.at(chosen) for answer in predicted]
    assert expected != [answer.at(0.0) for answer in predicted]
    export_onnx(trial_of("full"), Path("out"))
    assert run_card(MODEL, short)["predictions"] == expected[: len(short)]
    assert "make the windows yourself" in Path("out/README.md").read_text()
    value = score("macro_f1", [row["label"] for row in rows], expected)
    trained, in_float32, _ = read_json(Path("out/export.json"))["measured"]
    assert trained["score"] == in_float32["score"] == pytest.approx(value)
    assert in_float32["other_answers"] == 0


def test_command_refuses_what_has_no_onnx_model(write_run, monkeypatch, capsys) -> None:
    onnx = ("run", "--format", "onnx", "--out", "out")
    write_task(write_run("bilstm", {}), "classification", labelled("classification"))
    assert command(monkeypatch, *onnx) == 2
    assert "--format onnx exports a trial" in capsys.readouterr().err
    assert command(monkeypatch, *onnx, "--task", "task") == 2
    assert "run: a bilstm cannot be exported to ONNX" in capsys.readouterr().err
    assert not Path("out").exists()


def test_export_onnx_refuses_tasks_without_one_layer_on_states(write_run) -> None:
    finetuned(write_run("encoder", {}), "span_qa", stride=8, max_question_tokens=16)
    with pytest.raises(ValueError, match=r"^tasks.task: span_qa cannot be exported .* tagging"):
        export_onnx(trial_of("full"), Path("out"))
    with pytest.raises(ValueError, match="^tfidf: a baseline has no ONNX model"):
        export_onnx(trial_of(CLASSICAL)._replace(run="tfidf"), Path("out"))
