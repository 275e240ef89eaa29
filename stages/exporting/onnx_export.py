"""Writes a fine-tuned trial with a head as ONNX models and measures their scores and speed."""

import tempfile
from pathlib import Path
from typing import Any

import transformers
from tabulate import tabulate
from tokenizers.processors import TemplateProcessing

from stages.core import paths
from stages.core.artifacts import Json, read_jsonl, replacing, write_json
from stages.core.keys import TrialKey
from stages.evaluation.metrics import scale_of, score
from stages.evaluation.records import CLASSICAL
from stages.exporting import fast_tokenizer, onnx_form
from stages.exporting.card import model_card
from stages.exporting.export import RECORD, check_place, long_texts_note
from stages.methods._method import METHODS
from stages.models._heads import ModelWithHead
from stages.text.tokenizer import Tokenizer
from stages.trials.inference_speed import measure_speed
from stages.trials.kept import KeptTrial, path_of, rebuilt
from stages.trials.lookup import opened
from stages.trials.new_rows import device_for
from stages.trials.prediction import predict
from stages.trials.setup import TrialSetup

MODEL, INT8, TOKENIZER = "model.onnx", "model.int8.onnx", "tokenizer.json"
SAMPLE_ROWS = 8  # rows to trace and compare; at least two
MOST_BYTES = 2_000_000_000  # of weights: a file of ONNX holds 2 GiB
# Code that turns logits into predictions, by the name of the task in params.yaml.
ANSWERS = {
    "classification": 'predictions = [about["labels"][i] for i in logits.argmax(axis=1)]',
    "multi_label": """\
is_above = 1 / (1 + numpy.exp(-logits)) > {task.threshold}
predictions = [[about["labels"][i] for i in numpy.flatnonzero(row)] for row in is_above]""",
    "regression": "predictions = logits[:, 0] * {task.std!r} + {task.mean!r}",
    "tagging": """\
predictions = []  # a word that was cut off has no label
for row, best in zip(rows, logits.argmax(axis=2)):
    places = {{}}  # of each word, its {place} token
    for place, word in enumerate(row.word_ids):
        {keep}
    places.pop(None)  # special tokens
    predictions.append([about["labels"][best[place]] for place in places.values()])""",
}
WITH_THRESHOLD = """\
is_second = logits[:, 1] - logits[:, 0] >= {threshold}  # chosen on validation
predictions = [about["labels"][int(i)] for i in is_second]"""
LOAD = """\
import json

import numpy
import onnxruntime
import tokenizers

about = json.load(open("FOLDER/export.json"))
model = onnxruntime.InferenceSession("FOLDER/{model}")
tokenizer = tokenizers.Tokenizer.from_file("FOLDER/{tokenizer}")
tokenizer.encode_special_tokens = True  # "[SEP]" in a text is text
{read}
inputs = {{
    "input_ids": [row.ids for row in rows],
    "attention_mask": [row.attention_mask for row in rows],
    "token_type_ids": [row.type_ids for row in rows],
}}
logits = model.run(None, {{name: numpy.array(ids) for name, ids in inputs.items()}})[0]
{answers}"""
READ = """\
texts = ["A text.", "Another text."]  # of pairs: [("A text.", "Its second text."), ...]
rows = tokenizer.encode_batch(texts)"""
READ_WORDS = """\
words = [["Some", "words"], ["Other", "words", "follow"]]
rows = tokenizer.encode_batch({words}, is_pretokenized=True)"""
NOTE = """\
`{model}` has weights in float32, `{int8}` weights and products in 8 bits. On the {num_rows:,} test
rows of the study, on a CPU (threads: {threads}):

{measured}"""


def export_onnx(trial: TrialKey, out: Path, *, force: bool = False) -> str:
    """Writes a trial to the folder ``out``: the model in float32 and with 8-bit weights, its
    tokenizer, a card and the measurements. Returns a text with the measurements.

    Raises ValueError for a trial that cannot be exported (``_check_trial``), for a model whose
    logits differ in ONNX, or if ``out`` must not be written (``check_place``).
    """
    check_place(out, force=force)
    if trial.method == CLASSICAL:
        raise ValueError(f"{trial.run}: a baseline has no ONNX model; leave out --format onnx")
    kept, setup = opened(trial)
    _check_trial(kept, setup)
    model = rebuilt(kept, setup, path_of(trial)).eval()
    num_bytes = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    if num_bytes > MOST_BYTES:
        raise ValueError(
            f"{trial.run}: its weights take {num_bytes / 1e9:.1f} GB, a file of ONNX holds 2"
        )
    with replacing(out) as folder:
        folder.mkdir()
        some = (setup.rows("test", seed=kept.finetune_seed) * 2)[:SAMPLE_ROWS]
        batch = setup.task.collate(setup.task.encode(some), rngs=[])
        has_prefix = setup.task.has_prefix
        onnx_form.save(model, batch, folder / MODEL, has_prefix=has_prefix)
        onnx_form.quantize(folder / MODEL, folder / INT8)
        _save_tokenizer(setup, folder)
        forms = {f"as trained, {kept.precision}": (model, num_bytes)}
        for form, name in (("ONNX, float32", MODEL), ("ONNX, int8", INT8)):
            size = (folder / name).stat().st_size
            forms[form] = onnx_form.with_session(model, folder / name), size
        measured, table = _measured(kept, setup, forms)
        about: Json = {
            "trial": trial._asdict(),
            "labels": setup.task_record["labels"],
            "read_at": kept.read_at,
            "metric": setup.task_record["metric"],
            "measured": measured,
        }
        write_json(folder / RECORD, about)
        note = f"{table}\n\n{long_texts_note(setup)}".strip()
        card = model_card(
            trial, setup.run_record, load=_load(kept, setup), note=note, library="onnx"
        )
        (folder / "README.md").write_text(card, encoding="utf-8")
    return f"{trial.checkpoint}, fine-tuned on {trial.task}, is in {out}:\n\n{note}"


