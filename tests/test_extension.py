"""A component of each kind is added by its own file and one entry in params.yaml: nothing else of
the project is edited. The files are the examples of docs/extending.md. In the same study each
fine-tuning seed draws the splits of the new task."""

import csv
import gzip
import mailbox
import re
from collections import defaultdict
from importlib.util import cache_from_source
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from stages.core.artifacts import read_json, read_jsonl
from tests.docs.test_pages import EXAMPLES
from tests.project import Project, tiny_study
from tests.small import documents

pytestmark = pytest.mark.slow

MODEL = "stages/models/small_gpt.py"
GPT2 = "stages/models/gpt2.py"  # the page shows a file of the project, which gets another name here
FILES = {MODEL if path == GPT2 else path: text for path, text in EXAMPLES.items()}
RUNS = ("encoder_mlm", "skipping", "scratch")
SEEDS = (1, 2)


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
    drawn = dict.fromkeys(("num_train", "num_validation", "num_test"), "all")
    stars = {"task": {"name": "star_rating", **misspelt}, "source": source}
    for path, value in {
        "corpora.mails": {
            "source": {"name": "mailbox", "path": "archive.mbox", **misspelt},
            "max_tokens": "all",
            "decontaminate_against": "none",
        },
        "tasks.stars": stars | drawn | {"split_per_seed": True},
        "models": {
            "encoder_mlm": project.params()["models"]["encoder_mlm"]
            | {"training": {"optimizer": {"name": "lion", **misspelt}, "lr": 1e-4}},
            "skipping": {
                "corpus": "mails",
                "architecture": model | misspelt,
                "objective": {"name": "skip_one", "distance": 3, **misspelt},
            },
            "scratch": {"architecture": model, "objective": "none"},
        },
        "baselines": {"naive_bayes": misspelt},
        "finetune.seeds": [*SEEDS],
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


def table(study: Path, path: str) -> list[dict[str, str]]:
    file = study / path
    text = gzip.decompress(file.read_bytes()).decode() if path.endswith(".gz") else file.read_text()
    return [*csv.DictReader(text.splitlines())]


def test_report_shows_new_components_and_their_metric(study: Path) -> None:
    text = (study / "reports/comparison.md").read_text()
    assert all(name in text for name in ("stars", "naive bayes"))
    assert "skipping" in (study / "reports/index.html").read_text()
    trials = [row for row in table(study, "reports/trials.csv") if row["model"] in RUNS]
    assert {(row["model"], row["task"], row["method"]) for row in trials} == {
        (run, task, "top") for run in RUNS for task in ("loudness", "stars")
    }
    (skipping,) = {(r["architecture"], r["objective"]) for r in trials if r["model"] == "skipping"}
    assert skipping == ("decoder", "skip_one")
    assert {r["metric"] for r in trials if r["task"] == "stars"} == {"mean_absolute_error"}
    assert all(int(row["finetune_flops"]) > 0 for row in trials)


def test_each_trial_answers_the_test_rows_that_its_seed_draws(study: Path) -> None:
    """Differences have the variance of overlapping draws: the resampled t test of Nadeau and Bengio
    is calculated by hand, for one pretraining seed."""
    examples, drawn = study / "data/tasks/stars/examples", dict[str, set[str]]()
    for split in ("train", "validation", "test"):
        rows = read_jsonl(examples / f"{split}.jsonl")
        for seed in SEEDS:
            drawn[f"{split} {seed}"] = {row["id"] for row in rows if seed in row["draws"]}
    answered = defaultdict[str, set[str]](set)
    for row in table(study, "data/finetuned/stars/skipping/predictions.csv.gz"):
        answered[row["finetune_seed"]].add(row["id"])
    assert answered == {str(seed): drawn[f"test {seed}"] for seed in SEEDS}

    scores = defaultdict[str, dict[str, float]](dict)
    for row in table(study, "reports/trials.csv"):
        if row["task"] == "stars":
            scores[row["model"]][row["finetune_seed"]] = float(row["value"])
    contrasts = table(study, "reports/contrasts.csv")
    (row,) = [r for r in contrasts if (r["task"], r["axis"]) == ("stars", "pretrained")]
    a, b = scores[row["model_a"]], scores[row["model_b"]]
    differences = np.array([b[seed] - a[seed] for seed in a])
    numbers = read_json(examples / "task.json")["num_examples"]
    variance = differences.var(ddof=1) * (1 / len(SEEDS) + numbers["test"] / numbers["train"])
    half = stats.t(len(SEEDS) - 1).ppf(0.975) * variance**0.5
    assert row["test"] == "corrected resampled t"
    assert abs(float(row["effect"])) == pytest.approx(abs(differences.mean()), abs=1e-5)
    assert float(row["high"]) - float(row["effect"]) == pytest.approx(half, rel=1e-3)


def test_predict_with_new_components(project: Project, study: Path) -> None:
    (study / "new.csv").write_text("text\nvery very good\ngood\n")
    command = "python -m stages.commands.predict --model skipping --task stars new.csv --method top"
    lines = project.run(*command.split()).splitlines()
    start = lines.index("text,prediction,probability") + 1
    cells = [line.split(",") for line in lines[start : start + 2]]
    assert [text for text, number, _ in cells if float(number) > -9] == ["very very good", "good"]


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
    path, outputs = project.folder / file, list[str]()
    for source in (FILES[file].replace(old, new), FILES[file]):
        path.write_text(source)
        # Python keeps the old code of a file that is rewritten within a second at equal size.
        Path(cache_from_source(str(path))).unlink(missing_ok=True)
        outputs.append(project.run("python", "-m", "stages.resolve", check=False))
    assert f"{file}: {message}" in outputs[0] and "Traceback" not in outputs[0], outputs
    assert file not in outputs[1]
