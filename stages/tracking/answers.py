"""Answers: the scores and intervals that the report printed, read from its tables."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from stages.core import paths
from stages.core.artifacts import Json, read_json
from stages.evaluation.metrics import scale_of
from stages.evaluation.records import CLASSICAL
from stages.tracking.records import Row, rows

TOLERANCE = 1e-6  # the report rounds to six decimals
Place = tuple[str, str, str, str]  # group, task, method, label budget


@dataclass(frozen=True)
class Answer:
    """What the report says of a group's trials on a task, by the names that MLflow shows."""

    score: float
    seeds: str  # fine-tuning seeds, or pretraining x fine-tuning
    values: dict[str, float]  # score_low, gain_over_baseline, ...


@dataclass
class Answers:
    """``Answers.read()`` is empty without a report."""

    printed: Json = field(default_factory=dict)  # metrics.json
    trials: dict[Place, dict[tuple[str, str], float]] = field(default_factory=dict)
    over_scratch: dict[Place, Row] = field(default_factory=dict)

    @classmethod
    def read(cls) -> "Answers":
        """Of reports/metrics.json, trials.csv and contrasts.csv."""
        path = paths.REPORTS / "metrics.json"
        if not path.exists():
            return cls()
        found = cls(read_json(path))
        trials = defaultdict[Place, dict[tuple[str, str], float]](dict)
        for row in rows(paths.REPORTS / "trials.csv"):
            trials[_place(row, "run")][_seeds(row)] = float(row["value"])
        found.trials = dict(trials)
        for row in rows(paths.REPORTS / "contrasts.csv"):
            if row["axis"] == "pretrained":
                found.over_scratch.setdefault(_place(row, "run_a"), row)
        return found

    def of(self, place: Place, runs: Iterable[str], trials: Sequence[Row]) -> Answer | None:
        """Of a group of ``runs``; None if the report has not seen exactly these trials of them: it
        is older, or there is none."""
        group, task, method, budget = place
        numbers = self._numbers(task, group, method, budget)
        if numbers is None or not self._has_seen(runs, trials):
            return None
        mean, lower_is_better = numbers["mean"], scale_of(trials[0]["metric"]).lower_is_better
        values = {f"score_{end}": numbers[end] for end in ("low", "high") if end in numbers}
        baseline = self._best_baseline(task, budget, lower_is_better=lower_is_better)
        if baseline is not None and method != CLASSICAL:
            own = {_seeds(trial): float(trial["value"]) for trial in trials}
            gain = self._difference(own, mean, (baseline, task, CLASSICAL, budget))
            values["gain_over_baseline"] = round(-gain if lower_is_better else gain, 6)
        values |= self._gain_over_scratch(place, lower_is_better=lower_is_better)
        many, few = numbers["num_pretrain_seeds"], numbers["num_finetune_seeds"]
        return Answer(mean, f"{many} x {few}" if many > 1 else str(few), values)

    def _numbers(self, task: str, group: str, method: str, budget: str) -> dict[str, float] | None:
        return self.printed.get(task, {}).get(group, {}).get(method, {}).get(budget)

    def _has_seen(self, runs: Iterable[str], trials: Sequence[Row]) -> bool:
        known: dict[tuple[str, str, str], float] = {}
        for run in runs:
            here = _place({**trials[0], "run": run}, "run")
            known |= {(run, *seeds): value for seeds, value in self.trials.get(here, {}).items()}
        own = {(trial["run"], *_seeds(trial)): float(trial["value"]) for trial in trials}
        return known.keys() == own.keys() and all(
            abs(known[key] - value) <= TOLERANCE for key, value in own.items()
        )

    def _best_baseline(self, task: str, budget: str, *, lower_is_better: bool) -> str | None:
        """The baseline with the best printed score on this task with these labels."""
        found = {
            name: numbers["mean"]
            for name, methods in self.printed.get(task, {}).items()
            if (numbers := methods.get(CLASSICAL, {}).get(budget))
        }
        return (min if lower_is_better else max)(found, key=found.__getitem__, default=None)

    def _difference(self, own: dict[tuple[str, str], float], mean: float, baseline: Place) -> float:
        """From a baseline: as the report has it, over the trials that drew the same labels where
        there are any, else of the means."""
        theirs = self.trials.get(baseline, {})
        if shared := own.keys() & theirs.keys():
            return fmean(own[seeds] - theirs[seeds] for seeds in sorted(shared))
        name, task, _, budget = baseline
        return mean - self.printed[task][name][CLASSICAL][budget]["mean"]

    def _gain_over_scratch(self, place: Place, *, lower_is_better: bool) -> dict[str, float]:
        """The contrast with the same model from scratch, with its interval; above 0 is better."""
        row = self.over_scratch.get(place, {})
        sign, ends = (-1, ("high", "low")) if lower_is_better else (1, ("low", "high"))
        columns = zip(("", "_low", "_high"), ("effect", *ends), strict=True)
        return {
            f"gain_over_scratch{end}": sign * float(row[column])
            for end, column in columns
            if row.get(column)
        }


def _place(row: Row, run: str) -> Place:
    return row[run], row["task"], row["method"], row["label_budget"]


def _seeds(row: Row) -> tuple[str, str]:
    return row["pretrain_seed"], row["finetune_seed"]
