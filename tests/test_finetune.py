"""The stage that fine-tunes: trials choose their epoch, learning rate and threshold on validation
data alone, and are predicted, scored and kept."""

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from sklearn.metrics import average_precision_score

from stages import encode_corpus, finetune, prepare_corpus
from stages.core import paths
from stages.core.artifacts import Json, read_json, read_jsonl, remove, write_jsonl
from stages.core.keys import CheckpointKey, TrialKey
from stages.core.params import Corpus, Method, Params
from stages.core.seeding import stream
from stages.core.study_file import load
from stages.evaluation import records
from stages.evaluation.calibration import at_temperature
from stages.evaluation.transferability import EstimateRecord
from stages.tasks._task import SPLITS
from stages.training.checkpoint import WEIGHTS
from stages.training.device import resolve
from stages.trials import kept, store
from stages.trials.prediction import predict as predicted
from stages.trials.setup import TrialSetup
from stages.trials.validation import best_threshold
from tests.small import documents, small_tokenizer
from tests.small_study import (
    SCRATCH,
    SMALLER,
    files_of,
    fine_tune,
    finetune_plan,
    pretrain_run,
    run_stage,
    scores,
    tuned,
    with_models,
    write_inputs,
    write_study,
    write_task,
)
from tests.smoke import alone, with_values

pytestmark = pytest.mark.slow

FOLDER = Path("data/finetuned/section", SCRATCH)
FULL = TrialKey(SCRATCH, 1, "section", "full", "64", 1)
WEIGHTS_OF_FULL = f"weights/{kept.file_name(FULL)}"
Rates = float | list[float]


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """A study with a run from scratch and a published one, in the current folder."""
    monkeypatch.chdir(tmp_path)
    return write_study(tmp_path, lr=1e-3)


@pytest.fixture
def params(study: Params) -> Params:
    """A study with a run from scratch."""
    params = alone(study, SCRATCH)
    pretrain_run(params, SCRATCH)
    return params


@pytest.fixture
def finetuned(params: Params) -> Callable[..., dict[str, bytes]]:
    """Fine-tunes in full at these rates, and by a probe; returns the content of every file."""

    def run(lr: Rates, **training: Any) -> dict[str, bytes]:
        remove(store.ROOT)
        fine_tune(at(params, lr, **training))
        return files_of(FOLDER)

    return run


def at(params: Params, lr: Rates, **changes: Any) -> Params:
    """Returns the study at these rates, with two epochs by default and one seed."""

    def changed(method: Method) -> Method:
        if method.training is None:
            return method
        settings = method.training.model_dump() | {"lr": lr, "num_epochs": 2}
        training = type(method.training)(**(settings | changes))
        return method.model_copy(update={"training": training})

    methods = {name: changed(method) for name, method in params.finetune.methods.items()}
    return tuned(params, methods=methods, seeds=[1])


def read_trials() -> dict[str, records.TrialRecord]:
    return {row.method: row for row in records.read(FOLDER / "trials.csv", records.TrialRecord)}


def read_curves() -> list[records.EpochRecord]:
    return records.read(FOLDER / "history.csv", records.EpochRecord)


def test_trial_keeps_the_best_of_several_rates_on_validation(finetuned) -> None:
    """The order of rates does not matter. The trial equals that with the best rate alone, except
    for the cost, which is that of all rates. A rate at which training diverges is not chosen."""
    with pytest.raises(ValueError, match=r"full\.training\.lr: training diverged at 1e\+30, the"):
        finetuned(1e30)
    assert not FOLDER.exists()
    alone = finetuned(0.01)
    single = read_trials()
    assert single["linear_probe"].num_trained_params < single["full"].num_trained_params
    assert single["linear_probe"].finetune_flops < single["full"].finetune_flops
    for rates in ([1e-9, 0.01], [0.01, 1e-9]):
        together = finetuned(rates)
        trial = read_trials()["full"]
        for name in ("predictions.csv.gz", *(n for n in alone if n.startswith("weights/"))):
            assert together[name] == alone[name]
        curves = read_curves()
        assert [(p.lr, p.epoch) for p in curves] == [(r, e) for r in rates for e in (1, 2)]
        last = [point for point in curves if point.epoch == 2]
        best = max(last, key=lambda point: (point.validation_metric, -point.validation_loss))
        assert (trial.lr, trial.best_epoch) == (best.lr, best.epoch) == (0.01, 2)
        assert (trial.num_tries, trial.num_epochs, trial.best_is_last) == (2, 2, 1)
        assert trial.last_train_loss == pytest.approx(best.train_loss)
        assert trial.finetune_flops == 2 * single["full"].finetune_flops
        assert read_trials()["linear_probe"] == single["linear_probe"]
    finetuned([1e30, 0.01])
    assert read_trials()["full"].lr == 0.01


