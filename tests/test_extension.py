"""A component of each kind is added by its own file and one entry in params.yaml: nothing else of
the project is edited. The files are the examples of docs/extending.md."""

import csv
import mailbox
import re
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from tests.docs.test_extending import EXAMPLES
from tests.project import Project, tiny_study
from tests.small import documents

pytestmark = pytest.mark.slow

MODEL = "stages/models/small_gpt.py"
GPT2 = "stages/models/gpt2.py"  # the page shows a file of the project, which gets another name here
FILES = {MODEL if path == GPT2 else path: text for path, text in EXAMPLES.items()}
RUNS = ("encoder_mlm", "skipping")


def write_mails(path: Path) -> None:
    """Writes a message for each topic of the language reference."""
    box = mailbox.mbox(str(path))
    for lines in documents():
        box.add("Subject: a topic\n\n" + "\n".join(lines).encode("ascii", "ignore").decode())
    box.close()


def with_components(project: Project, **misspelt: int) -> None:
    """Adds an entry for each file to params.yaml, with ``misspelt`` among its settings."""
    model = {"name": "small_gpt", "d_model": 32, "num_layers": 1, "num_heads": 2}
    training = {"num_epochs": 1, "batch_examples": 16, "lr": 1e-3}
    source = {"name": "files", "path": "reviews.csv", "rating": "stars"}
    for path, value in {
        "corpora.mails": {
            "source": {"name": "mailbox", "path": "archive.mbox", **misspelt},
            "max_tokens": "all",
            "decontaminate_against": "none",
        },
        "tasks.stars": {"task": {"name": "star_rating", **misspelt}, "source": source},
        "models": {
            "encoder_mlm": project.params()["models"]["encoder_mlm"]
            | {"training": {"optimizer": {"name": "lion", **misspelt}, "lr": 1e-4}},
            "skipping": {
                "corpus": "mails",
                "architecture": model | misspelt,
                "objective": {"name": "skip_one", "distance": 3, **misspelt},
            },
        },
        "baselines": {"naive_bayes": misspelt},
        "finetune.methods": {
            "top": {"method": {"name": "top_block", **misspelt}, "training": training}
        },
    }.items():
        project.edit(*path.split("."), value=value)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The tiny study with new components in place of most of its own."""
    project = tiny_study(tmp_path_factory.mktemp("extended") / "project")
    for name, text in FILES.items():
        (project.folder / name).write_text(text)
    reviews = [f"{'very ' * (i % 4)}good number {i},{i % 4}.5" for i in range(300)]
    (project.folder / "reviews.csv").write_text("\n".join(["text,stars", *reviews]))
    write_mails(project.folder / "archive.mbox")
    with_components(project)
    return project


@pytest.fixture(scope="module")
def study(project: Project) -> Path:
    stages = {"prepare_corpus@mails", "prepare_task@stars", "pretrain@skipping", "finetune@stars"}
    assert stages <= {*project.pending()}
    project.repro()
    return project.folder


def test_report_shows_new_components_and_their_metric(study: Path) -> None:
    text = (study / "reports/comparison.md").read_text()
    assert all(name in text for name in ("stars", "naive bayes"))
    assert "skipping" in (study / "reports/index.html").read_text()
    with (study / "reports/trials.csv").open() as file:
        trials = [row for row in csv.DictReader(file) if row["model"] in RUNS]
    assert {(row["model"], row["task"], row["method"]) for row in trials} == {
        (run, task, "top") for run in RUNS for task in ("loudness", "stars")
    }
    (skipping,) = {(r["architecture"], r["objective"]) for r in trials if r["model"] == "skipping"}
    assert skipping == ("decoder", "skip_one")
    assert {r["metric"] for r in trials if r["task"] == "stars"} == {"mean_absolute_error"}
    assert all(int(row["finetune_flops"]) > 0 for row in trials)


def test_predict_with_new_components(project: Project, study: Path) -> None:
    (study / "new.csv").write_text("text\nvery very good\ngood\n")
    command = "python -m stages.commands.predict --model skipping --task stars new.csv --method top"
    lines = project.run(*command.split()).splitlines()
    start = lines.index("text,prediction,probability") + 1
    cells = [line.split(",") for line in lines[start : start + 2]]
    assert [(text, float(number) > -9) for text, number, _ in cells] == [
        ("very very good", True),
        ("good", True),
    ]


def test_resolve_names_a_wrong_setting_of_each_new_component(project: Project) -> None:
    with_components(project, distence=3)
    faults = project.run("python", "-m", "stages.resolve", check=False)
    assert set(re.findall(r"([\w.]+)\.distence:", faults)) == {
        "baselines.naive_bayes",
        "corpora.mails.source",
        "finetune.methods.top.method",
        "models.skipping.architecture",
        "models.skipping.objective",
        "models.encoder_mlm.training.optimizer",
        "tasks.stars.task",
    }
    with_components(project)


OBJECTIVE, BASELINE = "stages/objectives/skip_one.py", "stages/baselines/naive_bayes.py"
TWO = "must define one public class, not Other, NaiveBayes"


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (OBJECTIVE, "def collate", "def pack", "SkipOne must define collate; the contract is"),
        (BASELINE, "class NaiveBayes", "class Other:\n    pass\n\n\nclass NaiveBayes", TWO),
    ],
)
def test_resolve_names_the_file_that_breaks_its_contract(
    project: Project, file: str, old: str, new: str, message: str
) -> None:
    path = project.folder / file
    path.write_text(FILES[file].replace(old, new))
    # Python keeps the old code of a file that is rewritten within a second at equal size.
    Path(cache_from_source(str(path))).unlink(missing_ok=True)
    output = project.run("python", "-m", "stages.resolve", check=False)
    path.write_text(FILES[file])
    Path(cache_from_source(str(path))).unlink(missing_ok=True)
    assert f"{file}: {message}" in output and "Traceback" not in output, output
