"""A study of few rows says that no interval covers the draw of its splits."""

from dataclasses import replace

import pytest

from stages.core.artifacts import Json
from stages.findings.drawn_once import FEW_ROWS, drawn_once
from stages.findings.results import Results
from stages.reporting.words.caveats import caveats

FILES: Json = {"name": "files", "path": "reviews.csv"}
HUB: Json = {"name": "hub", "path": "requirements.lock", "dataset": "a/b"}


@pytest.mark.parametrize(
    ("source", "is_drawn"),
    [
        (FILES, True),
        (FILES | {"group": "user", "split_seed": 3}, True),
        (FILES | {"train": "a.csv", "validation": "b.csv"}, True),
        (FILES | {"train": "a.csv", "test": "b.csv"}, False),
        (FILES | {"split": "fold"}, False),
        (FILES | {"time": "day"}, False),
        (HUB, False),
        (HUB | {"validation": "none", "test": "none"}, True),
        ({"name": "installed_docs", "path": "requirements.lock", "packages": ["numpy"]}, True),
    ],
)
def test_drawn_once_has_tasks_of_few_rows_with_a_random_test(source: Json, is_drawn: bool) -> None:
    def rows(train: int) -> dict[str, Json]:
        return {
            "own": {
                "num_examples": {"train": train, "validation": 100, "test": 100},
                "split_seeds": [],
            }
        }

    assert drawn_once({"own": source}, rows(799)) == ({"own": FEW_ROWS - 1} if is_drawn else {})
    assert drawn_once({"own": source}, rows(800)) == {}
    redrawn = {"own": rows(799)["own"] | {"split_seeds": [1, 2, 3]}}
    assert drawn_once({"own": source}, redrawn) == {}


def test_caveats_tell_what_intervals_do_not_cover_of_splits(results: Results) -> None:
    plain = caveats(results)
    assert not any("drawn once" in text or "latest" in text for text in plain)
    (task, about), *_ = results.tasks.items()
    few = about | {"num_examples": {"train": 300, "validation": 40, "test": 50}}
    timed = about | {"times": {"train": ["2019", "2021"], "test": ["2022", "2023"]}}
    (caveat,) = [
        t for t in caveats(replace(results, tasks=results.tasks | {task: few})) if "drawn once" in t
    ]
    assert f"`{task}` 390" in caveat and "split_per_seed" in caveat
    redrawn = few | {"split_seeds": [1, 2, 3]}
    texts = caveats(replace(results, tasks=results.tasks | {task: redrawn}))
    assert not any("drawn once" in text for text in texts)
    (caveat,) = [text for text in texts if "drew train" in text]
    assert f"`{task}` 3" in caveat and "1/J + test rows / train rows" in caveat
    (caveat,) = [
        t for t in caveats(replace(results, tasks=results.tasks | {task: timed})) if "latest" in t
    ]
    assert f"`{task}` are the latest, from 2022 to 2023" in caveat