def test_trial_keeps_the_last_epoch_without_patience_and_the_best_with_it(finetuned) -> None:
    """Patience that does not run out changes the kept epoch and nothing else; if it does, training
    ends. The labels of validation are swapped, so that fitting the others lowers the score."""
    path = Path("data/tasks/section/examples/validation.jsonl")
    swapped = {"calm": "loud", "loud": "calm"}
    write_jsonl(path, [row | {"label": swapped[row["label"]]} for row in read_jsonl(path)])
    last = finetuned(0.01, num_epochs=6)
    trial = read_trials()["full"]
    assert (trial.best_epoch, trial.num_epochs, trial.best_is_last) == (6, 6, 0)
    best = finetuned(0.01, num_epochs=6, patience=6)
    assert last["history.csv"] == best["history.csv"]
    order = [(point.validation_metric, -point.validation_loss) for point in read_curves()]
    chosen = 1 + order.index(max(order))
    assert chosen < 6, "the test needs another epoch than the last"
    assert read_trials()["full"].best_epoch == chosen
    assert last[WEIGHTS_OF_FULL] != best[WEIGHTS_OF_FULL]
    finetuned(1e-30, min_steps=120, patience=3)  # nothing changes after the 3 epochs of warm-up
    stopped = read_trials()["full"]
    assert (stopped.num_epochs, stopped.best_epoch, stopped.chosen_in_warmup) == (6, 1, 1)
    assert stopped.best_is_last == 0 and [epoch.epoch for epoch in read_curves()] == [*range(1, 7)]


def test_choice_of_a_trial_does_not_see_the_test_set(finetuned) -> None:
    """Other test inputs, which never have labels, change no weight and no choice."""

    def chosen(files: dict[str, bytes]) -> dict[str, bytes]:
        """Returns the files without the predictions and the lengths of test inputs."""
        lines = [line for line in files["inputs.csv"].splitlines() if b",test," not in line]
        others = {n: content for n, content in files.items() if n != "predictions.csv.gz"}
        return others | {"inputs.csv": b"\n".join(lines)}

    before = finetuned([1e-3, 0.01])
    path = Path("data/tasks/section/examples/test.jsonl")
    rows = read_jsonl(path)
    assert not any("label" in row for row in rows)
    write_jsonl(path, [row | {"text": row["text"].swapcase()} for row in reversed(rows)])
    remove(FOLDER)
    after = finetuned([1e-3, 0.01])
    assert after["predictions.csv.gz"] != before["predictions.csv.gz"]
    assert chosen(after) == chosen(before)


def test_finetune_uses_a_published_checkpoint_and_its_random_twin(study: Params) -> None:
    """The twin has other weights in each trial. Seeds of a published checkpoint have equal
    estimates, and the first of a trial's seeds measures speed."""
    public = study.models["public"].model_copy(update={"seeds": [1, 2]})
    random = public.model_copy(update={"architecture": public.architecture | {"weights": "random"}})
    twin = random.model_copy(update={"seeds": [1]})
    study = with_models(at(study, 1e-3), {"public": public, "twin": twin})
    study = tuned(study, seeds=[1, 2], keep_weights="first_seed")
    write_inputs(study)
    for model in study.models:
        pretrain_run(study, model)
    fine_tune(study, "tag")
    trials = scores(study, "tag")
    order = [(t.model, t.pretrain_seed, t.method, t.finetune_seed) for t in trials]
    cells = [("public", seed, method) for seed in (1, 2) for method in ("full", "linear_probe")]
    cells += [("twin", 1, method) for method in ("full", "linear_probe")]
    assert sorted(order) == [(*cell, seed) for cell in cells for seed in (1, 2)]
    full = next(t for t in trials if (t.model, t.method) == ("public", "full"))
    random_one = next(t for t in trials if (t.model, t.method) == ("twin", "full"))
    assert (full.architecture, full.objective, full.pretrain_tokens) == ("encoder", "hub", None)
    assert full.corpus == public.architecture["path"] and random_one.pretrain_tokens == 0
    assert full.num_params == full.num_trained_params == random_one.num_params
    assert full.finetune_flops == random_one.finetune_flops
    drawn = [
        TrialSetup(CheckpointKey("twin", 1), "tag", max_tokens=64).backbone(seed=s) for s in (1, 2)
    ]
    first, second = (next(iter(backbone.parameters())) for backbone in drawn)
    assert not torch.equal(first, second)

    folder = Path("data/finetuned/tag/public")
    test = {row["id"]: row["words"] for row in read_jsonl(paths.examples("tag") / "test.jsonl")}
    predictions = records.read(folder / "predictions.csv.gz", records.PredictionRecord)
    assert len(predictions) == 8 * len(test)
    assert all(len(p.prediction.split()) == len(test[p.id]) for p in predictions)
    names = {path.name for path in (folder / "weights").iterdir()}
    assert names == {f"{m}-64-{s}-1.safetensors" for m in ("full", "linear_probe") for s in (1, 2)}
    values: dict[int, list[float | None]] = {1: [], 2: []}
    for row in records.read(folder / "estimates.csv", EstimateRecord):
        values[row.pretrain_seed].append(row.value)
    assert values[1] == values[2] != []
    for cost in records.read(Path("data/timings/finetune/tag/public.csv"), records.CostRecord):
        assert cost.hardware and (cost.threads, cost.side_by_side) == (1, 1)
        speed = (cost.latency_s, cost.texts_per_s, cost.tokens_per_s)
        assert all(map(bool, speed)) == (cost.finetune_seed == 1)


