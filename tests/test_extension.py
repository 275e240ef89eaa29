"""A task with a new kind of rows, a source and a baseline are each added by their own files and one
entry in params.yaml: nothing else of the project is edited."""

import json
from pathlib import Path

import pytest

from stages.core.artifacts import read_json, read_jsonl
from stages.core.params import read_yaml
from tests.project import Project, clone_of_working_tree

pytestmark = pytest.mark.slow

FILES = {
    "stages/kinds/rating.py": '''
from collections.abc import Sequence
from typing import Any

from stages.kinds._kind import Kind, Row
from stages.kinds._metric import Metric, Scale


def distance(gold: Sequence[str], predicted: Sequence[str]) -> float:
    pairs = zip(gold, predicted, strict=True)
    return sum(abs(float(a) - float(b)) for a, b in pairs) / len(gold)


class RatedText(Kind):
    """``text`` and ``rating``, a whole number."""

    inputs = ("text",)
    target = "rating"
    metrics = (Metric("mean_distance", distance, Scale("stars", 1, 2, lower_is_better=True)),)

    def read(self, column: str, value: Any, row: Row, place: str) -> Any:
        found = super().read(column, value, row, place)
        if column == "rating" and not found.isdecimal():
            raise ValueError(f"{place} must be a whole number, not {value!r}")
        return found
''',
    "stages/tasks/star_rating.py": """
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from stages.kinds.rating import RatedText
from stages.models._backbone import Backbone
from stages.models._heads import ModelWithHead, PooledHead
from stages.tasks._task import Example, Task
from stages.text.batch import IGNORE_INDEX, Batch


class StarRating(Task):
    kind = RatedText()

    def head(self, backbone: Backbone) -> PooledHead:
        return PooledHead(backbone.d_model, 1, dropout=0.0, pooling=backbone.pooling)

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> list[Example]:
        texts = self.tokenizer.encode([row["text"] for row in rows])
        return [
            Example(
                row["id"],
                np.array(self.tokenizer.wrap(ids)[: self.max_tokens]),
                np.array([int(row.get("rating", IGNORE_INDEX))]),
            )
            for row, ids in zip(rows, texts, strict=True)
        ]

    def targets(self, examples: list[Example]) -> dict[str, Any]:
        labels = torch.from_numpy(np.concatenate([example.labels for example in examples]))
        return {"labels": labels, "num_targets": {"star_rating": len(labels)}}

    def loss(self, model: ModelWithHead, batch: Batch) -> dict[str, tuple[float, Any]]:
        return {"star_rating": (1.0, (self._values(model, batch) - batch.labels).square().sum())}

    def flops(self, model: ModelWithHead, batch: Batch) -> int:
        return model.backbone.flops(batch) + model.head.flops(len(batch.input_ids))

    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Example]) -> list[str]:
        return [f"{value:.2f}" for value in self._values(model, batch).tolist()]

    def _values(self, model: ModelWithHead, batch: Batch) -> torch.Tensor:
        return model.head(model.backbone(batch), batch.document_ids).float()[:, 0]
""",
    "stages/sources/lines.py": '''
from collections.abc import Iterator
from pathlib import Path

from stages.kinds._kind import Kind
from stages.sources._source import Document, Labelled, Source, split_of


class Lines(Source):
    """``rating|text`` in each line of a file."""

    running_text = False

    def __init__(self, *, path: str) -> None:
        self.lines = Path(path).read_text().splitlines()

    def check(self, kind: Kind | None) -> None:
        if kind is not None and kind.target != "rating":
            raise ValueError(f"path: has ratings, not {kind.target}")

    def documents(self) -> Iterator[Document]:
        for line in self.lines:
            yield Document(line, split_of(line), [line.partition("|")[2]])

    def examples(self, kind: Kind) -> Iterator[Labelled]:
        for number, line in enumerate(self.lines):
            rating, _, text = line.partition("|")
            yield Labelled(str(number), split_of(line), {"text": text, "rating": rating})
''',
    "stages/baselines/average.py": """
from collections.abc import Sequence

from stages.baselines._baseline import Baseline, Row, Score


class Average(Baseline):
    fits = ("rating",)

    def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
        self.mean = sum(float(row["rating"]) for row in train) / len(train)

    def predict(self, rows: Sequence[Row]) -> list[str]:
        return [f"{self.mean:.2f}" for _ in rows]
""",
}
WORDS = ["dull", "slow", "fair", "bright", "superb", "film", "play", "scene", "plot", "actor"]


