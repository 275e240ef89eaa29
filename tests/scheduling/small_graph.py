"""A graph of stages that take no time, for real DVC in a real git repository."""

import os
import subprocess
from pathlib import Path

from ruamel.yaml import YAML

from stages.scheduling.worker import Unit
from tests import warm_python

NEEDS = {
    "a": [],
    "b": [],
    "ab": ["a", "b"],
    "c": [],
    "abc": ["ab", "c"],
    "a2": ["a"],
    "b2": ["b"],
    "all": ["abc", "a2", "b2"],
}


def write_graph(folder: Path, commands: dict[str, str] | None = None) -> list[Unit]:
    """Writes a dvc.yaml and returns its units. Each stage writes its name and its inputs, unless it
    has another command."""
    stages = {}
    for name, needs in NEEDS.items():
        command = f"cat /dev/null {' '.join(needs)} > {name}; echo {name} >> {name}"
        command = (commands or {}).get(name, command)
        stages[name] = {"cmd": command, "deps": needs, "outs": [name]}
    YAML().dump({"stages": stages}, folder / "dvc.yaml")
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    dvc("init", "--quiet", folder=folder)
    return [Unit(name, (*needs,), name) for name, needs in NEEDS.items()]


def dvc(*arguments: str, folder: Path) -> None:
    subprocess.run([warm_python.commands() / "dvc", *arguments], cwd=folder, check=True)


def contents(folder: Path) -> dict[str, bytes]:
    """Returns the results and dvc.lock."""
    files = [folder / name for name in (*NEEDS, "dvc.lock")]
    return {file.name: file.read_bytes() for file in files if file.exists()}


os.environ["DVC_NO_ANALYTICS"] = "1"
