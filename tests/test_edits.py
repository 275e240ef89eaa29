"""Which trials an edit trains: real DVC on a real git repository, with a task of one's own."""

import json
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.project import Project, clone_of_working_tree
from tests.small import VOCAB_SIZE, documents

pytestmark = pytest.mark.slow

RUN, TASK = "encoder_scratch", "loudness"
ROWS = [
    {"text": f"{word} number {i}", "label": label}
    for i in range(60)
    for word, label in (("a quiet", "calm"), ("A LOUD", "noisy"))
]
SPLITS = {"train": ROWS[:80], "validation": ROWS[80:100], "test": ROWS[100:]}
TUNED = ["finetune", "evaluate"]


class Edit(NamedTuple):
    name: str
    make: Callable[[Project], None]
    trials: int  # that train
    stages: list[str]  # of TUNED, that run


def setting(*path: str, value: object) -> Callable[[Project], None]:
    return lambda project: project.edit(*path, value=value)


def text(name: str, old: str, new: str) -> Callable[[Project], None]:
    def edit(project: Project) -> None:
        file = project.folder / name
        source = file.read_text()
        assert old in source
        file.write_text(source.replace(old, new))

    return edit


def add_bitfit(project: Project) -> None:
    full = project.params()["finetune"]["methods"]["full"]
    method = full | {"method": {"name": "bitfit"}}
    project.edit("finetune", "methods", "bitfit", value=method)


def fewer(project: Project) -> None:
    project.edit("finetune", "label_budgets", value=[32])
    project.edit("finetune", "seeds", value=[1, 2])


TEST = "rows/test.jsonl"
BITFIT = "stages/methods/bitfit.py"
ESTIMATES = "stages/evaluation/transferability.py"
# Each goes on from the one before. The study begins with full and linear_probe, one label budget
# and two seeds.
EDITS = [
    Edit("a seed", setting("finetune", "seeds", value=[1, 2, 3]), 2, TUNED),
    Edit("a method", add_bitfit, 3, TUNED),
    Edit("a budget", setting("finetune", "label_budgets", value=[16, 32]), 9, TUNED),
    Edit("fewer of both", fewer, 0, TUNED),
    Edit(
        "a test label", text(TEST, '55", "label": "noisy', '55", "label": "calm'), 0, ["evaluate"]
    ),
    Edit("a test text", text(TEST, "A LOUD number 56", "A LOUD 56"), 6, TUNED),
    Edit("a comment", text(BITFIT, "import torch\n", "import torch  # of course\n"), 0, []),
    # It changes no prediction, so nothing is evaluated.
    Edit("an operator", text(BITFIT, "[2].startswith", "[-1].startswith"), 2, ["finetune"]),
    Edit("an estimate", text(ESTIMATES, "True) / (number - 1)", "True) / number"), 0, TUNED),
    Edit("the arithmetic", setting("compute", "precision", value="bfloat16"), 6, TUNED),
]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Each edit goes on with it as the one before has left it."""
    project = clone_of_working_tree(tmp_path_factory.mktemp("study") / "project")
    (project.folder / "rows").mkdir()
    for name, rows in SPLITS.items():
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (project.folder / f"rows/{name}.jsonl").write_text(lines)
    params = project.params()
    files = {name: f"{name}.jsonl" for name in SPLITS}
    source = {"name": "files", "path": "rows", **files}
    task = params["tasks"]["section"] | {"source": source}
    task |= {f"num_{name}": len(rows) for name, rows in SPLITS.items()}
    topics = "\n\n".join("\n".join(lines) for lines in documents())
    (project.folder / "topics.txt").write_text(topics, encoding="utf-8")
    project.edit("corpora", "prose", "source", value={"name": "files", "path": "topics.txt"})
    project.edit("tokenizers", "unigram", "vocab_size", value=VOCAB_SIZE)
    project.edit("tasks", value={TASK: task})
    project.edit("pretrain", value={RUN: params["pretrain"][RUN]})
    project.edit("budget", value={"matched": "none", "reference": RUN})
    project.edit("baselines", value={"majority": {"name": "majority"}})
    project.edit("finetune", "label_budgets", value=[16])
    project.edit("compute", "precision", value="float32")
    project.repro(f"evaluate@{TASK}")
    return project


def stored(project: Project) -> set[str]:
    return {folder.name for folder in (project.folder / ".scratch/trials").iterdir()}


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_an_edit_trains_the_trials_that_are_new(study: Project, edit: Edit) -> None:
    before = stored(study)
    edit.make(study)
    ran = [stage.partition("@")[0] for stage in study.repro(f"evaluate@{TASK}")]
    assert len(stored(study) - before) == edit.trials
    assert [stage for stage in ran if stage in TUNED] == edit.stages
