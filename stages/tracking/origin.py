"""Where a run comes from: the tags that MLflow shows as its source, user and commit."""

import getpass
import subprocess
from contextlib import suppress
from functools import cache

# The stage that computed what a run of this kind shows.
SOURCES = {
    "pretraining": "stages/pretrain.py",
    "baseline": "stages/fit_baseline.py",
    "trials": "stages/finetune.py",
    "trial": "stages/finetune.py",
    "group": "stages/report.py",
    "comparison": "stages/report.py",
}


@cache
def of_process() -> dict[str, str]:
    """The user, and the commit that is checked out; what is not known is left out."""
    found = {"mlflow.source.type": "LOCAL"}
    with suppress(KeyError, OSError):  # a container's user may have no name
        found["mlflow.user"] = getpass.getuser()
    try:
        git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
    except FileNotFoundError:
        return found
    return found | ({"mlflow.source.git.commit": git.stdout.strip()} if not git.returncode else {})


def origin_tags(kind: str) -> dict[str, str]:
    """Of a run that comes into MLflow now. They are written once: a later commit did not compute
    it."""
    return {"mlflow.source.name": SOURCES[kind], **of_process()}
