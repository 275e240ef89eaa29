"""This project in a folder of its own: real DVC on a real git repository."""

import ast
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests import warm_python

ROOT = Path(__file__).parents[1]
AFTER_THE_DECODER = [  # what runs when the smoke study's decoder was edited
    "check_params",
    "pretrain@decoder_causal",
    "finetune@tag",
    "finetune@section",
    "evaluate@tag",
    "evaluate@section",
    "report",
]

# The smoke study with the same stages and trials, sooner done.
SHORTER: dict[str, object] = {
    "tokenizers.unigram.vocab_size": 512,
    "tokenizers.unigram.max_sentences": 2000,
    **{
        f"pretrain.{run}.training.{name}": value
        for run in ("encoder_mlm", "encoder_scratch", "decoder_causal")
        for name, value in {"num_steps": 8, "num_validations": 2}.items()
    },
    "finetune.methods.linear_probe.method": {"name": "linear_probe", "C": [0.1]},
}


class Project:
    """A clone of this project, as it is in the working tree, in a folder of its own.

    Its processes are those of ``warm_python``, which start sooner; if ``cold``, a user's.
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

    def repro(self, *arguments: str) -> list[str]:
        """The stages that ran, in their order."""
        output = self.run("dvc", "repro", *arguments)
        return re.findall(r"^Running stage '(.*)':$", output, re.MULTILINE)

    def pending(self) -> list[str]:
        """The stages that `make plan` says would run."""
        imports = "from stages.core.params import load; from stages.planning.pending import pending"
        output = self.run("python", "-c", f"{imports}; print(*pending(load()))")
        return output.splitlines()[-1].split()

    def params(self) -> dict[str, Any]:
        """What params.yaml says; nothing is shared by aliases."""
        text = (self.folder / "params.yaml").read_text()
        return json.loads(json.dumps(YAML(typ="safe").load(text)))

    def edit(self, *path: str, value: object) -> None:
        """Set one value of params.yaml; what it shared with others by an alias is written out."""
        params = self.params()
        node = params
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = value
        with (self.folder / "params.yaml").open("w") as file:
            YAML().dump(params, file)  # which keeps the order of keys

    def outputs(self) -> dict[str, str]:
        """The hash of every output, as DVC locked it."""
        return {out["path"]: out["md5"] for stage in self.lock().values() for out in stage["outs"]}

    def lock(self) -> dict[str, Any]:
        """The entry of each stage in dvc.lock, in its order."""
        return YAML(typ="safe").load((self.folder / "dvc.lock").read_text())["stages"]


def recommented(source: str) -> str:
    """Python source with another comment, other blank lines and another text in each docstring."""
    lines = source.splitlines(keepends=True)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            quotes = '"""'
            row = node.body[0].lineno - 1
            assert quotes in lines[row]
            lines[row] = lines[row].replace(quotes, f"{quotes}Edited. ", 1)
    return "".join(["# Edited.\n\n", *lines, "\n\n# Edited.\n"])


def write_environment(folder: Path) -> None:
    """As make does."""
    (folder / "data").mkdir(exist_ok=True)
    version = {"python": platform.python_version()}
    (folder / "data/environment.json").write_text(json.dumps(version) + "\n")


def share_caches(folder: Path) -> None:
    """Clones keep in one place what they parse of packages and of this project, and the script of
    the charts: the first one makes it."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    (folder / ".scratch").mkdir()
    for name in ("installed_docs", "parsed", "vega"):
        shared = Path(tempfile.gettempdir(), f"{name}-{run}")
        shared.mkdir(exist_ok=True)
        (folder / ".scratch" / name).symlink_to(shared, target_is_directory=True)


def clone_of_working_tree(folder: Path, changes: Mapping[str, object] | None = None) -> Project:
    """With the smoke study, or one that differs in ``changes``."""
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
    write_environment(folder)
    share_caches(folder)
    project.run("git", "init", "--quiet", "--initial-branch", "main")
    project.run("git", "add", "--all")
    project.run("git", "commit", "--quiet", "--message", "a study")
    return project
