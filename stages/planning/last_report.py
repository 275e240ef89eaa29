"""The study of the last report, which params.yaml may have left behind."""

from stages.core import paths


def reported_study() -> str:
    """Raises FileNotFoundError without a report."""
    title = (paths.REPORTS / "comparison.md").read_text(encoding="utf-8").partition("\n")[0]
    return title.removeprefix("# ").replace("\\", "")  # as Markdown escapes it