def ratings(number: int) -> str:
    """A rating is how many of a text's words are "superb"."""
    lines = []
    for i in range(number):
        rating, rest = i % 4, [WORDS[(i * k + k) % 10] for k in (1, 3, 7)]
        text = " ".join([f"number {i}", *rest, *["superb"] * rating])
        lines.append(f"{(' ' + text).count(' superb')}|{text.capitalize()} in all.")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The smoke study with new components in the place of its own tasks, source and baselines."""
    project = clone_of_working_tree(tmp_path_factory.mktemp("extended") / "project")
    for name, text in FILES.items():
        (project.folder / name).write_text(text.lstrip())
    (project.folder / "ratings.txt").write_text(ratings(900))
    source = {"name": "lines", "path": "ratings.txt"}
    params = read_yaml(project.folder / "params.yaml")
    project.edit("corpora", "prose", "source", value=source)
    project.edit("tokenizers", "unigram", "vocab_size", value=450)
    numbers = {"num_train": 60, "num_validation": 20, "num_test": 30, "seed": 1}
    rate = {"task": {"name": "star_rating"}, "source": source, **numbers}
    project.edit("tasks", value={"rate": rate})
    project.edit("baselines", value={"average": {"name": "average"}})
    runs = {key: params["pretrain"][key] for key in ("encoder_mlm", "encoder_scratch")}
    project.edit("pretrain", value=runs)
    project.edit("finetune", "methods", value={"full": params["finetune"]["methods"]["full"]})
    return project


@pytest.fixture(scope="module")
def plan_before(project: Project) -> dict:
    return json.loads(project.run("python", "-m", "stages.commands.plan", "--json"))


@pytest.fixture(scope="module")
def study(project: Project, plan_before: dict) -> Path:
    project.repro()
    return project.folder


def test_the_plan_knows_what_is_to_run(plan_before: dict) -> None:
    stages = json.dumps(plan_before)
    assert "prepare_task@rate" in stages and "finetune@rate" in stages


def test_the_task_has_the_rows_and_the_metric_of_its_kind(study: Path) -> None:
    about = read_json(study / "data/tasks/rate/examples/task.json")
    assert (about["kind"], about["metric"]) == ("rating", "mean_distance")
    rows = read_jsonl(study / "data/tasks/rate/examples/test.jsonl")
    assert {frozenset(row) for row in rows} == {frozenset({"id", "text"})}


def test_the_report_scores_it_as_its_kind_says(study: Path) -> None:
    cells = read_json(study / "reports/metrics.json")
    assert "average" in json.dumps(cells) and "encoder_mlm" in json.dumps(cells)
    text = (study / "reports/comparison.md").read_text()
    for name in ("rate", "average", "mean distance"):
        assert name in text, name


def test_new_texts_get_predictions(project: Project, study: Path) -> None:
    (study / "new.csv").write_text("text\nA superb film.\nA dull plot.\n")
    command = "python -m stages.commands.predict --run encoder_mlm --task rate new.csv"
    lines = [line for line in project.run(*command.split()).splitlines() if line[:1] == "{"]
    assert [float(json.loads(line)["prediction"]) > -9 for line in lines] == [True, True]


def test_it_stands_in_the_table_of_what_fits(project: Project, study: Path) -> None:
    table = project.run("python", "-m", "stages.commands.fits")
    assert "| star_rating | encoder |" in table and "| star_rating, as text |" not in table


def test_nothing_is_pending_and_the_others_code_is_as_it_was(project: Project, study: Path) -> None:
    assert project.repro() == []
    code = read_json(study / "data/code/prepare_task/rate.json")
    assert {"kinds/rating.py", "tasks/star_rating.py", "sources/lines.py"} <= code.keys()
    assert "kinds/tagging.py" not in code and "sources/files.py" not in code


def test_its_mistakes_are_refused_with_their_place(project: Project, study: Path) -> None:
    """A source without a path, a task without a kind."""
    source, task = study / "stages/sources/lines.py", study / "stages/tasks/star_rating.py"
    source.write_text(FILES["stages/sources/lines.py"].replace("path: str", "file: str"))
    task.write_text(FILES["stages/tasks/star_rating.py"].replace("kind = RatedText()", "pass"))
    output = project.run("python", "-m", "stages.check_params", check=False)
    assert "tasks.rate.source.name: " in output and "`path`" in output
    assert "tasks.rate.task.name: " in output and "Traceback" not in output
