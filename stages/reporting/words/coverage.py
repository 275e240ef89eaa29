"""What a run answers at a stated accuracy, in words."""

from stages.findings.coverage import STATED_ACCURACY, Coverage
from stages.reporting.formats import percent
from stages.reporting.words.names import counted


def covered(coverage: Coverage) -> str:
    """Returns a sentence about the coverage, and one about temperature scaling."""
    cell = coverage.cell
    stated = percent(STATED_ACCURACY)
    name = f"`{cell.task}`: `{cell.group}` with `{cell.method}`"
    rows = f"{coverage.num_validation:,} validation rows"
    if not coverage.num_reached:
        answers = f"{name} answers no text at {stated} accuracy: its {rows} do not reach that."
    elif coverage.accuracy is None:
        answers = (
            f"{name} answers no test row at {stated} accuracy: none is as likely as the "
            f"predictions that reach it on its {rows}."
        )
    else:
        share, right = (percent(round(x, 3)) for x in (coverage.share, coverage.accuracy))
        answers = (
            f"{name} answers {share} of texts at {stated} accuracy: of {coverage.num_test:,} test "
            f"rows in each of {counted(coverage.num_trials, 'trial')}, {right} of what is answered "
            f"is right. The lowest confidence that reaches {stated} was chosen on {rows}."
        )
        if missed := coverage.num_trials - coverage.num_reached:
            answers += f" {counted(missed, 'trial')} reached it at no threshold."
    return f"{answers} {_scaled(coverage)}"


def _scaled(coverage: Coverage) -> str:
    before = percent(round(coverage.calibration_error, 3))
    if coverage.calibrated_error is None:
        missing = counted(coverage.num_trials - coverage.num_fitted, "trial")
        return (
            f"Its calibration error is {before}; no temperature was fitted in {missing} "
            "(too few validation rows, or no minimum of the loss)."
        )
    after = percent(round(coverage.calibrated_error, 3))
    return f"A temperature changes its calibration error from {before} to {after}."
