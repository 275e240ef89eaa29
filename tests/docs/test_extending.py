"""The examples of docs/extending.md are components."""

import ast
import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.project import clone_of_working_tree

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
EXAMPLES = dict(
    re.findall(r"^`(stages/\w+/\w+\.py)`:\n\n```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
)
FOLDERS = (
    "objectives",
    "models",
    "kinds",
    "tasks",
    "methods",
    "sources",
    "baselines",
    "optimizers",
)


def test_extending_has_an_example_for_each_folder_of_components() -> None:
    assert sorted(path.split("/")[1] for path in EXAMPLES) == sorted(FOLDERS)


@pytest.mark.parametrize("path", EXAMPLES)
def test_extending_examples_are_new_files_with_one_public_class(path: str) -> None:
    defined = [node for node in ast.parse(EXAMPLES[path]).body if isinstance(node, ast.ClassDef)]
    assert len([node for node in defined if not node.name.startswith("_")]) == 1


MAIL = "From a@b Mon Jan  1 00:00:00 2024\nSubject: a list\n\nIt holds a text. And a second one.\n"


def test_extending_examples_are_settings_of_a_study(tmp_path: Path) -> None:
    """The root stage accepts an entry for each file of the page and refuses a misspelt setting
    of each."""
    project = clone_of_working_tree(tmp_path / "clone")
    for file, text in EXAMPLES.items():
        (project.folder / file).write_text(text)
    (project.folder / "reviews.csv").write_text("text,stars\na fine film,4.5\ntoo long,2\n")
    (project.folder / "archive.mbox").write_text(MAIL)
    params = project.params()
    decoder = params["pretrain"]["runs"]["decoder_causal"]
    full = params["finetune"]["methods"]["full"]
    section = params["tasks"]["section"]

    def edit(**misspelt: int) -> None:
        skip_one = {"name": "skip_one", "distance": 3, **misspelt}
        averaging = {"name": "averaging", "d_model": 64, **misspelt}
        source = {"name": "mailbox", "path": "archive.mbox", **misspelt}
        stars = {
            "task": {"name": "star_rating", **misspelt},
            "source": {"name": "files", "path": "reviews.csv", "rating": "stars"},
        }
        for path, value in {
            "pretrain.runs.skipping": decoder | {"objective": skip_one},
            "pretrain.runs.signs": decoder
            | {"training": {"optimizer": {"name": "lion", **misspelt}, "lr": 1e-4}},
            "pretrain.runs.bag": {"model": averaging, "objective": "mlm"},
            "finetune.methods.top": full | {"method": {"name": "top_block", **misspelt}},
            "tasks.stars": section | stars,
            "corpora.mails": {"source": source, "max_tokens": "all"}
            | {"decontaminate_against": "none"},
            "baselines": ["majority", "naive_bayes"],
            **({"baselines": {"naive_bayes": misspelt}} if misspelt else {}),
        }.items():
            project.edit(*path.split("."), value=value)

    edit()
    assert project.run("python", "-m", "stages.resolve") == ""
    edit(distence=3)
    faults = project.run("python", "-m", "stages.resolve", check=False)
    assert set(re.findall(r"([\w.]+)\.distence:", faults)) == {
        "baselines.naive_bayes",
        "corpora.mails.source",
        "finetune.methods.top.method",
        "pretrain.runs.bag.model",
        "pretrain.runs.signs.training.optimizer",
        "pretrain.runs.skipping.objective",
        "tasks.stars.task",
    }
