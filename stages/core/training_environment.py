"""The environment variables that dvc.yaml sets for processes that train."""

from pathlib import Path

from stages.core.study_file import read_yaml

PIPELINE = Path("dvc.yaml")


def training_environment() -> dict[str, str]:
    """Returns the variables that determine how memory is allocated and how threads wait, or {} if
    there is no dvc.yaml. A process reads these variables only when it starts."""
    if not PIPELINE.is_file():
        return {}
    [command] = [var["torch"] for var in read_yaml(PIPELINE)["vars"] if "torch" in var]
    return dict(word.split("=", 1) for word in command.split() if "=" in word)