def test_threshold_of_a_trial_is_the_best_on_validation(params: Params) -> None:
    """A kept trial gives the test probabilities of the scored one, before and after its
    temperature. The rarer class has an average precision."""
    lines = [line for document in documents() for line in document if len(line) > 30][:400]
    rows = [{"text": line, "label": "rare" if "class" in line else "usual"} for line in lines]
    entry = {"name": "classification", "class_weights": "balanced", "threshold": "validation"}
    entry |= {"pooling": "mean", "dropout": 0.0}
    write_task("rare", rows, entry, train=200, validation=100, test=100)
    tasks = {"rare": params.tasks["section"].model_copy(update={"task": entry})}
    probe = {"linear_probe": params.finetune.methods["linear_probe"]}
    study = tuned(params, label_budgets=["all"], seeds=[1], methods=probe)
    study = study.model_copy(update={"tasks": tasks})
    fine_tune(study, "rare")
    (trial,) = scores(study, "rare")
    path = paths.FINETUNED / "rare" / SCRATCH / "weights/linear_probe-all-1-1.safetensors"
    about, answers = kept.read(path), dict[str, list[Any]]()
    setup = kept.setup_of(about, path)
    model, device = kept.rebuilt(about, setup, path), resolve(params.compute, threads=1)
    for split in SPLITS[1:]:
        some = read_jsonl(paths.examples("rare") / f"{split}.jsonl")
        answers[split] = predicted(setup.task, model, some, setup.task.encode(some), device)
    gold = [row["label"] for row in read_jsonl(paths.examples("rare") / "validation.jsonl")]
    best = best_threshold("macro_f1", gold, answers["validation"])
    assert about.threshold == pytest.approx(best, abs=1e-4) and trial.temperature is not None
    table = path.parents[1] / "predictions.csv.gz"
    written = records.read(table, records.PredictionRecord)
    for row, answer in zip(written, answers["test"], strict=True):
        assert row.prediction == answer.at(about.threshold)
        assert row.probability == pytest.approx(answer.scores[row.prediction], abs=1e-4)
        scaled = at_temperature(answer.scores, trial.temperature)
        assert row.calibrated == pytest.approx(scaled[row.prediction], abs=1e-3)
    is_rare = [row["label"] == "rare" for row in read_jsonl(paths.test_labels("rare"))]
    precision = average_precision_score(is_rare, [each.scores["rare"] for each in answers["test"]])
    assert trial.rare_class == "rare"
    assert trial.average_precision == pytest.approx(precision, abs=1e-3)


def test_in_context_learning_leaves_predictions_and_no_weights(study: Params) -> None:
    encoder = study.models[SCRATCH]
    decoder = encoder.model_copy(update={"architecture": encoder.architecture | {"name": "phi"}})
    study = with_models(study, {"decoder": decoder, SCRATCH: encoder})
    method = Method(method={"name": "in_context", "num_shots": 2})
    study = tuned(study, methods={"prompted": method})
    write_inputs(study)
    for model in study.models:
        pretrain_run(study, model)
    (skipped,) = finetune.skipped_methods(finetune_plan(study, "section"), SCRATCH, "section")
    assert "needs a causal model" in skipped.reason
    fine_tune(study)
    assert read_trials() == {} and len(records.read(FOLDER / "skipped.csv", type(skipped))) == 1
    trials = scores(study, "section")
    assert [trial.finetune_seed for trial in trials] == study.finetune.seeds
    folder, weights = FOLDER.with_name("decoder"), Path("data/pretrained/decoder/1", WEIGHTS)
    for trial in trials:
        assert trial.num_trained_params == trial.finetune_flops == trial.best_epoch == 0
        assert trial.weights_bytes == weights.stat().st_size
        assert not load_file(folder / f"weights/prompted-64-1-{trial.finetune_seed}.safetensors")
    costs = records.read(Path("data/timings/finetune/section/decoder.csv"), records.CostRecord)
    assert costs[0].latency_s and costs[0].latency_s > 1e-4, "no prompt was remembered"
    predictions = records.read(folder / "predictions.csv.gz", records.PredictionRecord)
    assert {row.prediction for row in predictions} <= {"calm", "loud"}


