"""Tasks of few rows, whose results depend on a single draw of their splits."""

from collections.abc import Mapping

from stages.core.artifacts import Json
from stages.core.components import Settings
from stages.sources._source import SOURCES

FEW_ROWS = 1_000  # with fewer rows, results depend on the draw of the splits


def drawn_once(sources: Mapping[str, Settings], tasks: Mapping[str, Json]) -> dict[str, int]:
    """Returns the number of rows of each task that uses fewer than FEW_ROWS (after ``num_train``,
    ...) and whose test rows are drawn at random, once.

    ``sources`` are the settings of the tasks' sources, and ``tasks`` their ``task.json``.
    """
    rows_by_task = {}
    for task, about in tasks.items():
        entry, where = sources[task], f"tasks.{task}.source"
        number = sum(about["num_examples"].values())
        if number < FEW_ROWS and not about["split_seeds"]:
            source = SOURCES.find(str(entry["name"]), where=where)
            if source.draws_test(SOURCES.settings(entry, where=where)):
                rows_by_task[task] = number
    return rows_by_task
