"""The scores and gains that the last report printed, read from its tables."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from stages.core import paths
from stages.core.artifacts import Json, read_json
from stages.evaluation.metrics import scale_of
from stages.tracking.records import Place, Row, grouped, rows

PLACE = ("task", "method", "label_budget")
TOLERANCE = 1e-6  # the report rounds to six decimals


@dataclass(frozen=True)
class Printed:
    """The tables of the last report; empty without one."""

    scores: Json  # metrics.json
    trials: dict[Place, list[Row]]  # by task, method and label budget
    gains: dict[Place, list[Row]]  # contrasts with a model from scratch, by group and place

    @classmethod
    def read(cls) -> "Printed":
        path = paths.REPORTS / "metrics.json"
        contrasts = rows(paths.REPORTS / "contrasts.csv")
        return cls(
            read_json(path) if path.exists() else {},
            grouped(rows(paths.REPORTS / "trials.csv"), *PLACE),
            grouped((row for row in contrasts if row["axis"] == "pretrained"), "run_a", *PLACE),
        )

    def answers(self, group: str, runs: Iterable[str], trials: list[Row]) -> dict[str, float]:
        """The score, the gain over the same model from scratch, and their intervals; empty if the
        report has not seen exactly these trials of the group."""
        task, method, budget = place = tuple(trials[0][key] for key in PLACE)
        printed = self._of(group, place)
        seen, own = (_values(table, runs) for table in (self.trials.get(place, []), trials))
        is_current = seen.keys() == own.keys() and all(
            math.isclose(seen[key], own[key], rel_tol=0, abs_tol=TOLERANCE) for key in own
        )
        if not printed or not is_current:
            return {}
        answers = {"score": printed["mean"]}
        answers |= {f"score_{end}": printed[end] for end in ("low", "high") if end in printed}
        for contrast in self.gains.get((group, *place), [])[:1]:
            lower_is_better = scale_of(trials[0]["metric"]).lower_is_better
            sign, low, high = (-1, "high", "low") if lower_is_better else (1, "low", "high")
            for end, column in (("", "effect"), ("_low", low), ("_high", high)):
                if contrast[column]:
                    answers[f"gain_over_scratch{end}"] = sign * float(contrast[column])
        return answers

    def seeds(self, group: str, place: Place) -> str:
        """The number of fine-tuning seeds, or "pretraining seeds x fine-tuning seeds"."""
        printed = self._of(group, place)
        pretrain, finetune = printed["num_pretrain_seeds"], printed["num_finetune_seeds"]
        return f"{pretrain} x {finetune}" if pretrain > 1 else str(finetune)

    def _of(self, group: str, place: Place) -> Json:
        task, method, budget = place
        return self.scores.get(task, {}).get(group, {}).get(method, {}).get(budget, {})


def _values(trials: list[Row], runs: Iterable[str]) -> dict[Place, float]:
    """The scores of the trials of ``runs``, by run and seeds."""
    return {
        (row["run"], row["pretrain_seed"], row["finetune_seed"]): float(row["value"])
        for row in trials
        if row["run"] in runs
    }
