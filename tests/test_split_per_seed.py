"""A study whose fine-tuning seeds each draw the splits of a task, by real DVC."""

import csv
import gzip
from collections import defaultdict

import numpy as np
import pytest
from scipy import stats

from stages.core.artifacts import read_json, read_jsonl
from tests.project import Project, tiny_study
from tests.smoke import DELETED
from tests.test_edits import AGAIN

pytestmark = pytest.mark.slow

SEEDS = [1, 2]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A study whose seeds each draw the splits of ``loudness``; those of ``again`` are given."""
    project = tiny_study(tmp_path_factory.mktemp("draws") / "project")
    rows = [
        f"{'a quiet' if i * i % 7 % 2 else 'A LOUD'} number {i},{'calm' if i % 2 else 'noisy'}"
        for i in range(150)
    ]
    (project.folder / "rows.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    project.edit("tasks", "again", value=AGAIN)
    drawn = dict.fromkeys(("num_train", "num_validation", "num_test"), "all")
    source = {"name": "files", "path": "rows.csv"}
    loudness = {"task": "classification", "source": source, "split_per_seed": True}
    project.edit("tasks", "loudness", value=loudness | drawn)
    project.edit("baselines", value={"tfidf": {"name": "tfidf"}, "llm": {"name": "predictions"}})
    answers = [f"{row.partition(',')[0]},noisy" for row in rows]
    predictions = "\n".join(["text,prediction", *answers]) + "\n"
    (project.folder / "predictions/loudness.csv").write_text(predictions)
    project.edit("finetune", "seeds", value=SEEDS)
    project.edit("finetune", "label_budgets", value=[16, "all"])
    project.edit("finetune", "methods", "linear_probe", value=DELETED)
    project.edit("finetune", "keep_weights", value="all")
    project.repro()
    return project


def table(project: Project, path: str) -> list[dict[str, str]]:
    file = project.folder / path
    text = gzip.decompress(file.read_bytes()).decode() if path.endswith(".gz") else file.read_text()
    return [*csv.DictReader(text.splitlines())]


def ids(project: Project, split: str, seed: int) -> set[str]:
    rows = read_jsonl(project.folder / f"data/tasks/loudness/examples/{split}.jsonl")
    return {row["id"] for row in rows if seed in row["draws"]}


def test_each_seed_draws_all_rows_into_three_splits(study: Project) -> None:
    for seed in SEEDS:
        parts = [ids(study, split, seed) for split in ("train", "validation", "test")]
        assert len(set.union(*parts)) == sum(map(len, parts)) == 150
    assert len({frozenset(ids(study, "test", seed)) for seed in SEEDS}) == len(SEEDS)
    about = read_json(study.folder / "data/tasks/loudness/examples/task.json")
    assert about["num_examples"]["test"] == min(len(ids(study, "test", s)) for s in SEEDS)
    rows = read_jsonl(study.folder / "data/tasks/loudness/examples/test.jsonl")
    assert not any("label" in row for row in rows)


def test_each_trial_answers_the_test_rows_of_its_seed(study: Project) -> None:
    for folder in ("finetuned/loudness/encoder_mlm", "baselines/loudness"):
        answered = defaultdict(set)
        for row in table(study, f"data/{folder}/predictions.csv.gz"):
            trial = row["model"], row["method"], row["label_budget"], row["finetune_seed"]
            answered[trial].add(row["id"])
        assert {trial[-1] for trial in answered} == {*map(str, SEEDS)}
        assert all(rows == ids(study, "test", int(t[-1])) for t, rows in answered.items())
    trials = table(study, "data/baselines/loudness/trials.csv")
    assert [(t["model"], t["label_budget"]) for t in trials] == [
        (run, budget) for run in ("tfidf", "llm") for budget in ("16", "all") for _ in SEEDS
    ]
    assert len(table(study, "data/baselines/again/trials.csv")) == len(SEEDS) + 1  # llm has none


def test_difference_has_the_variance_of_overlapping_draws(study: Project) -> None:
    """The resampled t test of Nadeau and Bengio is calculated by hand, for one pretraining seed."""
    scores = defaultdict(dict)
    for row in table(study, "reports/trials.csv"):
        if (row["task"], row["method"], row["label_budget"]) == ("loudness", "full", "16"):
            scores[row["model"]][row["finetune_seed"]] = float(row["value"])
    of = ("task", "axis", "method_a", "label_budget_a")
    sought = ["loudness", "pretrained", "full", "16"]
    contrasts = table(study, "reports/contrasts.csv")
    (row,) = [row for row in contrasts if [row[name] for name in of] == sought]
    a, b = scores[row["model_a"]], scores[row["model_b"]]
    differences = np.array([b[seed] - a[seed] for seed in a])
    numbers = read_json(study.folder / "data/tasks/loudness/examples/task.json")["num_examples"]
    variance = differences.var(ddof=1) * (1 / len(SEEDS) + numbers["test"] / numbers["train"])
    half = stats.t(len(SEEDS) - 1).ppf(0.975) * variance**0.5
    assert row["test"] == "corrected resampled t"
    assert float(row["effect"]) == pytest.approx(differences.mean(), abs=1e-5)
    assert float(row["high"]) - float(row["effect"]) == pytest.approx(half, rel=1e-3)
