"""The costs of a study before it runs, and what `make plan` prints of them."""

import io
import math
from pathlib import Path

import pytest
from rich.console import Console

from stages.budgets.budget import matched
from stages.core.artifacts import write_json, write_jsonl
from stages.core.keys import TrialKey
from stages.core.params import Params
from stages.core.process import TIMES
from stages.evaluation.records import write_table
from stages.planning.costs import Amount, Cost, Texts, finetunings, num_words, pretrainings
from stages.planning.estimate import Estimate, duration, headline, made, show
from stages.planning.speed import add_times, calibration, makespan
from stages.training.finetuning import max_epochs
from tests.planning.conftest import SPEED, with_finetune, with_model

MLM = "encoder_mlm"


def every_stage(params: Params) -> list[str]:
    """Returns the stages of a study that has not begun."""
    return [
        *("resolve", "train_tokenizer@unigram", "report"),
        *(f"prepare_task@{task}" for task in params.tasks),
        *(f"pretrain@{name}" for name in params.models),
        *(f"finetune@{task}" for task in params.tasks),
    ]


def cost_of(costs: list[Cost], model: str, task: str = "", method: str = "") -> Cost:
    (cost,) = [c for c in costs if (c.model, c.task, c.method) == (model, task, method)]
    return cost


def pretraining(study: Params, model: str = MLM) -> Cost:
    return cost_of(pretrainings(study, {name: [1] for name in study.models}), model)


def test_pretrainings_work_is_weights_times_tokens_at_each_rate(fresh: Params) -> None:
    study = matched(fresh)
    training, cost = study.models[MLM].training, pretraining(study)
    tokens = training.num_steps * training.batch_rows * training.max_tokens
    assert cost.weights is not None and cost.steps == training.num_steps
    assert 1 <= cost.work / (3 * cost.weights * tokens) < 2  # with validation
    scratch = pretraining(study, "encoder_scratch")
    add_times(study, [scratch], jobs=1)
    assert scratch.work == scratch.seconds == 0
    rates = training.model_copy(update={"lr": [1e-3, 3e-3]})
    both = pretraining(with_model(study, MLM, training=rates))
    assert (both.work, both.steps) == (2 * cost.work, 2 * cost.steps)


def test_finetunings_have_a_trial_for_each_seed_and_budget(fresh: Params) -> None:
    """The work of full fine-tuning is in proportion to labels; a frozen model predicts once."""
    study = matched(with_finetune(fresh, label_budgets=[20, 40], seeds=[1, 2]))
    cost = cost_of(finetunings(study), MLM, "tag", "full")
    training = study.finetune.methods["full"].training
    texts, _ = Texts.of("tag", study.tasks["tag"], study.finetune.max_tokens)
    assert training is not None and len(cost.works) == 4 * len(study.models[MLM].seeds)
    for key, work in cost.works.items():
        assert isinstance(key, TrialKey)
        labels = int(key.label_budget)
        epochs = max_epochs(training, labels) * len(training.rates)
        rows = epochs * (3 * labels + texts.validation) + texts.test
        assert work == pytest.approx(cost.multiplied * texts.tokens * rows)
    stored = [key for key in cost.works if isinstance(key, TrialKey) and key.finetune_seed == 1]
    rest = cost_of(finetunings(study, stored), MLM, "tag", "full")
    assert rest.works.keys() == cost.works.keys() - {*stored}
    one, two = (
        cost_of(finetunings(matched(with_finetune(fresh, seeds=s))), MLM, "tag", "linear_probe")
        for s in ([1], [1, 2])
    )
    assert one.work < two.work < 1.5 * one.work


def test_texts_have_the_words_of_prepared_rows(fresh: Params) -> None:
    entry = fresh.tasks["section"]
    assert [read.tokens for read in Texts.of("section", entry, 48)] == [48, 48], "not prepared"
    folder = Path("data/tasks/section/examples")
    folder.mkdir(parents=True)
    about = {"task": entry.task, "kind": "classification", "num_examples": {"train": 2}}
    write_json(folder / "task.json", about)
    rows = [{"id": text, "text": text, "label": "a"} for text in ("one two three", "a")]
    write_jsonl(folder / "train.jsonl", rows)
    own, published = Texts.of("section", entry, 48)
    assert own.tokens == pytest.approx(2 + 2.2 * 2)
    assert published.tokens == pytest.approx(2 + 1.3 * 2)
    assert num_words(["two words", "\u4f60\u597d"]) == [2, 2], "letters of scripts without blanks"


def test_texts_of_questions_count_the_windows_of_a_context(fresh: Params) -> None:
    """With 100 tokens a window of 20 words' question has 21 that no other window has."""
    settings = {"name": "span_qa", "stride": 32, "max_question_tokens": 50}
    entry = fresh.tasks["section"].model_copy(update={"task": settings})
    folder = Path("data/tasks/section/examples")
    folder.mkdir(parents=True)
    about = {"task": settings, "kind": "span_qa", "num_examples": {"train": 1}}
    write_json(folder / "task.json", about)
    rows = [{"id": "1", "question": "who " * 20, "context": "it was " * 50, "answers": []}]
    write_jsonl(folder / "train.jsonl", rows)
    own, published = Texts.of("section", entry, 100)
    assert own.examples == math.ceil((2.2 * 100 - 32) / (100 - 2.2 * 20 - 3 - 32))
    assert published.examples == math.ceil((1.3 * 100 - 32) / (100 - 1.3 * 20 - 3 - 32))
    assert own.tokens == published.tokens == 100


