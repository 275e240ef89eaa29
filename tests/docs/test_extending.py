"""The examples of docs/extending.md are components."""

import ast
import re
from pathlib import Path

import pytest

from stages.core.params import read_yaml
from tests.docs.pages import ROOT
from tests.project import clone_of_working_tree

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
EXAMPLES = dict(
    re.findall(r"^`(stages/\w+/\w+\.py)`:\n\n```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
)
FOLDERS = ("objectives", "models", "kinds", "tasks", "methods", "sources", "baselines")


def test_each_folder_of_components_has_an_example() -> None:
    assert sorted(path.split("/")[1] for path in EXAMPLES) == sorted(FOLDERS)


@pytest.mark.parametrize("path", EXAMPLES)
def test_an_example_is_a_new_file_with_one_public_class(path: str) -> None:
    assert not (ROOT / path).exists()
    defined = [node for node in ast.parse(EXAMPLES[path]).body if isinstance(node, ast.ClassDef)]
    assert len([node for node in defined if not node.name.startswith("_")]) == 1


MAIL = "From a@b Mon Jan  1 00:00:00 2024\nSubject: a list\n\nIt holds a text. And a second one.\n"


def test_examples_are_settings_of_a_study(tmp_path: Path) -> None:
    """With the files of the page alone, ``check_params`` takes their entries and refuses a
    misspelt setting of each."""
    project = clone_of_working_tree(tmp_path / "clone")
    for file, text in EXAMPLES.items():
        (project.folder / file).write_text(text)
    (project.folder / "reviews.csv").write_text("text,stars\na fine film,4.5\ntoo long,2\n")
    (project.folder / "archive.mbox").write_text(MAIL)
    params = read_yaml(project.folder / "params.yaml")
    run, full = params["pretrain"]["decoder_causal"], params["finetune"]["methods"]["full"]
    corpus = {"max_tokens": "all", "decontaminate_against": "none"}
    source = {"name": "mailbox", "path": "archive.mbox"}

    def edit(**misspelt: int) -> None:
        objective = {"name": "skip_one", "distance": 3, **misspelt}
        project.edit("pretrain", "skipping", value=run | {"objective": objective})
        model, mlm = {"name": "averaging", "d_model": 64, **misspelt}, {"name": "mlm"}
        project.edit("pretrain", "bag", value=run | {"model": model, "objective": mlm})
        method = {"name": "top_block", "num_blocks": 2, **misspelt}
        project.edit("finetune", "methods", "top", value=full | {"method": method})
        files = {"name": "files", "path": "reviews.csv", "rating": "stars"}
        task = params["tasks"]["section"] | {"source": files}
        rating = {"name": "star_rating", **misspelt}
        project.edit("tasks", "stars", value=task | {"task": rating})
        project.edit("corpora", "mails", value=corpus | {"source": source | misspelt})
        project.edit("baselines", "naive_bayes", value={"name": "naive_bayes", **misspelt})

    edit()
    assert project.run("python", "-m", "stages.check_params") == ""
    edit(distence=3)
    faults = project.run("python", "-m", "stages.check_params", check=False)
    assert set(re.findall(r"([\w.]+)\.distence:", faults)) == {
        "baselines.naive_bayes",
        "corpora.mails.source",
        "finetune.methods.top.method",
        "pretrain.bag.model",
        "pretrain.skipping.objective",
        "tasks.stars.task",
    }
