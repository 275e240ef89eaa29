"""Kinds of labelled rows: which inputs count as equal, and the defaults of a kind."""

import subprocess
import sys

import pytest

from stages.evaluation.metrics import METRICS, metric_of, scale_of
from stages.tasks._metric import Metric
from stages.tasks._task import TASKS


def test_same_input_ignores_case_white_space_and_labels() -> None:
    texts, words = TASKS["classification"].same_input, TASKS["tagging"].same_input
    first = {"text": "A  cat\nsat", "label": "x"}
    assert texts(first) == texts({"text": "a cat sat", "label": "y"})
    assert texts(first) != texts({"text": "a cat", "text_pair": "sat", "label": "x"})
    assert words({"words": ["a", "b"], "tags": []}) != words({"words": ["a b"], "tags": []})


def test_metric_of_finds_every_metric_of_every_kind() -> None:
    own = [
        each.name for kind in TASKS.values() for each in kind.metrics if isinstance(each, Metric)
    ]
    assert len({*own}) == len(own) and not {*own} & METRICS.keys()
    for kind in TASKS.values():
        assert kind.metric_names and kind.right_if in (None, *kind.metric_names)
        for name in kind.metric_names:
            assert metric_of(name).name == name and scale_of(name).shown(0.5)


@pytest.mark.slow
def test_tasks_import_no_torch() -> None:
    code = (
        "import sys, stages.prepare_task, stages.evaluate, stages.fit_baseline\n"
        "from stages.tasks._task import TASKS\n"
        "print([kind.name for kind in TASKS.values()], 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{TASKS.names()} False\n"
