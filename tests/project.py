"""This project in a folder of its own: real DVC on a real git repository."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock
from ruamel.yaml import YAML

from stages.core.artifacts import write_jsonl
from tests import warm_python
from tests.small import documents
from tests.smoke import set_in

ROOT = Path(__file__).parents[1]
# Changes that keep the stages of the smoke study, but finish sooner.
SHORTER: dict[str, object] = {
    "tokenizers.unigram.vocab_size": 512,
    "tokenizers.unigram.max_sentences": 2000,
    "pretrain.training.num_steps": 8,
    "pretrain.training.num_validations": 2,
    "finetune.methods.linear_probe.method": {"name": "linear_probe", "C": [0.1]},
    "finetune.seeds": [1],
}


class Project:
    """A clone of this project, as it is in the working tree, in a folder of its own.

    Its commands are those of ``warm_python``, which start sooner, or a user's if ``cold``.
    """

    def __init__(self, folder: Path, *, cold: bool = False) -> None:
        self.folder = folder
        binaries = [] if cold else [warm_python.commands()]
        binaries.append(Path(sys.executable).parent)
        self.environment = {
            "PATH": os.pathsep.join([*map(str, binaries), os.environ["PATH"]]),
            "HOME": str(folder.parent),
            "GIT_CONFIG_GLOBAL": os.devnull,
            **{
                f"GIT_{who}_{what}": f"test@{what.lower()}.invalid"
                for who in ("AUTHOR", "COMMITTER")
                for what in ("NAME", "EMAIL")
            },
        }

    def run(self, *command: str, check: bool = True) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0 or not check, done.stdout
        return done.stdout

    def commit(self, message: str) -> None:
        self.run("git", "add", "--all")
        self.run("git", "commit", "--quiet", "--message", message)

    def repro(self, *arguments: str) -> list[str]:
        """Runs `dvc repro`; returns the stages that ran, in their order."""
        output = self.run("dvc", "repro", *arguments)
        return re.findall(r"^Running stage '(.*)':$", output, re.MULTILINE)

    def pending(self) -> list[str]:
        """Returns the stages that would run according to `make plan`."""
        imports = (
            "from stages.core.study_file import load; from stages.planning.pending import pending"
        )
        output = self.run("python", "-c", f"{imports}; print(*pending(load()))")
        return output.splitlines()[-1].split()

    def params(self) -> dict[str, Any]:
        """Returns the parsed params.yaml, with aliases written out."""
        text = (self.folder / "params.yaml").read_text()
        return json.loads(json.dumps(YAML(typ="safe").load(text)))

    def edit(self, *path: str, value: object) -> None:
        """Sets one value of params.yaml, as ``set_in``; aliases are written out."""
        params = self.params()
        set_in(params, path, value)
        with (self.folder / "params.yaml").open("w") as file:
            YAML().dump(params, file)  # which keeps the order of keys

    def outputs(self) -> dict[str, str]:
        """Returns the hash of every output in dvc.lock."""
        return {out["path"]: out["md5"] for stage in self.lock().values() for out in stage["outs"]}

    def lock(self) -> dict[str, Any]:
        """Returns the entries of all stages in dvc.lock, in the order of the file."""
        return YAML(typ="safe").load((self.folder / "dvc.lock").read_text())["stages"]


def recommented(source: str) -> str:
    """Returns Python source with more comments and blank lines, and longer docstrings."""
    lines = source.splitlines(keepends=True)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            quotes = '"""'
            row = node.body[0].lineno - 1
            assert quotes in lines[row]
            lines[row] = lines[row].replace(quotes, f"{quotes}Edited. ", 1)
    return "".join(["# Edited.\n\n", *lines, "\n\n# Edited.\n"])


def shared_folder(name: str) -> Path:
    """Returns a folder for all processes of this run of the tests."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    folder = Path(tempfile.gettempdir(), f"{name}-{run}")
    folder.mkdir(exist_ok=True)
    return folder


def share_caches(folder: Path) -> None:
    """Lets all clones share parsed packages, the parsed project and the script of the charts, which
    the first clone makes."""
    (folder / ".scratch").mkdir()
    for name in ("installed_docs", "parsed", "vega"):
        shared = shared_folder(name)
        (folder / ".scratch" / name).symlink_to(shared, target_is_directory=True)


def clone_of_working_tree(folder: Path, changes: Mapping[str, object] | None = None) -> Project:
    """Returns a project with the smoke study, in which ``changes`` are made."""
    project = Project(folder)
    folder.mkdir()
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    for name in listed:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    (folder / "dvc.lock").unlink(missing_ok=True)
    shutil.copyfile(ROOT / "studies" / "smoke.yaml", folder / "params.yaml")
    if changes:
        for path, value in changes.items():
            project.edit(*path.split("."), value=value)
        shutil.copyfile(folder / "params.yaml", folder / "studies" / "smoke.yaml")
    share_caches(folder)
    project.run("git", "init", "--quiet", "--initial-branch", "main")
    project.commit("a study")
    return project


def tiny_study(folder: Path) -> Project:
    """Returns a project with a committed study of files, whose stages take a second or less: two
    runs on topics of the language reference, and a task with the labels "calm" and "noisy"."""
    project = clone_of_working_tree(folder)
    (folder / "rows").mkdir()
    rows = [
        {"text": f"{word} number {i}", "label": label}
        for i in range(60)
        for word, label in (("a quiet", "calm"), ("A LOUD", "noisy"))
    ]
    for name, split in (("train", rows[:80]), ("validation", rows[80:100]), ("test", rows[100:])):
        write_jsonl(folder / f"rows/{name}.jsonl", split)
    topics = "\n\n".join("\n".join(lines) for lines in documents())
    (folder / "topics.txt").write_text(topics, encoding="utf-8")
    shutil.copyfile(ROOT / "tests/tiny_study.yaml", folder / "params.yaml")
    project.commit("a study of files")
    return project


def finished_tiny_study(folder: Path) -> Project:
    """Returns a project with the tiny study and its results. One process of this run of the tests
    computes them by `dvc repro`; all others copy them."""
    shared = shared_folder("finished")
    with FileLock(shared / "lock"):
        if not (shared / "done").exists():
            tiny_study(shared / "project").repro()
            (shared / "done").touch()
    shutil.copytree(shared / "project", folder, symlinks=True)
    return Project(folder)
