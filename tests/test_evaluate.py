import csv
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages import evaluate
from stages.core.artifacts import read_jsonl, write_json, write_jsonl
from stages.core.params import Params
from stages.evaluation import metrics
from stages.evaluation.confusion import ConfusionRecord
from stages.evaluation.estimates import EstimateRecord
from stages.evaluation.records import (
    BaselinePredictionRecord,
    EpochRecord,
    InputRecord,
    LostPredictionRecord,
    PredictionRecord,
    ScoredTrial,
    ScoredTry,
    SkippedMethod,
    TextBitsRecord,
    TrialRecord,
    TryRecord,
    read,
    write,
)
from tests.synthetic_study import RUNS, raw_params

GOLD = ["B-X I-X O", "O B-Y", "O"]
RUN_NAMES = ["encoder_mlm", "decoder_causal"]
TRIAL: dict[str, Any] = {
    "architecture": "encoder",
    "objective": "mlm",
    "task": "tag",
    "corpus": "all",
    "pretrain_seed": 1,
    "num_params": 10,
    "num_trained_params": 10,
    "pretrain_tokens": 10,
    "pretrain_flops": 10**13,
    "lineage_tokens": 20,
    "lineage_flops": 10**13,
    "finetune_flops": 10,
    "lr": 0.001,
    "d_model": 4,
    "num_layers": 1,
    "best_epoch": 1,
    "weights_bytes": 40,
    "num_pretrained_params": 10,
    "used_architecture": "encoder",
    "design": None,
    "lineage_bytes": 40,
    "num_epochs": 2,
    "num_steps": 20,
    "last_train_loss": 0.5,
    "best_is_last": 0,
    "chosen_in_warmup": 0,
    "still_improving": 0,
    "converged": None,
    "C": None,
    "num_tries": 1,
    "at_edge": None,
}


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """Two runs with one trial each, one with all answers right and one with all wrong, and one
    baseline."""
    monkeypatch.chdir(tmp_path)
    raw = raw_params({name: RUNS[name] for name in RUN_NAMES})
    task = Path("data/tasks/tag")
    (task / "examples").mkdir(parents=True)
    metrics = {"metric": "entity_f1", "other_metric": "word_accuracy"}
    write_json(
        task / "examples/task.json", {"task": {"name": "tagging"}, "kind": "tagging"} | metrics
    )
    words = [[f"word{j}" for j, _ in enumerate(tags.split())] for tags in GOLD]
    write_jsonl(
        task / "examples/test.jsonl", [{"id": f"id{i}", "words": w} for i, w in enumerate(words)]
    )
    gold = [{"id": f"id{i}", "tags": tags.split()} for i, tags in enumerate(GOLD)]
    write_jsonl(task / "test_labels.jsonl", gold)
    for name, answers in zip(RUN_NAMES, (GOLD, ["O O O", "B-Y O", "B-X"]), strict=True):
        write_run(Path("data/finetuned/tag", name), answers)
    write_baseline({1: ["B-X I-X O", "O O", "O"]})
    return Params(**raw)


def write_baseline(answers: dict[int, list[str]]) -> None:
    """Writes one trial for each pretraining seed."""
    trials, rows = [], []
    for seed, given in answers.items():
        key: dict[str, Any] = {"method": "classical", "label_budget": "200", "finetune_seed": 1}
        key |= {"pretrain_seed": seed}
        trials.append(TrialRecord(**(TRIAL | key), run="window"))
        rows += [
            BaselinePredictionRecord(**key, run="window", id=f"id{i}", prediction=p)
            for i, p in enumerate(given)
        ]
    write(Path("data/baselines/tag/trials.csv"), TrialRecord, trials)
    write(Path("data/baselines/tag/predictions.csv.gz"), BaselinePredictionRecord, rows)


