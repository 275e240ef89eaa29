"""Sentences of the plan."""

from stages.planning.finetuning_costs import Finetuning
from stages.planning.tables import fine_tuning_by_run


def cost(run: str, task: str, seconds: float | None) -> Finetuning:
    return Finetuning(run, task, "full", seconds=seconds)


def test_fine_tuning_by_run_adds_up_tasks_and_begins_with_the_longest() -> None:
    costs = [cost("small", "tag", 20.0), cost("large", "tag", 50.0), cost("large", "type", 40.0)]
    unknown = cost("new", "tag", None)
    partly = cost("small", "type", None)
    said = fine_tuning_by_run([*costs, partly])
    assert said == "Fine-tuning by run: large 1.5 min, small ≥ 20 s."
    assert fine_tuning_by_run([*costs, unknown]) == "Fine-tuning by run: large 1.5 min, small 20 s."
    assert fine_tuning_by_run(costs[:1]) == fine_tuning_by_run([unknown]) == ""
