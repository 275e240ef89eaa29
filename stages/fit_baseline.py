"""Fit the classical baselines to a task: data/baselines/TASK.

A baseline learns from the same labelled rows as the trials of a fine-tuned model: a new sample for
each pair of pretraining and fine-tuning seed. It predicts the same test rows. The predictions of an
external system are read from its file.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tqdm import tqdm

from stages.baselines._baseline import BASELINES, Baseline, kind_of_source
from stages.baselines._kept import Examples, fit, path_of, save
from stages.baselines._linear import classifier
from stages.core import paths
from stages.core.artifacts import Json, read_json, read_jsonl, replacing
from stages.core.components import below
from stages.core.keys import TrialKey
from stages.core.plans import BaselinePlan
from stages.core.process import run_stage
from stages.evaluation.doubtful_labels import DoubtfulLabel, doubtful_labels
from stages.evaluation.records import CLASSICAL, PredictionRecord, TrialRecord, write
from stages.tasks._labelled_rows import distinct_draws, of_draw


def main(plan: BaselinePlan, task: str) -> str:
    """Writes ``trials.csv``, ``predictions.csv.gz``, ``doubtful_labels.csv`` and the records of the
    trials, from which the baselines can be fitted again.

    If a label budget is all rows of train, every seed has the same sample, so there is only one
    trial, or one for each draw of the splits. An external system has as few trials at every label
    budget, since its predictions do not depend on the budget; it has no records.

    Raises ValueError if there are fewer rows than a label budget, or if a file with predictions
    does not fit the test rows.
    """
    about = read_json(paths.examples(task) / "task.json")
    examples = Examples.read(paths.examples(task))
    score = replace(examples.score, kind=kind_of_source(examples.score.kind, plan.reading))
    examples = replace(examples, score=score)
    test = read_jsonl(paths.examples(task) / "test.jsonl")
    trials, predictions = list[TrialRecord](), list[PredictionRecord]()
    external = dict[tuple[str, int], tuple[Baseline, list[str]]]()  # by name and draw
    with replacing(paths.BASELINES / task) as folder:
        folder.mkdir()
        for key in tqdm([*_keys(plan, task, about)], desc=f"baselines on {task}", disable=None):
            component, draw = plan.baselines[key.model], (key.model, key.finetune_seed)
            rows, validation = of_draw(test, key.finetune_seed), None
            if draw in external:
                baseline, answers = external[draw]
            else:
                baseline = fit(component, key, examples)
                with below(f"baselines.{key.model}"):
                    answers = baseline.predict(rows)
            if baseline.num_tries:
                kept = path_of(key).relative_to(paths.BASELINES / task)
                save(baseline, component, key, examples, folder / kept)
                if held_out := of_draw(examples.validation, key.finetune_seed):
                    validation = examples.score(held_out, baseline.predict(held_out))
            else:
                external[draw] = baseline, answers
            trials.append(
                TrialRecord(
                    **key._asdict(),
                    architecture=component["name"],
                    used_architecture=component["name"],
                    num_tries=baseline.num_tries,
                    validation_score=validation,
                )
            )
            probabilities = baseline.probabilities(rows)
            for row, predicted, known in zip(rows, answers, probabilities, strict=True):
                probability = None if known is None else round(known, 6)
                of_row = {"id": row["id"], "prediction": predicted, "probability": probability}
                predictions.append(PredictionRecord(**key._asdict(), **of_row))
        write(folder / "trials.csv", TrialRecord, trials)
        write(folder / "predictions.csv.gz", PredictionRecord, predictions)
        train = of_draw(examples.train, plan.finetune_seeds[0])
        doubtful = doubtful_labels(examples.score.kind, train, classifier())
        write(folder / "doubtful_labels.csv", DoubtfulLabel, doubtful)
    return f"{len(trials):,} trials of {len({trial.model for trial in trials})} baselines"


def _keys(plan: BaselinePlan, task: str, about: Json) -> Iterator[TrialKey]:
    """Yields the keys of all trials of a task, in the order of params.yaml. The seeds of a trial
    only choose its rows."""
    seeds = {"pretrain_seeds": plan.pretrain_seeds, "finetune_seeds": plan.finetune_seeds}
    for name, budget in product(plan.baselines, plan.label_budgets):
        baseline = BASELINES.build(plan.baselines[name], where=f"baselines.{name}")
        trains = baseline.num_tries > 0
        for draw in distinct_draws(budget, **seeds, about=about, task=task, trains=trains):
            yield TrialKey(name, draw[0], task, CLASSICAL, str(budget), draw[1])


if __name__ == "__main__":
    run_stage(main, BaselinePlan, "task")
