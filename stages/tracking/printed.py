"""The scores and gains that the last report printed, read from its tables."""

import math
from dataclasses import dataclass

from stages.core import paths
from stages.core.artifacts import Json, read_json
from stages.core.keys import CellKey, TrialKey
from stages.evaluation.metrics import cut, scale_of
from stages.evaluation.records import read_texts
from stages.tracking.records import Row, cell_of, grouped, trial_of

TOLERANCE = 1e-6  # the report rounds to six decimals


@dataclass(frozen=True)
class Printed:
    """The tables of the last report; empty if there is no report."""

    scores: Json  # metrics.json
    trials: dict[CellKey, list[Row]]
    gains: dict[CellKey, list[Row]]  # contrasts with a model from scratch, by the pretrained cell
    against: dict[CellKey, str]  # sentence on the lead over the baselines, by the best cell

    @classmethod
    def read(cls) -> "Printed":
        path = paths.REPORTS / "metrics.json"
        contrasts = read_texts(paths.REPORTS / "contrasts.csv")
        gains = ({**row, "run": row["run_a"]} for row in contrasts if row["axis"] == "pretrained")
        return cls(
            read_json(path) if path.exists() else {},
            grouped(read_texts(paths.REPORTS / "trials.csv"), cell_of),
            grouped(gains, cell_of),
            {cell_of(row): row["against"] for row in read_texts(paths.REPORTS / "answer.csv")},
        )

    def answers(self, cell: CellKey, trials: list[Row]) -> dict[str, float]:
        """Returns the score of a cell, its gain over the same model from scratch, and their
        intervals, cut off at the ends of the metric's scale as in the report. Empty unless the
        report has seen exactly these ``trials`` of the cell."""
        printed = self._of(cell)
        seen, own = _values(self.trials.get(cell, [])), _values(trials)
        is_current = seen.keys() == own.keys() and all(
            math.isclose(seen[key], own[key], rel_tol=0, abs_tol=TOLERANCE) for key in own
        )
        if not printed or not is_current:
            return {}
        answers, metric = {"score": printed["mean"]}, trials[0]["metric"]
        if "low" in printed:
            low, high = cut(printed["low"], printed["high"], metric)
            answers |= {"score_low": low, "score_high": high}
        for contrast in self.gains.get(cell, [])[:1]:
            sign = -1 if scale_of(metric).lower_is_better else 1
            answers["gain_over_scratch"] = sign * float(contrast["effect"])
            if contrast["low"]:
                ends = cut(float(contrast["low"]), float(contrast["high"]), metric, difference=True)
                low, high = sorted(sign * end for end in ends)
                answers |= {"gain_over_scratch_low": low, "gain_over_scratch_high": high}
        return answers

    def tags(self, cell: CellKey) -> dict[str, str]:
        """Returns tags with the number of fine-tuning seeds (or pretraining x fine-tuning seeds)
        and, for the best cell of a task, the report's sentence on its lead over the baselines."""
        printed = self._of(cell)
        pretrain, finetune = printed["num_pretrain_seeds"], printed["num_finetune_seeds"]
        tags = {"seeds": f"{pretrain} x {finetune}" if pretrain > 1 else str(finetune)}
        if cell in self.against:
            tags["against_baselines"] = self.against[cell]
        return tags

    def _of(self, cell: CellKey) -> Json:
        methods = self.scores.get(cell.task, {}).get(cell.run, {})
        return methods.get(cell.method, {}).get(cell.label_budget, {})


def _values(trials: list[Row]) -> dict[TrialKey, float]:
    return {trial_of(row): float(row["value"]) for row in trials}
