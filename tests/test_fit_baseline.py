import csv
import gzip
import json
from pathlib import Path

import pytest

from stages import fit_baseline
from stages.core.artifacts import write_json, write_jsonl
from stages.core.params import Params
from tests.synthetic_study import raw_params

WORDS = {"fruit": ["apple", "pear"], "tool": ["hammer", "saw"]}


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """A study with 24 classified sentences and as many tagged ones."""
    monkeypatch.chdir(tmp_path)
    raw = raw_params()
    raw["finetune"]["label_budgets"] = [4, "all"]
    for task, kind, metric in (
        ("type", "classification", "macro_f1"),
        ("tag", "tagging", "entity_f1"),
    ):
        examples = Path("data/tasks", task, "examples")
        examples.mkdir(parents=True)
        for split, num in (("train", 12), ("validation", 4), ("test", 8)):
            rows = [_row(kind, i, labelled=split != "test") for i in range(num)]
            write_jsonl(examples / f"{split}.jsonl", rows)
        write_json(examples / "task.json", {"kind": kind, "metric": metric})
    return Params(**raw)


def _row(kind: str, i: int, *, labelled: bool) -> dict:
    label = list(WORDS)[i % 2]
    word = WORDS[label][i // 2 % 2]
    if kind == "classification":
        row = {"id": str(i), "text": f"a {word}", "label": label}
    else:
        tags = ["O", "B-TOOL" if label == "tool" else "O"]
        row = {"id": str(i), "words": ["a", word], "tags": tags}
    return row if labelled else {k: v for k, v in row.items() if k not in ("label", "tags")}


def predictions(task: str) -> list[dict[str, str]]:
    path = Path("data/baselines", task, "predictions.csv.gz")
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_each_fitting_baseline_predicts_every_test_row_once_per_budget(params: Params) -> None:
    for task, fitting in (("type", ["majority", "tfidf"]), ("tag", ["majority", "window"])):
        fit_baseline.main(params, task)
        with Path("data/baselines", task, "trials.csv").open(newline="") as file:
            trials = [(row["run"], row["label_budget"]) for row in csv.DictReader(file)]
        assert trials == [(name, n) for name in fitting for n in ("4", "all")]
        found = [(row["run"], row["label_budget"], row["id"]) for row in predictions(task)]
        assert found == [(*trial, str(i)) for trial in trials for i in range(8)]


def test_what_is_learnt_is_predicted(params: Params) -> None:
    fit_baseline.main(params, "type")
    right = [list(WORDS)[i % 2] for i in range(8)]
    assert [r["prediction"] for r in predictions("type") if r["run"] == "tfidf"] == right * 2
    fit_baseline.main(params, "tag")
    tags = {r["prediction"] for r in predictions("tag") if r["run"] == "window"}
    assert tags == {"O O", "O B-TOOL"}


def test_a_budget_of_n_sees_the_first_n_labels_alone(params: Params) -> None:
    fit_baseline.main(params, "type")
    before = [row for row in predictions("type") if row["label_budget"] == "4"]
    train = Path("data/tasks/type/examples/train.jsonl")
    lines = train.read_text().splitlines()
    train.write_text("\n".join([*lines[:4], *(line.replace("tool", "new") for line in lines[4:])]))
    fit_baseline.main(params, "type")
    assert [row for row in predictions("type") if row["label_budget"] == "4"] == before
    assert "new" in {row["prediction"] for row in predictions("type")}


def test_twice_gives_the_same_bytes(params: Params) -> None:
    fit_baseline.main(params, "type")
    files = sorted(Path("data/baselines/type").iterdir())
    before = [path.read_bytes() for path in files]
    fit_baseline.main(params, "type")
    assert [path.read_bytes() for path in files] == before


def test_more_labels_than_there_are_is_refused(params: Params) -> None:
    raw = json.loads(params.model_dump_json())
    raw["finetune"]["label_budgets"] = [13]
    with pytest.raises(
        ValueError, match=r"finetune\.label_budgets: 13 labels, .*tasks\.type has 12"
    ):
        fit_baseline.main(Params(**raw), "type")
    assert not Path("data/baselines").exists()


def test_an_unknown_task_is_refused_with_the_known_ones(params: Params) -> None:
    with pytest.raises(ValueError, match="tasks: unknown 'tipe'; did you mean 'type'"):
        fit_baseline.main(params, "tipe")