def write_run(folder: Path, answers: list[str]) -> None:
    key: dict[str, Any] = {"method": "full", "label_budget": "200", "finetune_seed": 1}
    shuffled = list(enumerate(answers))[::-1]
    rows = [PredictionRecord(**key, id=f"id{i}", prediction=answer) for i, answer in shuffled]
    epochs = [
        EpochRecord(
            **key,
            run=folder.name,
            task="tag",
            lr=lr,
            epoch=1,
            train_loss=1.5,
            validation_metric=0.5,
            validation_loss=1.2,
        )
        for lr in (TRIAL["lr"], 0.1)
    ]
    write(folder / "trials.csv", TrialRecord, [TrialRecord(**TRIAL, **key, run=folder.name)])
    write(folder / "predictions.csv.gz", PredictionRecord, rows)
    write(folder / "history.csv", EpochRecord, epochs)
    write(folder / "tries.csv", TryRecord, [tried(folder.name)])
    write(folder / "lost_predictions.csv.gz", LostPredictionRecord, [])
    write(folder / "skipped.csv", SkippedMethod, [])
    write(folder / "inputs.csv", InputRecord, [what_was_read(folder.name)])
    write(folder / "text_bits.csv", TextBitsRecord, bits_of(folder.name))
    write(folder / "estimates.csv", EstimateRecord, [estimate_of(folder.name)])


def tried(run: str, read_out: str = "", *, kept: bool = True) -> TryRecord:
    return TryRecord(
        run=run,
        method="full",
        task="tag",
        label_budget="200",
        finetune_seed=1,
        read_out=read_out,
        initial_weights="",
        fixed="dropout=0.1",
        validation_metric=0.5,
        validation_loss=1.2,
        kept=int(kept),
    )


def estimate_of(run: str) -> EstimateRecord:
    about = {"layer": None, "num_rows": 200, "num_states": 3000, "flops": 10**9, "reason": ""}
    return EstimateRecord(run=run, estimate="logme", layers="last", value=-0.5, **about)


def bits_of(run: str) -> list[TextBitsRecord]:
    """Returns text bits, which the first run does not have."""
    if run == RUN_NAMES[0]:
        return []
    return [TextBitsRecord(run=run, loss=4.5, bits_per_byte=1.25, num_targets=7)]


def what_was_read(run: str) -> InputRecord:
    counts = {"rows": 3, "rows_cut": 1, "tokens": 20, "tokens_cut": 2}
    return InputRecord(run=run, split="test", read_at="first subword of a word", **counts)


def test_scores_are_those_of_the_predictions_whatever_their_order(params: Params) -> None:
    evaluate.main(params, "tag")
    trials = read(Path("data/evaluated/tag/trials.csv"), ScoredTrial)
    assert [(trial.run, trial.value, trial.other_value) for trial in trials] == [
        ("encoder_mlm", 1.0, 1.0),
        ("decoder_causal", 0.0, pytest.approx(1 / 6)),
        ("window", pytest.approx(2 / 3), pytest.approx(5 / 6)),
    ]
    assert {trial.metric for trial in trials} == {"entity_f1"}


def test_trials_of_a_baseline_that_differ_in_the_pretraining_seed_alone_are_two(params) -> None:
    write_baseline({1: GOLD, 2: ["O O O", "O O", "O"]})
    evaluate.main(params, "tag")
    trials = read(Path("data/evaluated/tag/trials.csv"), ScoredTrial)
    values_by_seed = [(t.pretrain_seed, t.value) for t in trials if t.run == "window"]
    assert values_by_seed == [(1, 1.0), (2, 0.0)]


def test_every_trial_has_the_scores_of_its_rows(params: Params) -> None:
    """Scores are in the order of the trials and of the test rows, with the same bytes each time."""
    evaluate.main(params, "tag")
    path = Path("data/evaluated/tag/row_scores.npy")
    scores, written = np.load(path), path.read_bytes()
    values = [trial.value for trial in read(path.with_name("trials.csv"), ScoredTrial)]
    assert scores.dtype == np.float32 and scores.shape == (3, 3)
    assert scores.mean(axis=1).tolist() == pytest.approx(values)
    assert (scores[0] == 1).all() and (scores[1] == 0).all()
    assert scores[2, 1] < scores[2].min(initial=1, where=[True, False, True])  # B-Y is missing
    evaluate.main(params, "tag")
    assert path.read_bytes() == written


def test_what_was_trained_is_copied_as_it_was(params: Params) -> None:
    evaluate.main(params, "tag")
    trial = asdict(read(Path("data/evaluated/tag/trials.csv"), ScoredTrial)[0])
    assert {key: trial[key] for key in TRIAL} == TRIAL


def test_what_nobody_knows_is_an_empty_field_and_no_zero(params: Params) -> None:
    folder = Path("data/finetuned/tag/encoder_mlm")
    (trial,) = read(folder / "trials.csv", TrialRecord)
    write(folder / "trials.csv", TrialRecord, [replace(trial, pretrain_tokens=None)])
    evaluate.main(params, "tag")
    path = Path("data/evaluated/tag/trials.csv")
    assert [t.pretrain_tokens for t in read(path, ScoredTrial)] == [None, 10, 10]
    with path.open(newline="") as file:
        assert [row["pretrain_tokens"] for row in csv.DictReader(file)] == ["", "10", "10"]


