"""The best fine-tuned model of each task: which it is, by the report, and what is known of it."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from stages.core import paths
from stages.core.artifacts import Json, read_jsonl
from stages.core.params import Params
from stages.evaluation.metrics import merit, scale_of
from stages.evaluation.records import budget_order
from stages.kinds._inputs import Columns
from stages.kinds._kind import KINDS
from stages.tracking.records import RunRecord, digest, rows

FORM = "1"  # of what this code registers; of another form it is registered anew
EXAMPLE_ROWS = 2
ABOUT = ("run", "method", "label_budget", "metric", "seeds")
NUMBERS = ("score", "score_low", "score_high")


@dataclass(frozen=True)
class BestModel:
    """Of all runs and methods with the most labels on a task, the one with the best mean."""

    task: str
    record: RunRecord  # its trials
    pretrain_seed: int  # of the first of its runs, whose weights are taken

    @classmethod
    def of(cls, params: Params, records: Iterable[RunRecord], task: str) -> "BestModel | None":
        """None if the report has not seen these trials: it is older, or there is none."""
        cells = [
            record
            for record in records
            if record.kind == "trials"
            and record.tags["task"] == task
            and record.tags["run"] in params.pretrain
        ]
        if not cells or any("seeds" not in cell.tags for cell in cells):
            return None
        most = max((cell.tags["label_budget"] for cell in cells), key=budget_order)
        tried = [cell for cell in cells if cell.tags["label_budget"] == most]
        best = max(tried, key=lambda cell: merit(cell.tags["metric"], _numbers(cell)["score"]))
        return cls(task, best, params.pretrain[best.tags["run"]].seed)

    @property
    def name(self) -> str:
        return f"{self.record.tags['study']}-{self.task}"  # no name of a study has a dash

    @property
    def fingerprint(self) -> str:
        return digest([FORM, self.record.fingerprint])

    @property
    def numbers(self) -> dict[str, float]:
        return _numbers(self.record)

    @property
    def weights(self) -> Path | None:
        """Those of the first run and the first fine-tuning seed; None if they were not kept."""
        tags = self.record.tags
        folder = paths.FINETUNED / self.task / tags["run"] / "weights"
        kept = folder.glob(f"{tags['method']}-{tags['label_budget']}-*.safetensors")
        return min(kept, key=_seed, default=None)

    @property
    def files(self) -> list[Path]:
        """All that predicting takes; empty if some of it is not there."""
        weights, run = self.weights, paths.PRETRAINED / self.record.tags["run"]
        task = [paths.examples(self.task) / name for name in ("task.json", "train.jsonl")]
        if weights is None or not run.is_dir() or not all(path.exists() for path in task):
            return []
        return [weights, *sorted(path for path in run.rglob("*") if path.is_file()), *task]

    @property
    def columns(self) -> Columns:
        return Columns.of(paths.examples(self.task))

    @property
    def example(self) -> list[Json]:
        """The inputs of some test rows."""
        kind = KINDS[self.columns.kind]
        some = read_jsonl(paths.examples(self.task) / "test.jsonl")[:EXAMPLE_ROWS]
        return [kind.inputs_of(row) for row in some]

    @property
    def tags(self) -> dict[str, str]:
        known = {key: value for key, value in self.record.tags.items() if key in ABOUT}
        seeds = {"pretrain_seed": str(self.pretrain_seed), "finetune_seed": str(self._seed)}
        return known | seeds | {key: f"{value:.6g}" for key, value in self.numbers.items()}

    @property
    def note(self) -> str:
        """What it is, and what the report says of it and of the baselines."""
        tags, numbers, scale = self.record.tags, self.numbers, scale_of(self.record.tags["metric"])
        score = f"{scale.shown(numbers['score'])} {tags['metric']}"
        if "score_low" in numbers:
            low, high = (scale.shown(numbers[f"score_{end}"]) for end in ("low", "high"))
            score += f" ({low} to {high})"
        lines = [
            f"`{tags['run']}` with `{tags['method']}`, {tags['label_budget']} labels: {score}, "
            f"the mean over its seeds ({tags['seeds']}). The weights are those of one trial: "
            f"pretraining seed {self.pretrain_seed}, fine-tuning seed {self._seed}."
        ]
        for row in rows(paths.REPORTS / "answer.csv"):
            if (row["task"], row["label_budget"]) == (self.task, tags["label_budget"]):
                lines.append(f"The report: {row['use']} {row['against']} {row['runs']}")
        return "\n\n".join(lines)

    @property
    def _seed(self) -> int:
        assert self.weights is not None, "asked of kept trials alone"
        return _seed(self.weights)


def _numbers(record: RunRecord) -> dict[str, float]:
    return {key: value for key, value, _ in record.points if key in NUMBERS}


def _seed(weights: Path) -> int:
    """The fine-tuning seed; the name of a kept trial is method-budget-seed."""
    return int(weights.stem.rpartition("-")[2])
