"""The costs of a study before it runs, and what `make plan` prints of them."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from stages.budgets.budget import matched
from stages.core.keys import TrialKey
from stages.core.params import Params
from stages.evaluation.records import write_table
from stages.planning.costs import Amount, Cost, Texts, finetunings, num_words, pretrainings
from stages.planning.estimate import Estimate, headline, made, show
from stages.planning.speed import calibration, makespan
from tests.planning.conftest import SPEED
from tests.planning.studies import every_stage, with_finetune, with_gpt2, with_run

MLM = "encoder_mlm"


def cost_of(costs: list[Cost], run: str, task: str = "", method: str = "") -> Cost:
    (cost,) = [c for c in costs if (c.model, c.task, c.method) == (run, task, method)]
    return cost


def pretraining(study: Params, run: str = MLM) -> Cost:
    return cost_of(pretrainings(study, {name: [1] for name in study.models}), run)


def test_pretrainings_work_is_weights_times_tokens_at_each_rate(fresh: Params) -> None:
    study = matched(fresh)
    training, cost = study.models[MLM].training, pretraining(study)
    tokens = training.num_steps * training.batch_rows * training.max_tokens
    assert cost.weights is not None and cost.steps == training.num_steps
    assert 1 <= cost.work / (3 * cost.weights * tokens) < 2  # with validation
    assert pretraining(study, "encoder_scratch").work == 0
    rates = training.model_copy(update={"lr": [1e-3, 3e-3]})
    assert pretraining(with_run(study, MLM, training=rates)).work == 2 * cost.work


def test_finetunings_have_a_trial_for_each_seed_and_budget(fresh: Params) -> None:
    params = with_finetune(fresh, label_budgets=[20, 40], seeds=[1, 2])
    works = cost_of(finetunings(matched(params)), MLM, "tag", "full").works
    trials = [key for key in works if isinstance(key, TrialKey)]
    by_budget = {key.label_budget: works[key] for key in trials}
    assert len(works) == 4 * len(params.models[MLM].seeds) and by_budget["20"] <= by_budget["40"]
    stored = [key for key in trials if key.finetune_seed == 1]
    rest = cost_of(finetunings(matched(params), stored), MLM, "tag", "full")
    assert rest.works.keys() == works.keys() - {*stored}


def test_finetunings_of_a_frozen_model_predict_once(fresh: Params) -> None:
    one, two = (
        cost_of(finetunings(matched(with_finetune(fresh, seeds=s))), MLM, "tag", "linear_probe")
        for s in ([1], [1, 2])
    )
    assert one.work < two.work < 1.5 * one.work


def test_texts_have_the_words_of_prepared_rows(fresh: Params) -> None:
    entry = fresh.tasks["section"]
    assert Texts.of("section", entry, 48).tokens == 48  # nothing is prepared
    folder = Path("data/tasks/section/examples")
    folder.mkdir(parents=True)
    about = {"task": entry.task, "kind": "classification", "num_examples": {"train": 2}}
    (folder / "task.json").write_text(json.dumps(about))
    rows = [{"id": text, "text": text, "label": "a"} for text in ("one two three", "a")]
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert Texts.of("section", entry, 48).tokens == pytest.approx(2 + 2.2 * 2)
    assert num_words(["two words", "\u4f60\u597d"]) == 4, "letters of scripts without blanks"


def test_made_takes_the_speed_of_a_calibration_then_of_earlier_trainings(fresh: Params) -> None:
    estimate = made(fresh, every_stage(fresh))
    cost = cost_of(estimate.costs, MLM, "tag", "full")
    assert cost.seconds == pytest.approx(cost.work / SPEED)
    alike = cost_of(estimate.costs, "encoder_scratch", "section", "full")
    # Each earlier trial took 8 seconds and all of its steps.
    rows = [key._asdict() for key in cost.works]
    steps = {"num_steps": num_steps(fresh, cost)}
    write_table(
        Path(f"data/finetuned/tag/{MLM}/trials.csv"),
        [*rows[0], "num_steps"],
        [row | steps for row in rows],
    )
    table = [row | {"wall_time_s": 8.0, "peak_memory_bytes": 10} for row in rows]
    write_table(Path(f"data/timings/finetune/tag/{MLM}.csv"), table[0], table)
    costs = made(fresh, every_stage(fresh)).costs
    again = cost_of(costs, MLM, "tag", "full")
    assert again.seconds == pytest.approx(8 * len(rows))
    speed = cost.work / (8 * len(rows))
    later = cost_of(costs, "encoder_scratch", "section", "full")
    assert later.seconds == pytest.approx(alike.work / speed)  # of the same kind
    pretrained = cost_of(costs, MLM)
    assert pretrained.seconds == pytest.approx(pretrained.work / SPEED)


def num_steps(params: Params, cost: Cost) -> int:
    """Returns the steps of a trial at one learning rate."""
    entry = params.finetune.methods[cost.method].of(cost.model)
    texts = Texts.of(cost.task, params.tasks[cost.task], params.finetune.max_tokens)
    (key, *_) = (key for key in cost.works if isinstance(key, TrialKey))
    assert entry.training is not None
    return Amount.of(entry, key, texts).steps // len(entry.training.rates)


def test_made_knows_nothing_of_a_checkpoint_before_its_download(fresh: Params) -> None:
    params = with_gpt2(fresh)
    estimate = made(params, every_stage(params))
    unknown = [cost for cost in estimate.costs if cost.seconds is None]
    assert {cost.model for cost in unknown} == {"gpt2"}
    others = [*estimate.others.values()].count(None)
    assert estimate.unknown == sum(len(c.works) for c in unknown) + others
    assert "at least about" in headline(estimate)


def test_makespan_fills_all_processes() -> None:
    assert makespan([4, 3, 2, 1], 2) == 5
    assert makespan([], 2) == 0


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


@pytest.mark.slow
def test_calibration_measures_every_kind_of_training(fresh: Params) -> None:
    study = matched(fresh)
    costs = pretrainings(study, {run: [1] for run in study.models})
    for cost in (cost_of(costs, MLM), cost_of(finetunings(study), MLM, "tag", "full")):
        assert (calibration(study, cost) or 0) > 1e6
