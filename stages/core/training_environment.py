"""The environment of processes that train, which dvc.yaml sets."""

from pathlib import Path

from stages.core.params import read_yaml

PIPELINE = Path("dvc.yaml")


def training_environment() -> dict[str, str]:
    """How memory is allocated and how threads wait, by variables that a process reads when it
    begins. None where there is no dvc.yaml."""
    if not PIPELINE.is_file():
        return {}
    [command] = [var["torch"] for var in read_yaml(PIPELINE)["vars"] if "torch" in var]
    return dict(word.split("=", 1) for word in command.split() if "=" in word)
