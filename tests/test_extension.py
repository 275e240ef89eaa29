"""A component of each kind is added by its own file and one entry in params.yaml: nothing else of
the project is edited."""

import csv
import json
import re
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from stages.core.artifacts import read_json, read_jsonl
from tests.new_components import FILES
from tests.project import SHORTER, Project, clone_of_working_tree

pytestmark = pytest.mark.slow

RUNS, METHODS = ("repeated", "autoencoded"), ("norms", "lora")
METRICS = "reports/metrics.json"
MODEL = {"name": "repeated_encoder", "d_model": 32, "num_layers": 1, "num_heads": 2, "d_ff": 64}
WORDS = ["dull", "slow", "fair", "bright", "superb", "film", "play", "scene", "plot", "actor"]


def ratings(number: int) -> str:
    """Returns texts and their ratings: how many words of a text are "superb"."""
    lines = []
    for i in range(number):
        rating, rest = i % 4, [WORDS[(i * k + k) % 10] for k in (1, 3, 7)]
        text = " ".join([f"number {i}", *rest, *["superb"] * rating])
        lines.append(f"{(' ' + text).count(' superb')}|{text.capitalize()} in all.")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The smoke study with new components in place of most of its own."""
    project = clone_of_working_tree(tmp_path_factory.mktemp("extended") / "project", SHORTER)
    for name, text in FILES.items():
        (project.folder / name).write_text(text.lstrip())
    (project.folder / "ratings.txt").write_text(ratings(900))
    source = {"name": "lines", "path": "ratings.txt"}
    smoke = project.params()
    run, full = smoke["pretrain"]["runs"]["encoder_mlm"], smoke["finetune"]["methods"]["full"]
    training = full["training"] | {"num_epochs": 1}
    changed = {
        "corpora.prose.source": source,
        "tokenizers.unigram.vocab_size": 450,
        "samples": {"num_train": 60, "num_validation": 20, "num_test": 30},
        "tasks": {"rate": {"task": "star_rating", "source": source}},
        "pretrain.matched": "parameters",
        "pretrain.runs": {
            "repeated": run | {"model": MODEL},
            "autoencoded": run | {"objective": "autoencoding"},
        },
        "baselines": ["average"],
        "finetune.methods": {name: {"training": training} for name in METHODS},
        "finetune.seeds": [1],
    }
    for path, value in changed.items():
        project.edit(*path.split("."), value=value)
    return project


@pytest.fixture(scope="module")
def plan_before(project: Project) -> dict:
    return json.loads(project.run("python", "-m", "stages.commands.plan", "--json"))


@pytest.fixture(scope="module")
def study(project: Project, plan_before: dict) -> Path:
    project.repro()
    return project.folder


@pytest.fixture(scope="module")
def table(project: Project) -> list[str]:
    """The table of the tasks, architectures and methods that fit each other."""
    return project.run("python", "-m", "stages.commands.fits").splitlines()


def test_plan_knows_new_components_and_their_costs(plan_before: dict) -> None:
    stages = {"prepare_task@rate", "pretrain@repeated", "pretrain@autoencoded", "finetune@rate"}
    assert stages <= {*plan_before["stages"]}
    costs = {(cost["run"], cost["method"]): cost["flops"] for cost in plan_before["finetune"]}
    assert costs.keys() == {(run, name) for run in RUNS for name in METHODS}
    assert all(costs.values())


def test_task_has_the_rows_and_the_metric_of_its_kind(study: Path) -> None:
    about = read_json(study / "data/tasks/rate/examples/task.json")
    assert (about["kind"], about["metric"]) == ("rating", "mean_distance")
    rows = read_jsonl(study / "data/tasks/rate/examples/test.jsonl")
    assert {frozenset(row) for row in rows} == {frozenset({"id", "text"})}


def test_report_shows_new_components_and_their_metric(study: Path) -> None:
    assert {"average", *RUNS} <= {*re.findall(r"\w+", json.dumps(read_json(study / METRICS)))}
    text = (study / "reports/comparison.md").read_text()
    for name in ("rate", "average", "mean distance"):
        assert name in text, name
    page = (study / "reports/index.html").read_text()
    assert "autoencoded" in page and "norms" in page
    with (study / "reports/trials.csv").open() as file:
        trials = [row for row in csv.DictReader(file) if row["run"] != "average"]
    models = {(row["run"], row["architecture"], row["objective"]) for row in trials}
    assert models == {
        ("repeated", "repeated_encoder", "mlm"),
        ("autoencoded", "encoder", "autoencoding"),
    }
    assert {row["method"] for row in trials} == {*METHODS}
    assert all(int(row["finetune_flops"]) > 0 for row in trials)


def test_predict_with_new_components(project: Project, study: Path) -> None:
    (study / "new.csv").write_text("text\nA superb film.\nA dull plot.\n")
    command = "python -m stages.commands.predict repeated rate new.csv --method norms"
    output = project.run(*command.split())
    lines = [line for line in output.splitlines() if line[:1] == "{"]
    assert [float(json.loads(line)["prediction"]) > -9 for line in lines] == [True, True]


def test_fits_lists_the_new_task(table: list[str]) -> None:
    text = "\n".join(table)
    assert "| star_rating | encoder |" in text and "| star_rating, as text |" not in text


def test_fits_lists_the_new_architecture_and_method(table: list[str]) -> None:
    head = [cell.strip() for cell in table[0].split("|")]
    (row,) = [line.split("|") for line in table if "| classification | repeated_encoder |" in line]
    fits = {name: cell.strip() for name, cell in zip(head, row, strict=True)}
    assert fits["norms"] == fits["lora"] == "yes" and fits["in_context"] == "-"


def test_plans_have_the_code_of_new_components_alone(project: Project, study: Path) -> None:
    assert project.repro() == []
    code = read_json(study / "data/plans/prepare_task/rate.json")["code"]
    assert {"kinds/rating.py", "tasks/star_rating.py", "sources/lines.py"} <= code.keys()
    assert "kinds/tagging.py" not in code and "sources/files.py" not in code


def test_resolve_names_the_place_of_a_mistake_in_a_component(project: Project, study: Path) -> None:
    """The source lacks its setting ``path``, the task its kind."""
    source, task = study / "stages/sources/lines.py", study / "stages/tasks/star_rating.py"
    source.write_text(FILES["stages/sources/lines.py"].replace("path: str", "file: str"))
    task.write_text(FILES["stages/tasks/star_rating.py"].replace("kind = RatedText()", "pass"))
    output = project.run("python", "-m", "stages.resolve", check=False)
    assert "tasks.rate.source.name: " in output and "`path`" in output
    assert "tasks.rate.task.name: " in output and "Traceback" not in output


KIND, OBJECTIVE = "stages/kinds/rating.py", "stages/objectives/autoencoding.py"
BASELINE, TWO = "stages/baselines/average.py", "must define one public class, not Other, Average"


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (KIND, "(Metric(", '("mean_distence", Metric(', "metrics: unknown 'mean_distence'"),
        (OBJECTIVE, "def collate", "def pack", "Autoencoding must define collate; the contract is"),
        (OBJECTIVE, "weight: float", "weight", "the setting weight of Autoencoding needs a type"),
        (BASELINE, "class Average", "class Other:\n    pass\n\n\nclass Average", TWO),
        (
            BASELINE,
            "    fits =",
            "    suits =",
            "Average must set fits; the contract is in",
        ),
        (BASELINE, '("rating",)', '"rating"', "fits must be a tuple such as ('rating',), not"),
    ],
)
def test_resolve_names_the_file_that_breaks_its_contract(
    project: Project, file: str, old: str, new: str, message: str
) -> None:
    assert old in FILES[file]
    for name, text in FILES.items():
        path = project.folder / name
        path.write_text(text.replace(old, new) if name == file else text)
        # Python keeps the old code of a file that is rewritten within a second at equal size.
        Path(cache_from_source(str(path))).unlink(missing_ok=True)
    output = project.run("python", "-m", "stages.resolve", check=False)
    assert f"{file}: {message}" in output and "Traceback" not in output, output
    assert "this size" not in output and output.count("\n") == 1