def _check_trial(kept: KeptTrial, setup: TrialSetup) -> None:
    """Raises ValueError for a trial without a head, or with a task or architecture that cannot be
    exported to ONNX."""
    task = setup.task_record["task"]["name"]
    if kept.text_to_text or task not in ANSWERS:
        what = "answers that are written as text" if kept.text_to_text else task
        raise ValueError(
            f"tasks.{kept.task}: {what} cannot be exported to ONNX; valid: {', '.join(ANSWERS)}"
        )
    if METHODS.build(kept.component, where=f"finetune.methods.{kept.method}.method").prompts:
        raise ValueError(f"finetune.methods.{kept.method}: has no head, so no ONNX model")
    if setup.run_record["architecture"] == "bilstm":
        raise ValueError(f"{kept.run}: a bilstm cannot be exported to ONNX: its steps vary by text")


def _save_tokenizer(setup: TrialSetup, folder: Path) -> None:
    """Writes the tokenizer as one file for the package tokenizers. The tokenizer adds the special
    tokens that the task puts around texts, cuts texts at ``max_tokens`` and pads them."""
    ours = setup.tokenizer
    with tempfile.TemporaryDirectory() as written:
        if isinstance(ours, Tokenizer):
            fast_tokenizer.save(
                ours.files[0],
                Path(written),
                has_end=True,
                specials_in_text=False,
                has_segments=True,
                max_tokens=setup.max_tokens,
            )
        source = written if isinstance(ours, Tokenizer) else ours.files[0].parent
        theirs = transformers.AutoTokenizer.from_pretrained(
            source, local_files_only=True, trust_remote_code=False
        )
    before, between, after, pad = (
        theirs.convert_ids_to_tokens(list(ids))
        for ids in (ours.before, ours.between, ours.after, [ours.pad_id])
    )
    fast = theirs.backend_tokenizer
    fast.post_processor = TemplateProcessing(
        single=[*before, "$A", *after],
        pair=[*before, "$A", *between, "$B:1", *(f"{token}:1" for token in after)],
        special_tokens=[
            (theirs.convert_ids_to_tokens(i), i) for i in {*ours.before, *ours.between, *ours.after}
        ],
    )
    fast.enable_truncation(setup.max_tokens, strategy="longest_first")
    fast.enable_padding(pad_id=ours.pad_id, pad_token=pad[0])
    fast.save(str(folder / TOKENIZER))


def _measured(
    kept: KeptTrial, setup: TrialSetup, forms: dict[str, tuple[ModelWithHead, int]]
) -> tuple[list[Json], str]:
    """Returns the measurements of each form on the study's test rows, and a note with a table of
    them. ``forms`` are models with their sizes in bytes; each is compared with the first."""
    rows = setup.rows("test", seed=kept.finetune_seed)
    metric = setup.task_record["metric"]
    labels = {row["id"]: row for row in read_jsonl(paths.test_labels(kept.task))}
    gold = [setup.task.kind.answer(labels[row["id"]]) for row in rows]
    examples, device = setup.task.encode(rows), device_for(kept, "cpu")
    scale, measured, cells = scale_of(metric), list[Json](), list[tuple[str, ...]]()
    trained: list[str] = []  # the answers of the first form
    for form, (model, size) in forms.items():
        predicted = predict(setup.task, model, rows, examples, device)
        answers = [each.at(kept.threshold) for each in predicted]
        trained = trained or answers
        value = score(metric, gold, answers)
        others = sum(a != b for a, b in zip(answers, trained, strict=True))
        texts_per_s = measure_speed(setup.task, model, rows, examples, device).texts_per_s
        sizes = {"megabytes": size / 1e6, "texts_per_s": texts_per_s}
        measured.append({"form": form, "score": value, "other_answers": others, **sizes})
        difference = scale.signed(value - measured[0]["score"])
        shown = (scale.shown(value), difference, str(others))
        cells.append((form, *shown, f"{size / 1e6:.1f}", f"{texts_per_s:.0f}"))
    headers = ("form", metric, "difference", "other answers", "MB", "texts per second")
    table = tabulate(cells, headers, tablefmt="github", disable_numparse=True)
    places = {"model": MODEL, "int8": INT8, "num_rows": len(rows), "threads": device.threads}
    return measured, NOTE.format(**places, measured=table)


def _load(kept: KeptTrial, setup: TrialSetup) -> str:
    """Returns code that predicts texts with the package onnxruntime."""
    task: Any = setup.task
    answers, read = ANSWERS[setup.task_record["task"]["name"]], READ
    if "words" in setup.task.kind.inputs:
        is_last = kept.read_at.startswith("last")
        keep = "places[word] = place" if is_last else "places.setdefault(word, place)"
        answers = answers.format(place="last" if is_last else "first", keep=keep)
        tokenizer = setup.tokenizer
        alone, spaced = tokenizer.encode(["a", " a"])
        has_blank = alone != spaced == tokenizer.encode_words([["a"]])[0][0]
        words = '[[" " + word for word in row] for row in words]' if has_blank else "words"
        read = READ_WORDS.format(words=words)
    elif kept.threshold:
        number = repr(kept.threshold).replace("inf", "numpy.inf")
        answers = WITH_THRESHOLD.format(threshold=number)
    else:
        answers = answers.format(task=task)
    return LOAD.format(model=INT8, tokenizer=TOKENIZER, read=read, answers=answers)
