import csv
import gzip
import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest

from stages import fit_baseline
from stages.baselines._baseline import BASELINES, Baseline, Score
from stages.core import paths
from stages.core.artifacts import read_jsonl, write_json, write_jsonl
from stages.core.params import Params
from stages.evaluation.records import TrialRecord, read
from stages.kinds._cells import Row
from stages.kinds._kind import KINDS, labelled_rows
from tests.synthetic_study import raw_params

SEEDS = {"pretrain": [1, 7], "finetune": [1, 2, 3]}
DRAWS = [*product(*SEEDS.values())]
WORDS = {"fruit": ["apple", "pear"], "tool": ["hammer", "saw"]}


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """A study with 24 classified sentences and as many tagged ones."""
    monkeypatch.chdir(tmp_path)
    raw = raw_params()
    raw["finetune"] |= {"label_budgets": [4, "all"], "seeds": SEEDS["finetune"]}
    Path("data").mkdir()
    write_json(paths.SEEDS, {"pretrain_seeds": SEEDS["pretrain"]})
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


def of_trials(task: str) -> list[tuple[str, str, int, int]]:
    found = read(Path("data/baselines", task, "trials.csv"), TrialRecord)
    return [(t.run, t.label_budget, t.pretrain_seed, t.finetune_seed) for t in found]


def test_each_fitting_baseline_predicts_every_test_row_once_per_draw(params: Params) -> None:
    """And where all rows are labelled there is one draw."""
    for task, fitting in (("type", ["majority", "tfidf"]), ("tag", ["majority", "window"])):
        fit_baseline.main(params, task)
        draws = [("4", *draw) for draw in DRAWS] + [("all", *DRAWS[0])]
        trials = [(name, *draw) for name in fitting for draw in draws]
        assert of_trials(task) == trials
        found = [
            (r["run"], r["label_budget"], int(r["pretrain_seed"]), int(r["finetune_seed"]), r["id"])
            for r in predictions(task)
        ]
        assert found == [(*trial, str(i)) for trial in trials for i in range(8)]


def test_what_is_learnt_is_predicted(params: Params) -> None:
    fit_baseline.main(params, "type")
    right = [list(WORDS)[i % 2] for i in range(8)]
    found = [r for r in predictions("type") if (r["run"], r["label_budget"]) == ("tfidf", "all")]
    assert [r["prediction"] for r in found] == right
    fit_baseline.main(params, "tag")
    tags = {r["prediction"] for r in predictions("tag") if r["run"] == "window"}
    assert tags == {"O O", "O B-TOOL"}


@pytest.fixture
def learnt(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The ids of the rows that each fit learns from."""
    found = list[list[str]]()

    class Recorder(Baseline):
        fits = ("classification",)

        def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
            found.append([row["id"] for row in train])

        def predict(self, rows: Sequence[Row]) -> list[str]:
            return ["fruit" for _ in rows]

    monkeypatch.setattr(BASELINES, "build", lambda component, where: Recorder())
    return found


def test_it_learns_from_the_rows_that_trials_of_the_same_seeds_learn_from(params, learnt) -> None:
    fit_baseline.main(params.model_copy(update={"baselines": {"own": {"name": "own"}}}), "type")
    train = read_jsonl(Path("data/tasks/type/examples/train.jsonl"))
    assert learnt == [
        [
            row["id"]
            for row in labelled_rows(
                train,
                budget,
                KINDS["classification"],
                pretrain_seed=pretrain_seed,
                finetune_seed=finetune_seed,
                task="type",
            )
        ]
        for _, budget, pretrain_seed, finetune_seed in of_trials("type")
    ]
    assert len({*map(tuple, learnt[:-1])}) > 3 and learnt[-1] == [row["id"] for row in train]


def test_which_runs_there_are_is_read_from_the_record_of_their_seeds(params: Params) -> None:
    """On which the stage depends, and not on params.yaml."""
    write_json(paths.SEEDS, {"pretrain_seeds": [5]})
    fit_baseline.main(params, "type")
    assert {trial[2] for trial in of_trials("type")} == {5}


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


@pytest.mark.parametrize(
    "without, given",
    [("support_vector_machines", "a probability"), ("logistic_regressions", "none")],
)
def test_predictions_have_the_probability_that_the_model_gives_them(
    without: str, given: str, params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among the models of ``tfidf`` logistic regression gives a probability, a support vector
    machine does not."""
    monkeypatch.setattr(f"stages.baselines.tfidf.{without}", lambda C: [])
    fit_baseline.main(params, "type")
    probabilities = {
        run: {row["probability"] for row in predictions("type") if row["run"] == run}
        for run in ("majority", "tfidf")
    }
    assert probabilities["majority"] == {""}
    if given == "none":
        assert probabilities["tfidf"] == {""}
    else:
        assert all(0.5 <= float(p) <= 1 for p in probabilities["tfidf"])