def test_texts_that_are_written_cost_what_is_read_and_more_for_each_prediction(
    fresh: Params,
) -> None:
    settings = {"name": "seq2seq", "max_target_tokens": 8}
    entry = fresh.tasks["section"].model_copy(update={"task": settings})
    folder = Path("data/tasks/section/examples")
    folder.mkdir(parents=True)
    about = {"task": settings, "kind": "seq2seq", "num_examples": {"train": 1}}
    write_json(folder / "task.json", about)
    write_jsonl(folder / "train.jsonl", [{"id": "1", "text": "one two", "target": "three"}])
    own, _ = Texts.of("section", entry, 48)
    assert own.tokens == pytest.approx(2 + 2.2 * 3)
    assert own.work(5, 2) == pytest.approx(7 * own.tokens + 10 * 8 * 2)


def test_made_takes_the_speed_of_a_calibration_then_of_earlier_trainings(fresh: Params) -> None:
    """Each earlier trial took 8 seconds and all of its steps, each earlier pretraining 50."""
    estimate = made(fresh, every_stage(fresh))
    cost, longer = (cost_of(estimate.costs, MLM, *about) for about in (("tag", "full"), ()))
    assert cost.seconds == pytest.approx(cost.work / SPEED)
    assert longer.seconds == pytest.approx(longer.work / SPEED)
    assert estimate.others == dict.fromkeys(("resolve", "train_tokenizer@unigram", "report")) | {
        f"prepare_task@{task}": None for task in fresh.tasks
    }
    keys = [key for key in cost.works if isinstance(key, TrialKey)]
    texts, _ = Texts.of("tag", fresh.tasks["tag"], fresh.finetune.max_tokens)
    steps = {"num_steps": Amount.of(fresh.finetune.methods["full"], keys[0], texts).steps}
    rows = [key._asdict() for key in keys]
    trials = [row | steps for row in rows]
    write_table(Path(f"data/finetuned/tag/{MLM}/trials.csv"), trials[0], trials)
    timings = [row | {"wall_time_s": 8.0, "peak_memory_bytes": 10} for row in rows]
    write_table(Path(f"data/timings/finetune/tag/{MLM}.csv"), timings[0], timings)
    for path, numbers in (
        (f"data/timings/pretrain/{MLM}/1.json", {"wall_time_s": 50.0}),
        (f"data/pretrained/{MLM}/1/metrics.json", {"tokens_of_all_rates": 900, "num_params": 70}),
        (str(TIMES / "prepare_task@tag.json"), {"wall_time_s": 3.0}),
    ):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_json(Path(path), numbers)
    again = made(fresh, every_stage(fresh))
    assert cost_of(again.costs, MLM, "tag", "full").seconds == pytest.approx(8 * len(rows))
    alike = cost_of(again.costs, "encoder_scratch", "section", "full")  # of the same kind
    assert alike.seconds == pytest.approx(alike.work / cost.work * 8 * len(rows))
    pretrained = cost_of(again.costs, MLM)
    assert pretrained.seconds == pytest.approx(pretrained.work / (3 * 900 * 70 / 50))
    assert {again.others[f"prepare_task@{task}"] for task in fresh.tasks} == {3.0}


def test_made_knows_nothing_of_a_checkpoint_before_its_download(fresh: Params) -> None:
    gpt2 = {"name": "hub", "path": "openai-community/gpt2", "revision": "0" * 40}
    params = with_model(fresh, "gpt2", "encoder_scratch", architecture=gpt2, tokenizer="none")
    estimate = made(params, every_stage(params))
    unknown = [cost for cost in estimate.costs if cost.seconds is None]
    assert {cost.model for cost in unknown} == {"gpt2"}
    others = [*estimate.others.values()].count(None)
    assert estimate.unknown == sum(len(c.works) for c in unknown) + others
    assert "at least about" in headline(estimate)


def test_show_prints_a_headline_and_a_row_for_each_model(fresh: Params) -> None:
    def printed(estimate: Estimate) -> str:
        show(estimate, Console(file=(output := io.StringIO()), width=80, _environ={}))
        return output.getvalue()

    estimate = made(fresh, every_stage(fresh))
    text = printed(estimate)
    trials = sum(len(cost.works) for cost in estimate.costs if cost.task)
    assert text.startswith("To run: ") and f"{trials} trials" in text
    rows = [line.split()[0] for line in text.splitlines() if line.startswith(" ") and line.strip()]
    assert [name for name in rows if name in fresh.models] == [*fresh.models]
    assert printed(Estimate(fresh, [], [], {}, 1)).startswith("Nothing to run")
    assert (makespan([4, 3, 2, 1], 2), makespan([], 2)) == (5, 0)  # fills all processes
    fresh = fresh.model_copy(update={"compute": fresh.compute.model_copy(update={"threads": 1})})
    keys = [TrialKey("a", 1, "tag", "full", "20", seed) for seed in range(4)]
    cost = Cost("a", "tag", "full", works=dict.fromkeys(keys, 1.0), seconds=8.0)
    assert [Estimate(fresh, [], [cost], {"report": 3.0}, n).seconds for n in (1, 2)] == [11, 7]
    times = {
        9.94: "9.9 s",
        89: "89 s",
        90: "1.5 min",
        5400: "1.5 h",
        43200: "12 h",
        259200: "3.0 d",
    }
    assert {seconds: duration(seconds) for seconds in times} == times


@pytest.mark.slow
def test_calibration_measures_every_kind_of_training(fresh: Params) -> None:
    study = matched(fresh)
    for cost in (pretraining(study), cost_of(finetunings(study), MLM, "tag", "full")):
        assert (calibration(study, cost) or 0) > 1e6
