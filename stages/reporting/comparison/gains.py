"""What pretraining gained over from scratch, and what each point of that gain cost."""

from dataclasses import asdict, dataclass

from stages.core.artifacts import Json
from stages.evaluation.metrics import merit, scale_of
from stages.reporting.comparison.contrasts import Contrast
from stages.reporting.comparison.pretraining_costs import Pretraining, pretraining
from stages.reporting.comparison.results import Results
from stages.reporting.number_format import DASH, compact, energy, seconds, three_digits
from stages.reporting.score_format import with_unit


@dataclass(frozen=True)
class Gain:
    """A pretrained run against the same model from scratch, and what its pretraining took."""

    contrast: Contrast
    pretraining: Pretraining

    @property
    def place(self) -> tuple[str, str, str, str]:
        cell = self.contrast.a
        return cell.group, cell.task, cell.method, cell.label_budget

    @property
    def gained(self) -> float | None:
        """In the unit of the metric; None unless it is a significant gain."""
        a, b, metric = self.contrast.a, self.contrast.b, self.contrast.metric
        gained = merit(metric, a.mean.value) - merit(metric, b.mean.value)
        if not self.contrast.significant or gained <= 0:
            return None
        return scale_of(metric).factor * gained

    @property
    def per_gain(self) -> Pretraining:
        """The cost of one point (or other unit of the metric)."""
        gained = self.gained
        shares = {
            key: None if value is None or gained is None else value / gained
            for key, value in asdict(self.pretraining).items()
        }
        return Pretraining(**shares)

    def row(self) -> Json:
        """The columns of reports/costs.csv."""
        each = self.per_gain
        return {
            "gained": three_digits(self.gained),
            "flops_per_gain": three_digits(each.flops),
            "wall_time_s_per_gain": three_digits(each.wall_time_s),
            "energy_j_estimate_per_gain": three_digits(each.joules),
        }


def gains(results: Results) -> list[Gain]:
    """In the order of the contrasts."""
    compared = [contrast for contrast in results.contrasts if contrast.axis == "pretrained"]
    names = {contrast.a.group for contrast in compared}
    took = {
        group.name: pretraining(results, group) for group in results.groups if group.name in names
    }
    return [Gain(contrast, took[contrast.a.group]) for contrast in compared]


def gain_rows(results: Results) -> list[dict[str, str]]:
    """The table of the page; costs only where the gain is significant."""
    found = []
    for gain in gains(results):
        contrast, each, gained = gain.contrast, gain.per_gain, gain.gained
        shown = with_unit(contrast.effect.value, contrast.metric)
        row = {
            "run": contrast.a.group,
            "on": f"{contrast.task}, {contrast.label_budget} labels",
            "method": contrast.method,
            "gain over from scratch": shown if contrast.significant else contrast.verdict,
        }
        for key, value in (
            ("FLOPs per point", compact(each.flops)),
            ("time per point", seconds(each.wall_time_s)),
            ("energy per point, estimate", energy(each.joules)),
        ):
            row[key] = DASH if gained is None else value
        found.append(row)
    return found