def test_curves_of_all_runs_stand_in_one_file(params: Params) -> None:
    evaluate.main(params, "tag")
    curves = read(Path("data/evaluated/tag/history.csv"), EpochRecord)
    assert [epoch.run for epoch in curves] == RUN_NAMES
    assert {epoch.lr for epoch in curves} == {TRIAL["lr"]}, "that of the rate which was chosen"


def test_runs_that_params_no_longer_list_are_deleted(params: Params) -> None:
    write_run(Path("data/finetuned/tag/removed"), GOLD)
    evaluate.main(params, "tag")
    assert sorted(path.name for path in Path("data/finetuned/tag").iterdir()) == sorted(RUN_NAMES)
    assert "removed" not in Path("data/evaluated/tag/trials.csv").read_text()


def test_a_missing_run_is_named_and_nothing_is_left_half_written(params: Params) -> None:
    shutil.rmtree("data/finetuned/tag/decoder_causal")
    with pytest.raises(ValueError, match=r"data/finetuned/tag/decoder_causal/.*missing"):
        evaluate.main(params, "tag")
    assert not Path("data/evaluated").exists()


@pytest.mark.parametrize("answers", [GOLD[:2], [*GOLD, "O"], ["O", *GOLD[1:]]])
def test_predictions_that_do_not_match_the_test_set_cannot_happen(
    params: Params, answers: list[str]
) -> None:
    write_run(Path("data/finetuned/tag/encoder_mlm"), answers)
    with pytest.raises(AssertionError):
        evaluate.main(params, "tag")


def test_what_was_left_out_is_said_of_all_runs(params: Params) -> None:
    skipped = [SkippedMethod(run=run, method="lora", reason="fits no LSTM") for run in RUN_NAMES]
    for method in skipped:
        write(Path("data/finetuned/tag", method.run, "skipped.csv"), SkippedMethod, [method])
    evaluate.main(params, "tag")
    assert read(Path("data/evaluated/tag/skipped.csv"), SkippedMethod) == skipped


def test_what_was_cut_is_said_of_all_runs(params: Params) -> None:
    evaluate.main(params, "tag")
    inputs = read(Path("data/evaluated/tag/inputs.csv"), InputRecord)
    assert inputs == [what_was_read(run) for run in RUN_NAMES]


def test_how_well_runs_predict_the_texts_stands_in_one_file(params: Params) -> None:
    evaluate.main(params, "tag")
    text_bits = read(Path("data/evaluated/tag/text_bits.csv"), TextBitsRecord)
    assert text_bits == [bits for run in RUN_NAMES for bits in bits_of(run)] and text_bits


def test_tries_that_lost_are_scored_by_their_own_predictions(params: Params) -> None:
    """The kept variant has the trial's score, and a variant that diverged has none."""
    run, folder = RUN_NAMES[0], Path("data/finetuned/tag", RUN_NAMES[0])
    first, last, diverged = (f"label_subwords={which}" for which in ("first", "last", "all"))
    (trial,) = read(folder / "trials.csv", TrialRecord)
    write(folder / "trials.csv", TrialRecord, [replace(trial, read_out=last)])
    tries = [tried(run, first, kept=False), tried(run, last), tried(run, diverged, kept=False)]
    write(folder / "tries.csv", TryRecord, tries)
    given = ["B-X I-X O", "O O", "O"]
    lost = [
        LostPredictionRecord(
            method="full",
            label_budget="200",
            finetune_seed=1,
            id=f"id{i}",
            prediction=prediction,
            read_out=first,
            initial_weights="",
        )
        for i, prediction in reversed(list(enumerate(given)))
    ]
    write(folder / "lost_predictions.csv.gz", LostPredictionRecord, lost)
    evaluate.main(params, "tag")
    scored = read(Path("data/evaluated/tag/tries.csv"), ScoredTry)
    assert [each.run for each in scored] == [run, run, run, RUN_NAMES[1]]
    by_hand = metrics.score("entity_f1", GOLD, given)
    assert 0 < by_hand < 1 and [each.value for each in scored] == [by_hand, 1.0, None, 0.0]
    assert scored[0].settings == {"label_subwords": "first"}
    assert scored[0].fixed_settings == {"dropout": "0.1"}
    curves = read(Path("data/evaluated/tag/history.csv"), EpochRecord)
    assert not [epoch for epoch in curves if epoch.run == run]  # no epoch belongs to a variant