# One model that learns two tasks as text

WORDS = ["class", "def", "for", "from", "if", "import", "return", "value"]


def rows_of(task: str, number: int, *, seed: int) -> Iterator[Json]:
    """Yields texts whose label says whether they begin with "class", or whose tags say which words
    are "class"."""
    rng = stream(seed, task)
    for name in (f"{seed}{i}" for i in range(number)):  # no two rows are equal
        words = [str(word) for word in rng.choice(WORDS[:2], size=2)]
        other = str(rng.choice(WORDS[2:]))
        if task == "first":
            label = "some_class" if words[0] == "class" else "none"
            yield {"text": " ".join([words[0], words[0], other, name]), "label": label}
        else:
            tags = ["B-X" if word == "class" else "O" for word in words]
            yield {"words": [*words, name], "tags": [*tags, "O"]}


@pytest.mark.nightly
def test_model_of_a_mixture_answers_both_tasks_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that has learnt a mixture of two tasks is used as it is and fine-tuned as text."""
    monkeypatch.chdir(tmp_path)
    smoke = load(with_values(Path(), SMALLER))
    entries = {
        "first": {"name": "classification", "metric": "accuracy"},
        "which": {"name": "tagging", "metric": "word_accuracy"},
    }
    for key, entry in entries.items():
        numbers = {"train": 200, "validation": 30, "test": 40}
        parts = (rows_of(key, n, seed=seed) for seed, n in enumerate(numbers.values(), 1))
        write_task(key, [*chain(*parts)], entry, **numbers)
    Path("data/tokenizers/unigram").mkdir(parents=True)
    small_tokenizer().save_to(Path("data/tokenizers/unigram"))
    model = {"name": "t5", "d_model": 64, "num_layers": 1, "num_heads": 2, "d_ff": 128}
    scratch = smoke.models[SCRATCH].model_copy(update={"architecture": model})
    schedule = {"optimizer": {"name": "muon"}, "num_steps": 240, "lr": 9e-3}
    schedule |= {"batch_rows": 8, "micro_batch_rows": 8}
    training = scratch.training.model_copy(update=schedule)
    both = {"corpus": "mixture", "objective": {"name": "multi_task"}, "training": training}
    full = smoke.finetune.methods["full"].training
    assert full is not None
    epoch = full.model_copy(update={"num_epochs": 1, "batch_examples": 16, "lr": 1e-3})
    methods = {
        "as_it_is": Method(method={"name": "none"}, text_to_text=True),
        "text": Method(method={"name": "full"}, text_to_text=True, training=epoch),
    }
    source = {"name": "tasks", "path": "data/tasks", "tasks": [*entries]}
    corpus = Corpus(source=source, max_tokens="all", decontaminate_against="none")
    tasks = {
        key: smoke.tasks["tag"].model_copy(update={"task": entry}) for key, entry in entries.items()
    }
    study = smoke.model_copy(update={"corpora": {"mixture": corpus}, "tasks": tasks})
    models = {"both": scratch.model_copy(update=both), "scratch": scratch}
    settings = {"methods": methods, "label_budgets": ["all"], "seeds": [1], "max_tokens": 32}
    study = tuned(with_models(study, models), **settings)
    run_stage(study, prepare_corpus, "mixture")
    run_stage(study, encode_corpus, "mixture", "unigram")
    write_inputs(study)
    for run in study.models:
        pretrain_run(study, run)
    for key in tasks:
        fine_tune(study, key)

    of_trials = [trial for task in study.tasks for trial in scores(study, task)]
    trials = {(trial.model, trial.task, trial.method): trial for trial in of_trials}
    as_it_is, text = trials["both", "first", "as_it_is"], trials["both", "first", "text"]
    assert min(as_it_is.value, text.value) > 0.9  # by chance half
    assert trials["both", "which", "as_it_is"].value > 0.75  # all O is two thirds
    assert trials["scratch", "first", "as_it_is"].value < 0.1
    assert as_it_is.num_trained_params == as_it_is.finetune_flops == as_it_is.best_epoch == 0
    assert text.num_trained_params == text.num_params  # there is no head
    assert as_it_is.objective == "multi_task" and as_it_is.corpus == "mixture"
    assert read_json(Path("data/corpora/mixture/corpus.json"))["train"]["documents"] == 400