def test_estimates_of_all_runs_stand_in_one_file(params: Params) -> None:
    evaluate.main(params, "tag")
    estimates = read(Path("data/evaluated/tag/estimates.csv"), EstimateRecord)
    assert estimates == [estimate_of(run) for run in RUN_NAMES]


def test_labels_that_look_like_missing_values_are_labels(params: Params) -> None:
    labels = ["None", "NA", "null", "", 'a "quoted", label']
    task = Path("data/tasks/tag")
    metrics = {"metric": "accuracy", "other_metric": "macro_f1"}
    about = {"task": {"name": "classification"}, "kind": "classification"}
    write_json(task / "examples/task.json", about | metrics)
    texts = [{"id": f"id{i}", "text": label} for i, label in enumerate(labels)]
    write_jsonl(task / "examples/test.jsonl", texts)
    rows = [{"id": f"id{i}", "label": label} for i, label in enumerate(labels)]
    write_jsonl(task / "test_labels.jsonl", rows)
    for run in RUN_NAMES:
        write_run(Path("data/finetuned/tag", run), labels)
    write_baseline({1: labels})
    evaluate.main(params, "tag")
    assert {trial.value for trial in read(Path("data/evaluated/tag/trials.csv"), ScoredTrial)} == {
        1.0
    }


def test_examples_show_what_each_run_and_baseline_says(params: Params) -> None:
    evaluate.main(params, "tag")
    examples = read_jsonl(Path("data/evaluated/tag/examples.jsonl"))
    assert [row["id"] for row in examples] == ["id0", "id1", "id2"]
    for row in examples:
        runs = [run for one in row["predictions"] for run in one["runs"]]
        assert sorted(runs) == sorted([*RUN_NAMES, "window"])
        right = {run for one in row["predictions"] if one["right"] for run in one["runs"]}
        assert RUN_NAMES[0] in right  # all its answers are right


def test_confusion_counts_the_words_of_every_run_and_baseline(params: Params) -> None:
    evaluate.main(params, "tag")
    confusion = read(Path("data/evaluated/tag/confusion.csv"), ConfusionRecord)
    assert {record.run for record in confusion} == {*RUN_NAMES, "window"}
    words = sum(len(tags.split()) for tags in GOLD)
    for run in {record.run for record in confusion}:
        of_run = [record for record in confusion if record.run == run]
        assert sum(record.number for record in of_run) == words * of_run[0].num_trials
    right = [record for record in confusion if record.run == RUN_NAMES[0]]
    assert all(record.answer == record.prediction for record in right)


def test_scores_are_written_in_full(params: Params) -> None:
    """A value is unchanged to the last bit after writing and reading."""
    evaluate.main(params, "tag")
    with Path("data/evaluated/tag/trials.csv").open(newline="") as file:
        assert [row["value"] for row in csv.DictReader(file)] == ["1.0", "0.0", repr(2 / 3)]


@pytest.mark.parametrize("text", ["a\rb", "a\r", "a\nb", "a\r\nb", 'a "b", c', "", " "])
@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
def test_any_text_is_read_as_it_was_written(tmp_path, name, text) -> None:
    written = [SkippedMethod(run="a", method="b", reason=each) for each in (text, "plain")]
    write(tmp_path / name, SkippedMethod, written)
    assert read(tmp_path / name, SkippedMethod) == written


def test_probabilities_of_predictions_become_a_calibration_error(params: Params) -> None:
    folder = Path("data/finetuned/tag", RUN_NAMES[1])  # all its answers are wrong
    rows = read(folder / "predictions.csv.gz", PredictionRecord)
    sure = [replace(row, probability=0.75) for row in rows]
    write(folder / "predictions.csv.gz", PredictionRecord, sure)
    evaluate.main(params, "tag")
    scored = {t.run: t for t in read(Path("data/evaluated/tag/trials.csv"), ScoredTrial)}
    trial = scored[RUN_NAMES[1]]
    assert (trial.accuracy, trial.mean_probability, trial.calibration_error) == (0, 0.75, 0.75)
    assert scored[RUN_NAMES[0]].calibration_error is None
